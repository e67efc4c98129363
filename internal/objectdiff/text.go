package objectdiff

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// shown returns two values as text. Long strings are cut to the part where they start to differ.
func shown(from, to any, masked bool) (was, is string) {
	a, okA := from.(string)
	b, okB := to.(string)
	if okA && okB && !masked && (len(a) > maxText || len(b) > maxText) {
		start := max(0, commonPrefix(a, b)-maxText/4)
		return excerpt(a, start), excerpt(b, start)
	}
	return value(from, masked), value(to, masked)
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// excerpt returns a part of a string from about a position, with complete characters.
func excerpt(s string, start int) string {
	for start > 0 && start < len(s) && !utf8.RuneStart(s[start]) {
		start--
	}
	lead := ""
	if start > 0 {
		lead = "…"
	}
	return lead + cut(strconv.Quote(cutRaw(s[min(start, len(s)):])))
}

// cutRaw limits the input of quoting to what is shown.
func cutRaw(s string) string {
	if len(s) <= 4*maxText {
		return s
	}
	end := 4 * maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + " "
}

// value returns a value as printable text: terminal control characters are escaped.
func value(v any, masked bool) string {
	if v == (absent{}) {
		return ""
	}
	if masked {
		return Masked
	}
	var b strings.Builder
	write(&b, v)
	return cut(b.String())
}

// write stops soon after maxText.
func write(b *strings.Builder, v any) {
	if b.Len() > 4*maxText {
		return
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case string:
		b.WriteString(strconv.Quote(cutRaw(v)))
	case map[string]any:
		b.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(strconv.Quote(cutRaw(key)) + ": ")
			write(b, v[key])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			write(b, item)
		}
		b.WriteByte(']')
	default:
		fmt.Fprint(b, v)
	}
}

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
