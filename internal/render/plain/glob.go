package plain

import (
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	maxGlobLength = 1024
	// maxAlternatives limits {a,b}{c,d}…: matching tries every combination.
	maxAlternatives = 256
)

// glob is a compiled pattern over paths relative to the rendered folder.
type glob struct {
	text    string // as written by the user
	pattern string // without leading slashes
	base    string // the literal folder prefix of the pattern; "." if there is none
	parts   []part
}

// part is one level of the pattern.
type part struct {
	pattern  string
	anyDepth bool // "**": zero or more levels
	// opaque means that the following levels cannot be separated: {a/b,c} and similar.
	opaque bool
}

// CheckGlob returns an [*Error] if Select does not accept the glob.
func CheckGlob(text string) error {
	_, err := compileGlob(text)
	return err
}

func compileGlob(text string) (glob, error) {
	g := glob{text: text, pattern: strings.TrimLeft(text, "/")}
	switch {
	case g.pattern == "":
		return glob{}, problem(text, "an empty glob matches nothing: remove it, or use a glob such as %q", "**/*.yaml")
	case len(text) > maxGlobLength:
		return glob{}, problem(text[:64]+"…", "the glob is longer than %d characters", maxGlobLength)
	case strings.ContainsRune(text, 0), !doublestar.ValidatePattern(g.pattern):
		return glob{}, problem(text, "not a valid glob: a bracket, brace or backslash is left open")
	case alternatives(g.pattern) > maxAlternatives:
		return glob{}, problem(text, "the glob has more than %d alternatives", maxAlternatives)
	}
	g.parts = splitParts(g.pattern)
	for _, p := range g.parts {
		if p.pattern == "." || p.pattern == ".." {
			return glob{}, problem(text, "a glob may not contain %q: it is relative to the folder of the source and stays in it", p.pattern)
		}
	}
	g.base, _ = doublestar.SplitPattern(g.pattern)
	if slices.ContainsFunc(strings.Split(g.base, "/"), isHidden) {
		return glob{}, problem(text, "folders whose names start with a dot are not read")
	}
	return g, nil
}

func isHidden(name string) bool { return strings.HasPrefix(name, ".") && name != "." }

// alternatives counts the combinations of the braces of a pattern: a sum inside a pair, a product along the
// pattern. It saturates.
func alternatives(pattern string) int {
	n, _ := countAlternatives(pattern, 0)
	return n
}

func countAlternatives(pattern string, depth int) (combinations, length int) {
	sum, product, i := 0, 1, 0
	for ; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '{':
			inner, n := countAlternatives(pattern[i+1:], depth+1)
			product = min(product*inner, maxAlternatives+1)
			i += n + 1
		case ',':
			if depth > 0 {
				sum, product = min(sum+product, maxAlternatives+1), 1
			}
		case '}':
			if depth > 0 {
				return min(sum+product, maxAlternatives+1), i
			}
		}
	}
	return min(sum+product, maxAlternatives+1), i
}

// splitParts splits a pattern at the slashes that separate levels.
func splitParts(pattern string) []part {
	var parts []part
	start, braces := 0, 0
	add := func(end int) {
		text := pattern[start:end]
		// Stars inside and next to braces may join to "**" for some alternative.
		opaque := strings.Contains(text, "{") && strings.Count(text, "*") > 1
		parts = append(parts, part{pattern: text, anyDepth: text == "**", opaque: opaque})
	}
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
			if i < len(pattern) && pattern[i] == '/' {
				return append(parts, part{opaque: true})
			}
		case '[':
			// A class ends at an unescaped bracket; with a slash inside, it is opaque.
			end := classEnd(pattern, i)
			if strings.ContainsRune(pattern[i:end], '/') {
				return append(parts, part{opaque: true})
			}
			i = end - 1
		case '{':
			braces++
		case '}':
			braces--
		case '/':
			if braces > 0 {
				return append(parts, part{opaque: true})
			}
			add(i)
			start = i + 1
		}
	}
	add(len(pattern))
	return parts
}

func classEnd(pattern string, start int) int {
	for i := start + 1; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case ']':
			return i + 1
		}
	}
	return len(pattern)
}

// matches reports whether the pattern matches a path.
func (g glob) matches(name string) bool { return doublestar.MatchUnvalidated(g.pattern, name) }

// reaches reports whether the pattern may match anything below the folder dir. It may return true without a
// match, but never false with one.
func (g glob) reaches(dir string) bool {
	if dir == "." {
		return true
	}
	return reachesParts(g.parts, strings.Split(dir, "/"))
}

func reachesParts(parts []part, names []string) bool {
	// at[i]: parts[:i] can match the names so far. One pass per name, so no pattern is slow.
	at := make([]bool, len(parts)+1)
	at[0] = true
	for _, name := range names {
		next := make([]bool, len(parts)+1)
		for i, p := range parts {
			if !at[i] {
				continue
			}
			switch {
			case p.opaque:
				return true
			case p.anyDepth:
				next[i] = true
				at[i+1] = true
			case doublestar.MatchUnvalidated(p.pattern, name):
				next[i+1] = true
			}
		}
		at = next
	}
	for i := range parts {
		if at[i] { // a part of the pattern is left for names below
			return true
		}
	}
	return false
}

// within converts a path relative to the rendered folder to a path in the tree.
func within(folder, name string) string { return path.Join(folder, name) }
