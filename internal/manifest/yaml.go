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

// maxExpanded limits the size of a document after the expansion of aliases: its text, and perValue for each
// value, so that aliases create no more values than a document without them may have.
const (
	maxExpanded = 2 * MaxFile
	perValue    = maxExpanded / (2 * maxIndicators)
)

var errExpands = errors.New("its aliases expand to too much: write the values out")

// checkAliases refuses documents whose aliases multiply. The YAML parser limits the number of values from
// aliases but not their length, so one long string with a few thousand aliases becomes gigabytes of JSON. Most
// documents have no anchor and cost one scan.
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

// expandedSize returns the rest of budget after value is expanded; negative as soon as it is exceeded.
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

// yamlError adapts errors of the YAML library, which are texts: it extracts the line and converts it from a
// line of the document to a line of the file.
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
