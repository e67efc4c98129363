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

const defectsFile = "docs/defects.md"

// defects is the number of defects of the GitOps Service.
const defects = 20

var (
	defectLine     = regexp.MustCompile(`^- \*\*(B[0-9]+)\*\* \S`)
	defectCitation = regexp.MustCompile(`(?m)^// defect: (.*)$`)
	defectID       = regexp.MustCompile(`\bB[0-9]+\b`)
)

// Every defect of the GitOps Service has a test that shows that Kedge does not repeat it.
func TestEveryDefectHasATest(t *testing.T) {
	t.Parallel()
	cited := defectCitations(t)
	data, err := os.ReadFile(defectsFile)
	if err != nil {
		t.Fatal(err)
	}
	lines, listed := strings.Split(string(data), "\n"), 0
	for i, line := range lines {
		found := defectLine.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		listed++
		id := fmt.Sprint("B", listed)
		want := "  Shown in " + strings.Join(cited[id], ", ") + "."
		switch {
		case found[1] != id:
			t.Errorf("%s:%d lists %s, want %s", defectsFile, i+1, found[1], id)
		case len(cited[id]) == 0:
			t.Errorf("no test shows that Kedge does not have defect %s", id)
		case flag.Lookup("update").Value.String() == "true":
			lines[i+1] = want
		case lines[i+1] != want:
			t.Errorf("%s:%d says of %s:\n%s\nwant (go test . -update):\n%s", defectsFile, i+2, id, lines[i+1], want)
		}
	}
	if listed != defects {
		t.Errorf("%s lists %d defects, want %d", defectsFile, listed, defects)
	}
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(defectsFile, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// defectCitations are the files that cite each defect, sorted.
func defectCitations(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for path, content := range textFiles(t) {
		if filepath.Ext(path) != ".go" || path == "defects_test.go" {
			continue
		}
		for _, found := range defectCitation.FindAllStringSubmatch(string(content), -1) {
			for _, id := range defectID.FindAllString(found[1], -1) {
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
