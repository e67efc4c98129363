package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/render"
)

// covers: G13 (variables in objects)
func TestVariables(t *testing.T) {
	t.Parallel()
	const meta = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	cases := map[string]struct {
		reason    string
		file      string
		variables map[string]string
		want      map[string]any // data of the one object
		problem   []string       // all in the message
	}{
		"Replaced":   {reason: "a value may hold several", file: meta + "data: {x: 'a-${r}-${s}'}", variables: map[string]string{"r": "eu", "s": "1"}, want: map[string]any{"x": "a-eu-1"}},
		"Escaped":    {reason: "two dollars keep the text", file: meta + "data: {x: '$${r} ${r}'}", variables: map[string]string{"r": "eu"}, want: map[string]any{"x": "${r} eu"}},
		"NoneGiven":  {reason: "without variables nothing is replaced", file: meta + "data: {x: '${r} $${r}'}", want: map[string]any{"x": "${r} $${r}"}},
		"OtherForms": {reason: "shell and templates do not change", file: meta + "data: {x: '$r ${r%%x} ${#r} ${r^^} ${ $(r) {{r}} ${} ${1} ${r:x} ${r:+x}'}", variables: map[string]string{"r": "eu"}, want: map[string]any{"x": "$r ${r%%x} ${#r} ${r^^} ${ $(r) {{r}} ${} ${1} ${r:x} ${r:+x}"}},
		"Default":    {reason: "for undefined or empty variables, as in Flux", file: meta + "data: {x: '${a:=1}${b:-2}${c-3}${d=4}${e:=5}${r:=6}${f:=}'}", variables: map[string]string{"e": "", "r": "eu"}, want: map[string]any{"x": "12345eu"}},
		"Nested":     {reason: "a default may use variables", file: meta + "data: {x: '${a:=x-${r}-${b:=${r}}}}'}", variables: map[string]string{"r": "eu"}, want: map[string]any{"x": "x-eu-eu}"}},
		"Cut":        {reason: "by characters", file: meta + "data: {x: '${r:1} ${r:1:2} ${r:0:1} ${r: -2} ${r:-2:1} ${r:9} ${r:1:9} ${r: -9:1}'}", variables: map[string]string{"r": "äbcd"}, want: map[string]any{"x": "bcd bc ä cd äbcd  bcd ä"}},
		"Replace":    {reason: "once, each, at the start and at the end", file: meta + "data: {x: '${r/a/X} ${r//a/X} ${r/#a/X} ${r/%a/X} ${r/b} ${r/\\//-} ${r//${s}/${t}} ${r/#z/X}'}", variables: map[string]string{"r": "a/b/a", "s": "b", "t": "T"}, want: map[string]any{"x": "X/b/a X/b/X X/b/a a/b/X a//a a-b/a a/T/a a/b/a"}},
		"KeptForms":  {reason: "two dollars keep any form", file: meta + "data: {x: '$${a:=1} $$${r} $$'}", variables: map[string]string{"r": "eu"}, want: map[string]any{"x": "${a:=1} $${r} $$"}},
		"Disabled":   {reason: "as Flux is told", file: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {kustomize.toolkit.fluxcd.io/substitute: disabled}}\ndata: {x: '${r} ${nope}'}", variables: map[string]string{"r": "eu"}, want: map[string]any{"x": "${r} ${nope}"}},
		"NoDefault":  {reason: "cutting and replacing need a value", file: meta + "data: {x: '${nope:1}'}", variables: map[string]string{"r": "eu"}, problem: []string{"app/cm.yaml", `"nope"`, "${nope:=text}"}},
		"Deep":       {reason: "nesting is bounded", file: meta + "data: {x: '" + strings.Repeat("${a:=", 50) + strings.Repeat("}", 50) + "'}", variables: map[string]string{"r": "eu"}, problem: []string{"app/cm.yaml", "nested"}},
		"ReplaceAll": {reason: "a replacement may not become large", file: meta + "data: {x: '${r//x/${s}}'}", variables: map[string]string{"r": strings.Repeat("x", 5000), "s": strings.Repeat("y", 4000)}, problem: []string{"app/cm.yaml", "exceed the size limit"}},
		"Structure":  {reason: "a value stays a string", file: meta + "data: {x: '${r}'}", variables: map[string]string{"r": "1\ny: [\"z\"]"}, want: map[string]any{"x": "1\ny: [\"z\"]"}},
		"Keys":       {reason: "keys are not replaced", file: meta + "data: {'${r}': '${r}'}", variables: map[string]string{"r": "eu"}, want: map[string]any{"${r}": "eu"}},
		"Once":       {reason: "a value is not expanded again", file: meta + "data: {x: '${r}'}", variables: map[string]string{"r": "${s}", "s": "no"}, want: map[string]any{"x": "${s}"}},
		"Undefined":  {reason: "named, with its file", file: meta + "data: {x: '${r} ${nope}'}", variables: map[string]string{"r": "eu"}, problem: []string{"app/cm.yaml", `"nope"`}},
		"BadName":    {reason: "a name is checked as it will be", file: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'a-${r}'}\n", variables: map[string]string{"r": "x/y"}, problem: []string{"app/cm.yaml", "metadata.name"}},
		"Growth":     {reason: "many placeholders may not become large", file: meta + "data: {x: '" + strings.Repeat("${r}", 100) + "'}", variables: map[string]string{"r": strings.Repeat("x", 500)}, problem: []string{"app/cm.yaml", "exceed the size limit"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := render.Render(t.Context(), memtree.New(map[string]string{"app/cm.yaml": tc.file}),
				render.Request{Path: "app", Variables: tc.variables, Limits: render.Limits{TotalBytes: 10_000}}, nil)
			if tc.problem != nil {
				if err == nil || !render.IsUserError(err) {
					t.Fatalf("%s: got %v", tc.reason, err)
				}
				for _, part := range tc.problem {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s: %q does not say %q", tc.reason, err, part)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, result.Set.Objects()[0].Content["data"]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// covers: G13
func TestVariablesInNamesMakeTheObject(t *testing.T) {
	t.Parallel()
	tree := memtree.New(map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'a-${r}', namespace: '${ns}'}\n",
		"b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a-eu, namespace: shop}\n",
	})
	only := render.Request{Globs: []string{"a.yaml"}, Variables: map[string]string{"r": "eu", "ns": "shop"}}
	result, err := render.Render(t.Context(), tree, only, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Set.Objects()[0].Ref.String(); got != "ConfigMap shop/a-eu" {
		t.Errorf("got %s", got)
	}
	both := only
	both.Globs = nil
	if _, err := render.Render(t.Context(), tree, both, nil); err == nil || !strings.Contains(err.Error(), "defined twice") {
		t.Errorf("two objects that become one give %v", err)
	}
}

func TestVariablesArePartOfTheKey(t *testing.T) {
	t.Parallel()
	tree := memtree.New(map[string]string{"a.yaml": configMap("a")})
	seen := map[string]string{}
	for reason, variables := range map[string]map[string]string{
		"none": nil, "one": {"a": "1"}, "another value": {"a": "2"}, "another name": {"b": "1"}, "two": {"a": "1", "b": "2"},
	} {
		key, err := render.Key(t.Context(), tree, render.Request{Variables: variables}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", reason, other)
		}
		seen[key] = reason
	}
}
