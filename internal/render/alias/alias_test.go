package alias

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// bomb is YAML in which each of levels lists the one before ten times.
func bomb(levels int) string {
	text := "l0: &l0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < levels; i++ {
		text += fmt.Sprintf("l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d,", i-1), 10), ","))
	}
	return text
}

// covers: G10 (YAML bombs)
func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason, text string
		refused      bool
	}{
		{"no alias", "a: b\n", false},
		{"aliases as people use them", "common: &c {a: 1, b: 2}\nx: *c\ny: {<<: *c, z: 3}\n", false},
		{"a program, not YAML", "int main(int c, char **v) { return *v && c & 1; }\n\t- : [", false},
		{"ten billion nodes", bomb(10), true},
		{"a billion nodes after another document", "a: b\n---\n" + bomb(9), true},
		{"a billion nodes after a document that is not YAML", "a: [\n---\n" + bomb(9), true},
		{"a billion nodes in a patch", "patches:\n- patch: |-\n" + strings.ReplaceAll("\n"+bomb(9), "\n", "\n    "), true},
		{"a long text many times", "t: &t " + strings.Repeat("x", 10_000) + "\nl: [" + strings.Repeat("*t,", 1000) + "]\n", true},
		{"a billion nodes in a patch with escapes", `patch: "` + strings.NewReplacer("&", `\x26`, "*", `\u002a`, "\n", `\n`).Replace(bomb(9)) + "\"\n", true},
		{"an alias in itself", "a: &a [*a]\n", true},
		{"with the line ends of Windows", strings.ReplaceAll("a: b\n---\n"+bomb(9), "\n", "\r\n"), true},
		{"enough levels to overflow", bomb(64), true},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			if err := Check([]byte(tt.text)); errors.Is(err, ErrExpands) != tt.refused {
				t.Errorf("got %v, want refused: %t", err, tt.refused)
			}
		})
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(bomb(9))
	f.Add("a: &a [*a, *b]\n--- &x\n*x")
	f.Add("? &a {*a : *a}\n: !!binary *a")
	f.Fuzz(func(t *testing.T, text string) {
		if err := Check([]byte(text)); err != nil && !errors.Is(err, ErrExpands) {
			t.Fatal(err)
		}
	})
}
