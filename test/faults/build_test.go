package faults_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// change replaces a text in a file of the server.
type change struct{ file, old, new string }

// storeFaults are the changes that let transactions of the server fail: see testdata.
var storeFaults = []change{{
	file: "server/server.go",
	old:  "	git, err := openGit(cfg)\n",
	new:  "	st = withFaults(st)\n	git, err := openGit(cfg)\n",
}}

// added are files that are added to the server, by the file in testdata.
var added = map[string]string{
	"server.go.txt":   "server/faults.go",
	"sqlstore.go.txt": "server/internal/store/sqlstore/faults.go",
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// binary returns the path of one of our programs. kedge-server has faults, which its environment turns on.
func binary(tb testing.TB, name string) string {
	tb.Helper()
	built.once.Do(func() { built.dir, built.err = build(tb) })
	if built.err != nil {
		tb.Fatal(built.err)
	}
	return filepath.Join(built.dir, name)
}

func build(tb testing.TB) (string, error) {
	tb.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "faults")
	overlay, err := newOverlay(root, filepath.Join(dir, "_overlay"))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-overlay", overlay, "-o", dir+"/", "./cmd/...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	return dir, nil
}

// newOverlay writes the files that replace those of the server, and returns the file that lists them for go build. The
// folder is always the same one, so that a second build is fast.
func newOverlay(root, dir string) (string, error) {
	texts := map[string]string{}
	changes := slices.Clone(storeFaults)
	for _, bug := range plantedBugs {
		changes = append(changes, bug.change)
		// The switch is a separate file in each package.
		dir := path.Dir(bug.change.file)
		texts[dir+"/planted.go"] = "package " + path.Base(dir) + "\n\nimport \"os\"\n\nvar planted = os.Getenv(\"" + plantedEnv + "\")\n"
	}
	for _, c := range changes {
		if texts[c.file] == "" {
			raw, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				return "", err
			}
			texts[c.file] = string(raw)
		}
		if n := strings.Count(texts[c.file], c.old); n != 1 {
			return "", fmt.Errorf("%s has the text %q %d times, want 1: the code has changed, so change this test", c.file, c.old, n)
		}
		texts[c.file] = strings.Replace(texts[c.file], c.old, c.new, 1)
		if strings.Contains(c.new, "placement.") && !strings.Contains(texts[c.file], "internal/placement\"") {
			texts[c.file] = strings.Replace(texts[c.file], "import (\n", "import (\n\t\"github.com/kedge-dev/kedge/server/internal/placement\"\n", 1)
		}
	}
	for from, to := range added {
		raw, err := os.ReadFile(filepath.Join("testdata", from))
		if err != nil {
			return "", err
		}
		texts[to] = string(raw)
	}
	return writeOverlay(root, dir, texts)
}

func writeOverlay(root, dir string, texts map[string]string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(root, file)] = to
		if old, err := os.ReadFile(to); err == nil && string(old) == text {
			continue
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, raw, 0o600)
}
