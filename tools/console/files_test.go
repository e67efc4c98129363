package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sumOfA = "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7" // of "a\n"

func TestVerifySumsRefusesWhatNobodyVouchedFor(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		sums   string
		files  map[string]string
		want   string // part of the error; "" for none
	}{
		"as listed":  {"the normal case", sumOfA + "  lib/a.mjs\n", map[string]string{"lib/a.mjs": "a\n"}, ""},
		"edited":     {"a changed library must not be bundled", sumOfA + "  lib/a.mjs\n", map[string]string{"lib/a.mjs": "b\n"}, "is not what SHA256SUMS says"},
		"not listed": {"nor an added one", sumOfA + "  lib/a.mjs\n", map[string]string{"lib/a.mjs": "a\n", "lib/b.mjs": "b\n"}, "is not what SHA256SUMS says"},
		"missing":    {"a list that promises too much is wrong", sumOfA + "  lib/a.mjs\n", nil, "listed in SHA256SUMS and missing"},
		"garbled":    {"the list itself must be readable", "nonsense\n", nil, "is not a checksum and a name"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "SHA256SUMS", tt.sums)
			for name, content := range tt.files {
				write(t, dir, name, content)
			}
			err := verifySums(dir)
			if tt.want == "" && err != nil {
				t.Errorf("%s: got error %v, want none", tt.reason, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s: got error %v, want one with %q", tt.reason, err, tt.want)
			}
		})
	}
}

func TestReplaceDirLeavesExactlyTheBundle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "assets/app-OLD.js", "old")
	if err := replaceDir(dir, map[string][]byte{"index.html": []byte("page"), "assets/app-NEW.js": []byte("new")}); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "assets", "*"))
	if err != nil || len(found) != 1 || filepath.Base(found[0]) != "app-NEW.js" {
		t.Errorf("got assets %q (%v), want the new one only", found, err)
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
