package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
)

// maxExpanded bounds what aliases may expand a document to: text, and perValue for each value, so
// that they make no more values than a document without them may have.
const (
	maxExpanded = 2 * MaxFile
	perValue    = maxExpanded / (2 * maxIndicators)
)

var errExpands = errors.New("its aliases expand to too much: write the values out")

// checkAliases refuses documents whose aliases multiply. The YAML parser bounds how many values
// aliases make but not how long they are, so one long string and a few thousand aliases of it are
// gigabytes once they are written as JSON. Most documents have no anchor and cost one scan.
func checkAliases(text []byte) error {
	if bytes.IndexByte(text, '&') < 0 || bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	var value any
	if err := yamlv2.UnmarshalStrict(text, &value); err != nil {
		return err
	}
	if expandedSize(value, maxExpanded) < 0 {
		return errExpands
	}
	return nil
}

// expandedSize returns what is left of budget after value is written out, negative as soon as it
// is exceeded.
func expandedSize(value any, budget int) int {
	budget -= perValue
	switch v := value.(type) {
	case string:
		budget -= len(v)
	case []any:
		for i := 0; i < len(v) && budget >= 0; i++ {
			budget = expandedSize(v[i], budget)
		}
	case map[any]any:
		for key, item := range v {
			if budget < 0 {
				break
			}
			budget = expandedSize(item, expandedSize(key, budget))
		}
	}
	return budget
}

// lineError is a problem at a line of the file.
type lineError struct {
	line    int
	problem string
}

func (e *lineError) Error() string { return e.problem }

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// yamlError is the adapter for the YAML library, whose errors are texts: it takes the line out of
// them and turns it from a line of the document into a line of the file.
func yamlError(doc document, err error) error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	var many *yamlv2.TypeError
	if errors.As(err, &many) && len(many.Errors) > 0 {
		text = many.Errors[0]
	}
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	match := yamlLine.FindStringSubmatch(text)
	if match == nil {
		return fmt.Errorf("not valid YAML: %s", text)
	}
	line, convErr := strconv.Atoi(match[1])
	if convErr != nil {
		return fmt.Errorf("not valid YAML: %s", text)
	}
	return &lineError{line: doc.line + line - 1, problem: "not valid YAML: " + strings.TrimPrefix(text, match[0])}
}
