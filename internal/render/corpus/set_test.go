package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/helmset"
	"github.com/kedge-dev/kedge/internal/render/helm"
)

// setChart prints its values with their types.
var setChart = map[string]string{
	"Chart.yaml":       "apiVersion: v2\nname: web\nversion: 1.0.0\n",
	"values.yaml":      "image: {repo: r, tag: \"1\"}\nlist: [{name: a, port: 1}, {name: b, port: 2}]\nscalar: x\n",
	"prod.yaml":        "image: {tag: \"2\"}\nlist: [{name: p, port: 9}, {name: q, port: 8}]\ngone: {a: 1}\n",
	"text.txt":         "first, line\n\"second\" {line}\n",
	"templates/t.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: values}\ndata: {v: {{ printf \"%#v\" .Values | quote }}}\n",
}

// setOf is one flag of the real program with its equivalent here.
func setOf(t rapid.TB, dir, flag, expression string) (args []string, sets []fleet.HelmSet) {
	args = []string{flag, expression}
	switch flag {
	case "--set":
		return args, []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: expression}}
	case "--set-string":
		return args, []fleet.HelmSet{{Type: fleet.HelmSetString, Expression: expression}}
	case "--set-json":
		return args, []fleet.HelmSet{{Type: fleet.HelmSetJSON, Expression: expression}}
	}
	expression = strings.ReplaceAll(expression, "DIR", dir)
	sets, err := helmset.FromFiles(expression, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return []string{flag, expression}, sets
}

// covers: G8
func TestHelmSet(t *testing.T) {
	t.Parallel()
	program := tool(t, "helm")
	parent := t.TempDir()
	for _, flags := range [][]string{
		{"--set", "image.tag=1.10"}, {"--set", "image.tag=012"}, {"--set", "a=y"}, {"--set", "a=yes,b=off,c=~,d=null,e=true,f=False"},
		{"--set", "a={a,b}"}, {"--set", "a={}"}, {"--set", "a={1,true,x y}"}, {"--set", "list[0].name=x"}, {"--set", "list[1].extra=x"}, {"--set", "list[3].name=x"},
		{"--set", "new[1]=x,new[0]=y"}, {"--set", "a=1,b=2"}, {"--set", `node.kubernetes\.io/role=x`}, {"--set", `a=b\,c`}, {"--set", "a="},
		{"--set", "a=1000000,b=12345678901234567890,c=-1,d=0,e=00,f=1e3,g=0x10"}, {"--set", "gone=null"}, {"--set", "image=null"}, {"--set", "a=b=c"},
		{"--set", "a= b"}, {"--set", "a.b"}, {"--set", "a"}, {"--set", "scalar.x=1"}, {"--set", "a[65537]=1"}, {"--set", "nested[0][1]=x"},
		{"--set", "a={x", "--set", "b=1"}, {"--set", "list={z}"}, {"--set", "a=ü€"}, {"--set", "a=\\"}, {"--set", ""}, {"--set", ","},
		{"--set-string", "image.tag=012,n=5,b=true"}, {"--set-string", "a=null"}, {"--set-string", "a={1,2}"},
		{"--set-json", `a={"b":[1,2,{"c":null}]},d=5`}, {"--set-json", `{"image":{"more":1.5}}`}, {"--set-json", `list[0]={"x":1}`}, {"--set-json", "a=,b=1"}, {"--set-json", "a=x"},
		{"--set-file", "a=DIR/text.txt"}, {"--set-file", "a=DIR/text.txt,list[1].name=DIR/text.txt"}, {"--set-file", "a={DIR/text.txt,DIR/prod.yaml}"},
		{"--set-json", "a=1", "--set", "a=2", "--set-string", "a=3", "--set-file", "a=DIR/text.txt"},
		{"--set-json", `a={"b":1}`, "--set", "a.c=2", "--set-string", "a.d=3"}, {"--set", "a.b=1", "--set", "a.c=2"}, {"--set", "a=1", "--set", "a.b=2"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			dir := treeOf(t, parent, setChart)
			req := helm.Request{Helm: fleet.Helm{ReleaseName: "rel", ValuesFiles: []string{"prod.yaml"}}}
			args := []string{"template", "rel", dir, "--values", filepath.Join(dir, "prod.yaml")}
			for i := 0; i < len(flags); i += 2 {
				more, sets := setOf(t, dir, flags[i], flags[i+1])
				args, req.Helm.Set = append(args, more...), append(req.Helm.Set, sets...)
			}
			theirs, got := runReal(t, parent, program, args...), runHelm(t, dir, req)
			if (theirs.failure == "") != (got.failure == "") || !cmp.Equal(theirs.objects, got.objects) {
				t.Errorf("failures: real %q, ours %q\nobjects (-real +ours):\n%s", theirs.failure, got.failure, cmp.Diff(theirs.objects, got.objects))
			}
		})
	}
}

// covers: G8
func TestHelmSetExpressions(t *testing.T) {
	program := tool(t, "helm")
	parent := t.TempDir()
	piece := rapid.SampledFrom([]string{"a", "image", "list", "scalar", ".", "=", ",", "[0]", "[2]", "{", "}", `\`, "x", "1", "0", "true", "null", "\"", " ", "1.5", "[", "]", "-"})
	rapid.Check(t, func(r *rapid.T) {
		dir := treeOf(r, parent, setChart)
		req := helm.Request{Helm: fleet.Helm{ReleaseName: "rel", ValuesFiles: []string{"prod.yaml"}}}
		args := []string{"template", "rel", dir, "--values", filepath.Join(dir, "prod.yaml")}
		for _, flag := range []string{"--set-json", "--set", "--set-string"} {
			for i := range rapid.IntRange(0, 2).Draw(r, flag) {
				expression := rapid.SampledFrom([]string{"a", "image.tag", "list[1].name"}).Draw(r, "key") + "=" +
					strings.Join(rapid.SliceOfN(piece, 1, 6).Draw(r, fmt.Sprint(flag, i)), "")
				more, sets := setOf(r, dir, flag, expression)
				args, req.Helm.Set = append(args, more...), append(req.Helm.Set, sets...)
			}
		}
		files := map[string]string{"arguments": strings.Join(args, "\n")}
		agree(r, files, runReal(t, parent, program, args...), runHelm(t, dir, req))
	})
}
