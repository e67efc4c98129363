package sqlstore

import (
	"slices"
	"strconv"
	"strings"
)

// args collects the arguments of a query whose text depends on the filter.
type args []any

// add adds an argument and returns its placeholder.
func (a *args) add(v any) string {
	*a = append(*a, v)
	return "$" + strconv.Itoa(len(*a))
}

// lowerASCII does the same as lower() in SQL, in every database and for every collation.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

var escapeLike = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// containing returns the pattern of "lower(x) LIKE $n ESCAPE '\'" for texts that contain part.
func containing(part string) string { return "%" + escapeLike.Replace(lowerASCII(part)) + "%" }

// pairs returns labels as the list of "key=value" for the comparison with "key || '=' || value IN …". Neither
// part of a label contains "=".
func pairs(labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for key, value := range labels {
		out = append(out, key+"="+value)
	}
	slices.Sort(out)
	return out
}
