// Package plaintext makes text of others fit to be shown on terminals, in logs and on pages: without control
// characters, which terminals act on, and without characters that reorder what is beside them. Every way into the
// server uses it on what comes in; nothing has to on the way out. It knows nothing of what a text is for.
package plaintext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ellipsis marks where a text was cut.
const Ellipsis = "…"

// Text is the plain part of a text that may have several lines, at most limit bytes of it; 0 is no limit. Line ends and
// tabs stay, and what is not UTF-8 becomes U+FFFD.
func Text(text string, limit int) string {
	if !IsPlain(text) {
		text = strings.Map(func(r rune) rune {
			if unfit(r) {
				return -1
			}
			return r
		}, strings.ToValidUTF8(text, "\uFFFD"))
	}
	return cut(text, limit)
}

// Line is Text as one line: whatever separates words is one space.
func Line(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return cut(strings.Join(strings.Fields(Text(text, 0)), " "), limit)
}

// IsPlain reports whether Text without a limit would return the text as it is.
func IsPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unfit)
}

// unfit reports whether a character does something instead of being shown. Line and paragraph separators break
// a line where nobody looks for it.
func unfit(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// cut shortens between characters, and says so.
func cut(text string, limit int) string {
	if limit <= 0 || len(text) <= limit {
		return text
	}
	end := max(0, limit-len(Ellipsis))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + Ellipsis
}
