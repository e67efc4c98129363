package kedge_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// retiredWords are metaphors that names used before docs/glossary.md. Each maps to what the field calls it.
var retiredWords = map[string]string{
	"pantry": "offline cache", "premises": "agent names", "reign": "leader term", "heir": "successor", "ousted": "superseded",
	"litter": "leftover", "parted": "detached", "glance": "existence check", "shelf": "kind and namespace", "lapse": "timeout",
	"rehearse": "dry run", "rehearsed": "dry run", "rehearses": "dry run", "rehearsal": "dry run", "straggler": "group timeout",
	"verdict": "evaluation", "judge": "evaluate", "forest": "trees", "spokesmen": "representatives", "seat": "assignment", "unseat": "unassign",
	"whereabouts": "location", "crew": "agents", "belied": "contradicted", "bells": "signals", "wallet": "token source",
	"grave": "deleted target", "buried": "deleted", "bury": "delete", "anew": "again", "blame": "record failure",
	"court": "candidates", "crown": "start leading", "crowned": "leading", "desk": "environment", "room": "fixture", "rooms": "fixtures",
}

func TestNamesUseTheWordsOfTheField(t *testing.T) {
	t.Parallel()
	for path := range textFiles(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || seen[id.Name] {
				return true
			}
			seen[id.Name] = true
			for _, word := range wordsOf(id.Name) {
				if better := retiredWords[word]; better != "" {
					t.Errorf("%s: the name %s uses %q: say %q, see docs/glossary.md", path, id.Name, word, better)
				}
			}
			return true
		})
	}
}

// wordsOf splits a camelCase name into its words, in lower case.
func wordsOf(name string) []string {
	var out []string
	begin := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || runes[i] == '_' || startsWord(runes, i) {
			out = append(out, strings.ToLower(strings.Trim(string(runes[begin:i]), "_")))
			begin = i
		}
	}
	return out
}

// startsWord reports whether the upper case letter at i begins a word: ANew is "a" and "new", HTTPServer "http" and "server".
func startsWord(runes []rune, i int) bool {
	if !unicode.IsUpper(runes[i]) {
		return false
	}
	return !unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])
}
