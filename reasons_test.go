package kedge_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const reasonsFile = "docs/reasons.md"

func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	want := reasonsPage()
	if *updateAcceptance {
		if err := os.WriteFile(reasonsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(reasonsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what internal/fleet lists: go test . -update", reasonsFile)
	}
}

func reasonsPage() string {
	var b strings.Builder
	b.WriteString(`# Reasons

Every state that Kedge shows has a reason, which is one CamelCase word, and a message for people. Reasons are stable. The wording of messages can change.
Filter lists by reason (` + "`?reason=`" + ` in the REST API), and compare reasons, not messages, in scripts.

This page is generated from ` + "`internal/fleet/reason_list.go`" + ` by ` + "`go test . -update`" + `.
`)
	for _, g := range fleet.Reasons() {
		fmt.Fprintf(&b, "\n## %s\n\n| reason | cause | remedy |\n| --- | --- | --- |\n", g.Title)
		for _, r := range g.Reasons {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Reason, r.Cause, r.Remedy)
		}
	}
	return b.String()
}

var camelCase = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

func TestEveryReasonIsListedOnce(t *testing.T) {
	t.Parallel()
	listed := map[fleet.Reason]int{}
	for _, g := range fleet.Reasons() {
		for _, r := range g.Reasons {
			listed[r.Reason]++
			if !camelCase.MatchString(string(r.Reason)) || r.Cause == "" || r.Remedy == "" {
				t.Errorf("%+v: want a CamelCase word, a cause and a remedy", r)
			}
		}
	}
	declared := declaredReasons(t)
	for _, r := range declared {
		if listed[r] != 1 {
			t.Errorf("%s is listed %d times in reason_list.go, want once", r, listed[r])
		}
	}
	if len(declared) != len(listed) {
		t.Errorf("%d reasons are declared in reason.go and %d listed", len(declared), len(listed))
	}
}

func declaredReasons(t *testing.T) []fleet.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "internal/fleet/reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []fleet.Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fleet.Reason(text))
		}
		return false
	})
	return out
}

// TestReasonsComeFromTheList forbids reasons that are written as text where they are used.
//
// covers: T12
func TestReasonsComeFromTheList(t *testing.T) {
	t.Parallel()
	for path := range textFiles(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "test/") || strings.HasPrefix(path, "internal/fleet/") || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, text := range reasonTexts(n) {
				t.Errorf("%s: the reason %s is written as text: use a constant of internal/fleet/reason.go", path, text)
			}
			return true
		})
	}
}

// reasonTexts returns the CamelCase literals that a node gives to a field or a variable named reason.
func reasonTexts(n ast.Node) []string {
	var out []string
	add := func(name, value ast.Expr) {
		id, ok := name.(*ast.Ident)
		if sel, isSel := name.(*ast.SelectorExpr); isSel {
			id, ok = sel.Sel, true
		}
		lit, isLit := value.(*ast.BasicLit)
		if !ok || !isLit || lit.Kind != token.STRING || !strings.EqualFold(id.Name, "reason") {
			return
		}
		if text, err := strconv.Unquote(lit.Value); err == nil && camelCase.MatchString(text) {
			out = append(out, text)
		}
	}
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		add(n.Key, n.Value)
	case *ast.AssignStmt:
		for i := range min(len(n.Lhs), len(n.Rhs)) {
			add(n.Lhs[i], n.Rhs[i])
		}
	}
	return out
}
