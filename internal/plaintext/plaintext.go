// Package plaintext makes untrusted text safe for terminals, logs, and pages: it removes control characters and
// characters that change the text direction. The server applies it to all input, so output needs no further
// treatment.
package plaintext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Ellipsis marks the end of a truncated text.
const Ellipsis = "…"

// Text returns the printable part of a text with several lines, at most limit bytes; 0 means no limit. Line
// ends and tabs stay, and invalid UTF-8 becomes U+FFFD.
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

// Line is Text in one line: white space between words becomes one space.
func Line(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return cut(strings.Join(strings.Fields(Text(text, 0)), " "), limit)
}

// IsPlain reports whether Text without a limit would return the text unchanged.
func IsPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unfit)
}

// unfit reports whether a character is not displayed but has an effect. Line and paragraph separators break a
// line unexpectedly.
func unfit(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// cut truncates between characters and adds Ellipsis.
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
