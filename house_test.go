// Package kedge_test holds the rules of the house that a machine can check and no linter does.
package kedge_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxLines is where a file must be split; half of it is where to think about it.
const maxLines = 600

// goFile is what the rules need to know of one Go file.
type goFile struct {
	path, pkg string
	doc       string
	lines     int
	generated bool
	test      bool
}

func TestEveryPackageHasOneDocComment(t *testing.T) {
	t.Parallel()
	for dir, files := range packages(t) {
		written := slices.DeleteFunc(slices.Clone(files), func(f goFile) bool { return f.generated })
		if len(written) == 0 {
			continue // a generator writes the comment that its source has
		}
		var documented []string
		for _, f := range written {
			if f.doc == "" {
				continue
			}
			documented = append(documented, f.path)
			want := "Package " + f.pkg + " "
			if f.pkg == "main" {
				want = "Command "
			}
			if !strings.HasPrefix(f.doc, want) {
				t.Errorf("%s: the package comment starts %.40q, want %q", f.path, f.doc, want)
			}
		}
		if len(documented) != 1 {
			t.Errorf("%s: package comments are in %q, want exactly one", dir, documented)
		}
	}
}

func TestFilesStaySmall(t *testing.T) {
	t.Parallel()
	for _, files := range packages(t) {
		for _, f := range files {
			if f.lines > maxLines && !f.generated {
				t.Errorf("%s has %d lines, want at most %d: split it", f.path, f.lines, maxLines)
			}
		}
	}
}

// A path of the machine that something was written on works on no other.
// maxFields is where a struct must be split, unless its comment says why not.
const maxFields = 20

func TestStructsStaySmall(t *testing.T) {
	t.Parallel()
	for path := range textFiles(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range gen.Specs {
				if n := fieldsOf(spec); n > maxFields && !strings.Contains(strings.Join(strings.Fields(gen.Doc.Text()), " "), "more than 20 fields because") {
					t.Errorf("%s: %s has %d fields, want at most %d, or a comment that says why", path, spec.(*ast.TypeSpec).Name, n, maxFields)
				}
			}
		}
	}
}

func fieldsOf(spec ast.Spec) int {
	declared, ok := spec.(*ast.TypeSpec)
	if !ok {
		return 0
	}
	s, ok := declared.Type.(*ast.StructType)
	if !ok {
		return 0
	}
	n := 0
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

func TestNoFileNamesMachinePaths(t *testing.T) {
	t.Parallel()
	machinePath := regexp.MustCompile(`(^|[^\w.$}/-])/(root|home|Users|work)/[\w.-]+`)
	suspect := func(line []byte) bool { // spares the expression nearly all lines
		return bytes.Contains(line, []byte("/root/")) || bytes.Contains(line, []byte("/home/")) ||
			bytes.Contains(line, []byte("/Users/")) || bytes.Contains(line, []byte("/work/"))
	}
	for path, content := range textFiles(t) {
		if path == "house_test.go" {
			continue
		}
		for i, line := range bytes.Split(content, []byte("\n")) {
			if !suspect(line) {
				continue
			}
			if found := machinePath.Find(line); found != nil {
				t.Errorf("%s:%d names a path of one machine: %s", path, i+1, bytes.TrimSpace(found))
			}
		}
	}
}

// No program of ours connects with TLS and does not verify the certificate, and no manifest or kubeconfig that it writes says so.
//
// defect: B17
func TestEveryCertificateIsVerified(t *testing.T) {
	t.Parallel()
	unverified := regexp.MustCompile(`(?i)\b(InsecureSkipVerify|insecure-skip-tls-verify|insecure)"?\s*[:=]+\s*"?true`)
	for path, content := range textFiles(t) {
		if strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".yaml", ".yml", ".tmpl"}, filepath.Ext(path)) || strings.Contains(path, "testdata/") {
			continue
		}
		for i, line := range bytes.Split(content, []byte("\n")) {
			if found := unverified.Find(line); found != nil {
				t.Errorf("%s:%d does not verify a certificate: %s", path, i+1, bytes.TrimSpace(line))
			}
		}
	}
}

// packages returns the files of each package, by folder. Test files count only in folders that
// hold nothing else: elsewhere the package's own comment speaks for them.
func packages(t *testing.T) map[string][]goFile {
	t.Helper()
	all, tests := map[string][]goFile{}, map[string][]goFile{}
	for path, content := range textFiles(t) {
		if filepath.Ext(path) != ".go" {
			continue
		}
		f := parseFile(t, path, content)
		if dir := filepath.Dir(path); f.test {
			tests[dir] = append(tests[dir], f)
		} else {
			all[dir] = append(all[dir], f)
		}
	}
	for dir, files := range tests {
		if len(all[dir]) == 0 {
			all[dir] = files
		}
	}
	return all
}

func parseFile(t *testing.T, path string, content []byte) goFile {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, content, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return goFile{
		path: path, pkg: parsed.Name.Name, doc: parsed.Doc.Text(),
		lines:     bytes.Count(content, []byte("\n")),
		generated: ast.IsGenerated(parsed),
		test:      strings.HasSuffix(path, "_test.go"),
	}
}

// textFiles returns the text files of the work tree that are not built or fetched.
func textFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", "bin", ".demo", "node_modules", "bench/out"}, path) || entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil && !bytes.ContainsRune(content, 0) {
			files[filepath.ToSlash(path)] = content
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
