// Package helmset changes the values of a chart with expressions in the syntax of Helm's flags --set,
// --set-string, and --set-json. It uses Helm's parser, so that expressions have the same meaning, and limits
// the size that a short expression can grow to. It renders nothing and reads no files.
package helmset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"helm.sh/helm/v4/pkg/strvals"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxItems limits the number of list items that the indexes of all expressions create together: "a[65536]=x"
// creates a list of that length, and a few more bytes create another one.
const maxItems = 1 << 18

var errItems = fmt.Errorf("the list indexes make lists of more than %d items together: use smaller indexes, or values in a file", maxItems)

// Check returns an error if an expression is invalid.
func Check(sets []fleet.HelmSet) error {
	_, err := Apply(nil, sets)
	return err
}

// Apply changes values with the expressions, in order, and returns the result. It may modify the maps and lists
// in values. The error contains the expression.
func Apply(values map[string]any, sets []fleet.HelmSet) (map[string]any, error) {
	if values == nil {
		values = map[string]any{}
	}
	items := 0
	for _, set := range sets {
		if items += indexedItems(set.Expression); items > maxItems {
			return nil, errItems
		}
		next, err := applyOne(values, set)
		if err != nil {
			return nil, fmt.Errorf("the expression %s of type %s: %w", shorten(set.Expression), set.Type, err)
		}
		values = next
	}
	return values, nil
}

func applyOne(values map[string]any, set fleet.HelmSet) (map[string]any, error) {
	if !utf8.ValidString(set.Expression) {
		return nil, errors.New("not valid UTF-8")
	}
	switch set.Type {
	case fleet.HelmSetValue:
		return values, strvals.ParseInto(set.Expression, values)
	case fleet.HelmSetString:
		return values, strvals.ParseIntoString(set.Expression, values)
	case fleet.HelmSetJSON:
		text := strings.TrimSpace(set.Expression)
		if !strings.HasPrefix(text, "{") {
			return values, strvals.ParseJSON(set.Expression, values)
		}
		// Helm also accepts a complete object.
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			return nil, fmt.Errorf("not a JSON object: %w", err)
		}
		return merge(values, object), nil
	}
	return nil, errors.New("the type is not one of value, string and json")
}

// merge merges one mapping into another, as Helm merges values files.
func merge(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	for key, value := range over {
		below, isMap := out[key].(map[string]any)
		if mapping, ok := value.(map[string]any); ok && isMap {
			value = merge(below, mapping)
		}
		out[key] = value
	}
	return out
}

// index matches a list index. It also matches text in values that looks like one: only a parser can distinguish
// them.
var index = regexp.MustCompile(`\[\+?0*([0-9]{1,9})\]`)

// indexedItems returns an upper bound of the number of items that the indexes of an expression create.
func indexedItems(expression string) int {
	total := 0
	for _, match := range index.FindAllStringSubmatch(strings.ReplaceAll(expression, `\`, ""), -1) {
		// Helm refuses an index above its own limit before it creates a list.
		if n, err := strconv.Atoi(match[1]); err == nil && n <= strvals.MaxIndex {
			total += n + 1
		}
	}
	return total
}

// shorten quotes the start of a text: an expression may be a whole file.
func shorten(text string) string {
	const most = 80
	if len(text) > most {
		return strconv.Quote(strings.ToValidUTF8(text[:most], "")) + "…"
	}
	return strconv.Quote(text)
}
