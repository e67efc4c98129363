package corpus

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// treeCase is one tree with settings.
type treeCase struct {
	name     string
	settings map[string]string
	files    map[string]string
	links    map[string]string // link to target
}

// loadCases reads the cases of a folder of testdata.
func loadCases(t *testing.T, folder string) []treeCase {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var cases []treeCase
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split("\n"+string(data), "\n=== ")[1:] {
			cases = append(cases, parseCase(t, part))
		}
	}
	return cases
}

func parseCase(t *testing.T, text string) treeCase {
	t.Helper()
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n")+"\n", "\n")
	c := treeCase{name: strings.TrimSpace(lines[0]), settings: map[string]string{}, files: map[string]string{}, links: map[string]string{}}
	file := ""
	for _, line := range lines[1:] {
		trimmed := strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(trimmed, "-- "); ok && strings.HasSuffix(name, " --") {
			file = strings.TrimSuffix(name, " --")
			c.files[file] = ""
			continue
		}
		if file != "" {
			c.files[file] += line
			continue
		}
		if from, to, ok := strings.Cut(trimmed, " -> "); ok {
			c.links[from] = to
			continue
		}
		if key, value, ok := strings.Cut(trimmed, ":"); ok {
			c.settings[key] = strings.TrimSpace(value)
		} else if trimmed != "" {
			t.Fatalf("%s: not a setting: %q", c.name, trimmed)
		}
	}
	return c
}

// write puts the tree on disk. The setting tgz, "folder file", packs a folder of it as helm package does.
func (c treeCase) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{}
	for name, content := range c.files {
		files[name] = content
	}
	for pack := range strings.SplitSeq(c.settings["tgz"], ",") {
		if folder, file, ok := strings.Cut(strings.TrimSpace(pack), " "); ok {
			files[file] = packFolder(t, files, folder)
		}
	}
	for name, content := range files {
		if strings.HasPrefix(name, "INLINE") {
			continue
		}
		where := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(where), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(where, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range c.links {
		where := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(where), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, where); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packFolder removes the files of a folder and returns them as an archive.
func packFolder(t *testing.T, files map[string]string, folder string) string {
	t.Helper()
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	out := tar.NewWriter(zipped)
	for name, content := range files {
		below, ok := strings.CutPrefix(name, folder+"/")
		if !ok {
			continue
		}
		delete(files, name)
		if err := out.WriteHeader(&tar.Header{Name: path.Join(path.Base(folder), below), Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}
