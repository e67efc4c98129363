package kedge_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateAcceptance = flag.Bool("update", false, "write down in docs/acceptance.md where each line is shown")

const acceptanceFile = "docs/acceptance.md"

var (
	acceptanceLine = regexp.MustCompile(`^- \*\*([A-Z][0-9]+)\*\* \S`)
	shownIn        = regexp.MustCompile(`^  Shown in (.*)$`)
	citation       = regexp.MustCompile(`// covers: (.*)`)
	citedNote      = regexp.MustCompile(`\([^()]*\)`)
	citedID        = regexp.MustCompile(`\b[A-Z][0-9]+\b`)
)

// What a user must be able to see is listed in one document. A test that shows a line cites it; a citation of a line that is
// not there, and a line that no test shows, are mistakes.
func TestAcceptanceListIsWhatTestsShow(t *testing.T) {
	t.Parallel()
	cited := citations(t, citation)
	data, err := os.ReadFile(acceptanceFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	listed := map[string]bool{}
	for i, line := range lines {
		found := acceptanceLine.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		id := found[1]
		if listed[id] {
			t.Errorf("%s:%d lists %s twice", acceptanceFile, i+1, id)
		}
		listed[id] = true
		want := "  Shown in " + strings.Join(cited[id], ", ") + "."
		if len(cited[id]) == 0 {
			t.Errorf("%s:%d: no test shows %s", acceptanceFile, i+1, id)
		} else if i+1 >= len(lines) || !shownIn.MatchString(lines[i+1]) {
			t.Errorf("%s:%d does not say where %s is shown", acceptanceFile, i+1, id)
		} else if *updateAcceptance {
			lines[i+1] = want
		} else if lines[i+1] != want {
			t.Errorf("%s:%d says of %s:\n%s\nwant (go test . -update):\n%s", acceptanceFile, i+2, id, lines[i+1], want)
		}
	}
	for id, files := range cited {
		if !listed[id] {
			t.Errorf("%s cites %s, which %s does not list", strings.Join(files, ", "), id, acceptanceFile)
		}
	}
	if *updateAcceptance {
		if err := os.WriteFile(acceptanceFile, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// citations are the files with a comment that cites each ID, sorted.
func citations(t *testing.T, comment *regexp.Regexp) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for path, content := range textFiles(t) {
		if filepath.Ext(path) != ".go" || path == "acceptance_test.go" || path == "defects_test.go" {
			continue
		}
		for _, found := range comment.FindAllStringSubmatch(string(content), -1) {
			for _, id := range citedID.FindAllString(citedNote.ReplaceAllString(found[1], ""), -1) {
				out[id] = append(out[id], fmt.Sprintf("`%s`", path))
			}
		}
	}
	for id := range out {
		slices.Sort(out[id])
		out[id] = slices.Compact(out[id])
	}
	return out
}
