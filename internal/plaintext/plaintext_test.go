package plaintext_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/kedge-dev/kedge/internal/plaintext"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, in, text, line string }{
		{"ordinary text stays", "Grüße, 世界 👩‍🚀", "Grüße, 世界 👩‍🚀", "Grüße, 世界 👩‍🚀"},
		{"lines stay lines", "a\n\tb", "a\n\tb", "a b"},
		{"an escape sequence loses its escape character", "\x1b[31mred\x1b]0;title\a", "[31mred]0;title", "[31mred]0;title"},
		{"a carriage return would overwrite the line", "all is well\rfailed", "all is wellfailed", "all is well failed"},
		{"so would the C1 form of an escape", "\u009b31mred", "31mred", "31mred"},
		{"an override shows another order", "user\u202Etxt.exe", "usertxt.exe", "usertxt.exe"},
		{"isolates too", "a\u2066b\u2069", "ab", "ab"},
		{"separators break lines", "a\u2028b", "ab", "a b"},
		{"invalid UTF-8", "a\xffb", "a\uFFFDb", "a\uFFFDb"},
	} {
		if got := plaintext.Text(c.in, 0); got != c.text {
			t.Errorf("%s: Text gives %q, want %q", c.reason, got, c.text)
		}
		if got := plaintext.Line(c.in, 0); got != c.line {
			t.Errorf("%s: Line gives %q, want %q", c.reason, got, c.line)
		}
	}
	if got := plaintext.Text("äöü", 5); got != "ä…" || plaintext.Text("äöü", 6) != "äöü" {
		t.Errorf("cut to 5 bytes: %q", got)
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "plain", "\x1b[2J", "\u202Ex", "\xff\xfe", "a\r\nb", "世界"} {
		f.Add(seed, 10)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		for name, got := range map[string]string{"Text": plaintext.Text(text, limit), "Line": plaintext.Line(text, limit)} {
			if !utf8.ValidString(got) || !plaintext.IsPlain(got) {
				t.Errorf("%s(%q, %d) is not plain: %q", name, text, limit, got)
			}
			if strings.ContainsFunc(got, func(r rune) bool {
				return unicode.IsControl(r) && r != '\n' && r != '\t' || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069
			}) {
				t.Errorf("%s(%q, %d) contains %q", name, text, limit, got)
			}
			if limit >= len(plaintext.Ellipsis) && len(got) > limit {
				t.Errorf("%s(%q, %d) has %d bytes", name, text, limit, len(got))
			}
		}
		if once := plaintext.Text(text, 0); plaintext.Text(once, 0) != once || plaintext.IsPlain(text) != (once == text) {
			t.Errorf("%q is not cleaned once and for all", text)
		}
	})
}
