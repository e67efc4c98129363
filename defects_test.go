package kedge_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const defectsFile = "docs/defects.md"

// defects is the number of defects of the GitOps Service.
const defects = 20

var (
	defectLine     = regexp.MustCompile(`^- \*\*(B[0-9]+)\*\* \S`)
	defectCitation = regexp.MustCompile(`(?m)^// defect: (.*)$`)
)

// Every defect of the GitOps Service has a test that shows that Kedge does not repeat it.
func TestEveryDefectHasATest(t *testing.T) {
	t.Parallel()
	cited := citations(t, defectCitation)
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
		case *updateAcceptance:
			lines[i+1] = want
		case lines[i+1] != want:
			t.Errorf("%s:%d says of %s:\n%s\nwant (go test . -update):\n%s", defectsFile, i+2, id, lines[i+1], want)
		}
	}
	if listed != defects {
		t.Errorf("%s lists %d defects, want %d", defectsFile, listed, defects)
	}
	if *updateAcceptance {
		if err := os.WriteFile(defectsFile, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
