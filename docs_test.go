package kedge_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	makeCommand  = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
)

func TestDocsPointAtWhatExists(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	for path, content := range textFiles(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, m := range markdownLink.FindAllStringSubmatch(string(content), -1) {
			if strings.Contains(m[1], ":") {
				continue // another site
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
		for _, m := range makeCommand.FindAllStringSubmatch(string(content), -1) {
			if !targets[m[1]] {
				t.Errorf("%s says make %s, which is no target", path, m[1])
			}
		}
	}
}
