package helmset

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// FromFiles parses an expression of Helm's flag --set-file, "key=path,key=path", and returns the same values
// with the contents of the files instead of their paths.
func FromFiles(expression string, read func(path string) ([]byte, error)) ([]fleet.HelmSet, error) {
	var out []fleet.HelmSet
	for rest := expression; rest != ""; {
		key, _, stop, after := cutAt(rest, "=")
		if stop == 0 || key == "" {
			return nil, fmt.Errorf("the expression %s: write it as key=path", shorten(expression))
		}
		value, after, err := fileValue(after, read)
		if err != nil {
			return nil, fmt.Errorf("the expression %s: %w", shorten(expression), err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encoding what %s names: %w", shorten(expression), err)
		}
		out = append(out, fleet.HelmSet{Type: fleet.HelmSetJSON, Expression: key + "=" + string(text)})
		rest = after
	}
	return out, nil
}

// fileValue reads the value of a key: a path, or a list of paths in braces.
func fileValue(text string, read func(string) ([]byte, error)) (value any, rest string, err error) {
	if !strings.HasPrefix(text, "{") {
		_, path, _, rest := cutAt(text, ",")
		value, err := contentOf(path, read)
		return value, rest, err
	}
	var list []any
	for rest := text[1:]; ; {
		_, path, stop, after := cutAt(rest, ",}")
		if stop == 0 {
			return nil, "", errors.New("a list ends with }")
		}
		item, err := contentOf(path, read)
		if err != nil {
			return nil, "", err
		}
		list, rest = append(list, item), after
		if stop == '}' {
			return list, strings.TrimPrefix(rest, ","), nil
		}
	}
}

func contentOf(path string, read func(string) ([]byte, error)) (string, error) {
	data, err := read(path)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(data) {
		return "", fmt.Errorf("the file %q is not valid UTF-8: a value is text", path)
	}
	return string(data), nil
}

// cutAt cuts a text at the first stop character without a backslash before it. It returns the text before it,
// as written and unescaped, the stop character (0 at the end of the text), and the rest.
func cutAt(text, stops string) (raw, plain string, stop byte, rest string) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case strings.IndexByte(stops, c) >= 0:
			return text[:i], out.String(), c, text[i+1:]
		case c == '\\' && i+1 < len(text):
			i++
			out.WriteByte(text[i])
		default:
			out.WriteByte(c)
		}
	}
	return text, out.String(), 0, ""
}
