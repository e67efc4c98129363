package imageset_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/imageset"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

type setCase struct {
	reason  string
	files   map[string]string
	req     imageset.Request
	change  string            // NAME=REF
	want    map[string]string // files that change
	problem []string          // all in the message
}

func (tc setCase) run(t *testing.T) {
	t.Helper()
	for pairText := range strings.FieldsSeq(tc.change) {
		name, ref, _ := strings.Cut(pairText, "=")
		tc.req.Changes = append(tc.req.Changes, imageset.Change{Name: name, Ref: ref})
	}
	result, err := imageset.Set(t.Context(), memtree.New(tc.files), tc.req)
	if tc.problem != nil {
		var mistake *imageset.Error
		if !errors.As(err, &mistake) {
			t.Fatalf("%s: got %v, want a user error", tc.reason, err)
		}
		for _, part := range tc.problem {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", tc.reason, err, part)
			}
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", tc.reason, err)
	}
	got := map[string]string{}
	for name, data := range result.Edits {
		got[name] = string(data)
	}
	if tc.want == nil {
		tc.want = map[string]string{}
	}
	if diff := cmp.Diff(tc.want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
	}
	if len(result.Places) == 0 {
		t.Errorf("%s: no place was reported", tc.reason)
	}
}

func one(content string) map[string]string { return map[string]string{"app/a.yaml": content} }

// covers: I1 (plain manifests keep comments and format)
func TestPlain(t *testing.T) {
	t.Parallel()
	pod := func(image string) string {
		return "# top\napiVersion: v1\nkind: Pod   # a pod\nmetadata: {name: p}\nspec:\n    containers:\n      - name: web\n        image: " + image + "  # keep me\n        command: [ \"a\",  'b' ]\n"
	}
	cases := map[string]setCase{
		"Plain":          {reason: "only the scalar changes", files: one(pod("nginx:1.0")), change: "nginx=:1.1", want: one(pod("nginx:1.1"))},
		"Whole":          {reason: "a whole reference replaces the repository", files: one(pod("nginx:1.0")), change: "nginx=ghcr.io/x/nginx:2", want: one(pod("ghcr.io/x/nginx:2"))},
		"Digest":         {reason: "a digest replaces the tag", files: one(pod("nginx:1.0")), change: "nginx=@" + digest, want: one(pod("nginx@" + digest))},
		"FromDigest":     {reason: "a tag replaces the digest", files: one(pod("nginx:1@" + digest)), change: "nginx=:1.1", want: one(pod("nginx:1.1"))},
		"Port":           {reason: "a port is no tag", files: one(pod("reg:5000/nginx")), change: "reg:5000/nginx=:1.1", want: one(pod("reg:5000/nginx:1.1"))},
		"Normalised":     {reason: "docker.io/library is the same", files: one(pod("nginx:1.0")), change: "docker.io/library/nginx=:1.1", want: one(pod("nginx:1.1"))},
		"Single":         {reason: "quotes stay", files: one(pod("'nginx:1.0'")), change: "nginx=:1.1", want: one(pod("'nginx:1.1'"))},
		"Double":         {reason: "quotes stay", files: one(pod(`"nginx:1.0"`)), change: "nginx=:1.1", want: one(pod(`"nginx:1.1"`))},
		"Escapes":        {reason: "what is in quotes is read as YAML reads it", files: one(pod(`"ngin\x78:1.0"`)), change: "nginx=:1.1", want: one(pod(`"nginx:1.1"`))},
		"Tagged":         {reason: "a tag before the value stays", files: one(pod("!!str nginx:1.0")), change: "nginx=:1.1", want: one(pod("!!str nginx:1.1"))},
		"Block":          {reason: "block scalars", files: one("spec:\n  containers:\n  - image: |-\n      nginx:1.0\n    name: x\n"), change: "nginx=:1.1", want: one("spec:\n  containers:\n  - image: |-\n      nginx:1.1\n    name: x\n")},
		"NextLine":       {reason: "the value may be on the next line", files: one("containers:\n- image:\n    # why\n    nginx:1.0\n"), change: "nginx=:1.1", want: one("containers:\n- image:\n    # why\n    nginx:1.1\n")},
		"CRLF":           {reason: "line ends and a byte order mark stay", files: one("\ufeff" + strings.ReplaceAll(pod("nginx:1.0"), "\n", "\r\n")), change: "nginx=:1.1", want: one("\ufeff" + strings.ReplaceAll(pod("nginx:1.1"), "\n", "\r\n"))},
		"BOM":            {reason: "a byte order mark is no column", files: one("\ufeffcontainers: [{image: nginx:1.0}]"), change: "nginx=:1.1", want: one("\ufeffcontainers: [{image: nginx:1.1}]")},
		"NoFinalNewline": {reason: "as it was", files: one("containers: [{image: nginx:1.0}]"), change: "nginx=:1.1", want: one("containers: [{image: nginx:1.1}]")},
		"Wide":           {reason: "columns are characters, not bytes", files: one("containers: [{name: \"żółć😀\", image: nginx:1.0}]"), change: "nginx=:1.1", want: one("containers: [{name: \"żółć😀\", image: nginx:1.1}]")},
		"JSON":           {reason: "JSON is flow style", files: one("{\n\t\"kind\": \"Pod\", \"spec\": {\"initContainers\": [{\"image\":\"nginx:1.0\"}]}}\n"), change: "nginx=:1.1", want: one("{\n\t\"kind\": \"Pod\", \"spec\": {\"initContainers\": [{\"image\":\"nginx:1.1\"}]}}\n")},
		"Documents":      {reason: "every document and every kind", files: one("---\n" + pod("nginx:1.0") + "---\nkind: Odd\nspec: {deep: {x: {ephemeralContainers: [{image: nginx:0.9}, {image: redis:7}]}}}\n"), change: "nginx=:1.1", want: one("---\n" + pod("nginx:1.1") + "---\nkind: Odd\nspec: {deep: {x: {ephemeralContainers: [{image: nginx:1.1}, {image: redis:7}]}}}\n")},
		"Two":            {reason: "several images in one go", files: one(pod("nginx:1.0") + "---\ncontainers: [{image: redis:7}]\n"), change: "nginx=:1.1 redis=:8", want: one(pod("nginx:1.1") + "---\ncontainers: [{image: redis:8}]\n")},
		"Alias":          {reason: "an alias changes where its anchor is", files: one("x: &i nginx:1.0\ncontainers:\n- image: *i\n- {name: b, image: *i}\n"), change: "nginx=:1.1", want: one("x: &i nginx:1.1\ncontainers:\n- image: *i\n- {name: b, image: *i}\n")},
		"Merge":          {reason: "a merged mapping changes where it is", files: one("base: &b {image: nginx:1.0}\ncontainers:\n- <<: *b\n  name: a\n"), change: "nginx=:1.1", want: one("base: &b {image: nginx:1.1}\ncontainers:\n- <<: *b\n  name: a\n")},
		"Same":           {reason: "what is there already is no edit", files: one(pod("nginx:1.1")), change: "nginx=:1.1"},
		"NotAContainer":  {reason: "an image elsewhere is not a container's", files: one("spec: {image: nginx:1.0}\ncontainers: [{image: redis:7}]\n"), change: "nginx=:1.1", problem: []string{`"nginx"`, "there are: redis:7"}},
		"Nothing":        {reason: "lists the existing images", files: one(pod("nginx:1.0")), change: "redis=:1.1", problem: []string{`no image "redis"`, "nginx:1.0"}},
		"Variable":       {reason: "variables are not in Git", files: one(pod("nginx:${tag}")), change: "nginx=:1.1", problem: []string{"source.variables"}},
		"Conflict":       {reason: "one scalar cannot be two things", files: one(pod("nginx:1.0")), change: "nginx=:1.1 library/nginx=:1.2", problem: []string{"named twice"}},
		"BadRef":         {reason: "a tag needs its colon", files: one(pod("nginx:1.0")), change: "nginx=1.1", problem: []string{":1.1"}},
		"Injection":      {reason: "only an image is written", files: one(pod("nginx:1.0")), change: "nginx=:1\"}", problem: []string{"not a tag"}},
		"Broken":         {reason: "broken YAML names its file", files: one("a: ["), change: "nginx=:1", problem: []string{"app/a.yaml"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.req.Kind, tc.req.Path = fleet.SourcePlain, "app"
			tc.run(t)
		})
	}
}

// Aliases let a small file expand to very many nodes, and lookups of every key among all others are slow even
// without them. The server must neither do that work nor keep its result.
func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	many := func(s string, n int) string { return strings.Repeat(s, n) }
	wide := "m: &m {" + many("k: v, ", 20_000) + "}\n"
	long := many("v", 1<<18)
	merges := "m0: &m0 {x: y}\n"
	for i := range 10 {
		merges += fmt.Sprintf("m%d: &m%d {<<: [%s]}\n", i+1, i+1, many(fmt.Sprintf("*m%d, ", i), 10))
	}
	small := map[string]string{"app/p.yaml": "- {op: replace, path: /a/image, value: nginx:1}\n"}
	cases := map[string]struct {
		reason string
		kind   fleet.SourceKind
		files  map[string]string
		file   string
	}{
		"Merges":          {"ten to the power of ten paths lead to the image", fleet.SourcePlain, one(merges + "containers: [*m10]\n"), "app/a.yaml"},
		"MergesOfObject":  {"and to the name of the object", fleet.SourcePlain, one(merges + "<<: *m10\n"), "app/a.yaml"},
		"MergesOfPatch":   {"and to the value of a patch", fleet.SourceKustomize, kusto(merges + "patches: [*m10]\n"), "app/kustomization.yaml"},
		"EmptyMerges":     {"a node without keys needs a step too", fleet.SourcePlain, one("m0: &m0 {}\nm1: &m1 {<<: [" + many("*m0,", 10_000) + "]}\ncontainers: [" + many("*m1,", 20_000) + "]\n"), "app/a.yaml"},
		"Containers":      {"every container is the same large mapping", fleet.SourcePlain, one(wide + "containers: [" + many("*m,", 20_000) + "]\n"), "app/a.yaml"},
		"Objects":         {"so is every object", fleet.SourcePlain, one(wide + "items: [" + many("*m,", 20_000) + "]\n"), "app/a.yaml"},
		"Entries":         {"so is every entry of an overlay", fleet.SourceKustomize, kusto(wide + "images: [" + many("*m,", 20_000) + "]\n"), "app/kustomization.yaml"},
		"Operations":      {"so is every operation of a patch", fleet.SourceKustomize, map[string]string{"app/kustomization.yaml": "resources: [p.yaml]\n", "app/p.yaml": "- &m {" + many("k: v, ", 20_000) + "}\n" + many("- *m\n", 20_000)}, "app/p.yaml"},
		"Patches":         {"every patch is parsed", fleet.SourceKustomize, kusto("x: &p {patch: 'a: " + long + "'}\npatches: [" + many("*p,", 20_000) + "]\n"), "app/kustomization.yaml"},
		"Resources":       {"every mention of a file is read", fleet.SourceKustomize, map[string]string{"app/kustomization.yaml": "resources: [" + many("p.yaml,", 20_000) + "]\n", "app/p.yaml": small["app/p.yaml"]}, "app/p.yaml"},
		"LongPaths":       {"the path is kept for each image", fleet.SourcePlain, one("? " + long + "\n: {containers: [" + many("{image: a},", 20_000) + "]}\n"), "app/a.yaml"},
		"LongValuesPaths": {"in values too", fleet.SourceHelm, map[string]string{"app/values.yaml": "? " + long + "\n: [" + many("{image: a},", 20_000) + "]\n"}, "app/values.yaml"},
		"LongImages":      {"an image is put together from its parts", fleet.SourceHelm, map[string]string{"app/values.yaml": "x: &r " + long + "\na: [" + many("{image: {repository: *r, tag: a}},", 10_000) + "]\n"}, "app/values.yaml"},
		"Tags":            {"every image looks for its tag among all keys", fleet.SourceHelm, map[string]string{"app/values.yaml": many("aImage: a\n", 60_000)}, "app/values.yaml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			done := make(chan error, 1)
			go func() {
				_, err := imageset.List(t.Context(), memtree.New(tc.files), imageset.Request{Kind: tc.kind, Path: "app"})
				done <- err
			}()
			select {
			case err := <-done:
				var mistake *imageset.Error
				if !errors.As(err, &mistake) || mistake.File != tc.file || !strings.Contains(mistake.Problem, "repeats too much") {
					t.Errorf("%s: got %.300v, want that %s repeats too much", tc.reason, err, tc.file)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: the search has not ended after a minute", tc.reason)
			}
		})
	}
}

// A large file without repetition is searched completely.
func TestLargeFilesAreSearched(t *testing.T) {
	t.Parallel()
	const n = 5_000
	line := `{"kind":"List","items":[` + strings.Repeat(`{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"b","image":"nginx:1"}]}},`, n) + `{}]}`
	for name, content := range map[string]string{"one line": line, "lines": strings.ReplaceAll(line, "},{", "},\n{")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := imageset.Request{Kind: fleet.SourcePlain, Path: "app", Changes: []imageset.Change{{Name: "nginx", Ref: ":2"}}}
			result, err := imageset.Set(t.Context(), memtree.New(one(content)), req)
			if err != nil {
				t.Fatalf("setting: %v", err)
			}
			if got := strings.Count(string(result.Edits["app/a.yaml"]), "nginx:2"); got != n {
				t.Errorf("got %d images, want %d", got, n)
			}
		})
	}
}

// One request may change every image of a large kustomization.
func TestManyImagesAreSetAtOnce(t *testing.T) {
	t.Parallel()
	var overlay strings.Builder
	overlay.WriteString("images:\n")
	req := imageset.Request{Kind: fleet.SourceKustomize, Path: "app"}
	for i := range 2 * imageset.MaxChanges {
		name := fmt.Sprintf("registry.example.com/team/product/service-%03d", i)
		fmt.Fprintf(&overlay, "- {name: %s, newTag: v1}\n", name)
		if i < imageset.MaxChanges {
			req.Changes = append(req.Changes, imageset.Change{Name: name, Ref: ":v2"})
		}
	}
	result, err := imageset.Set(t.Context(), memtree.New(kusto(overlay.String())), req)
	if err != nil {
		t.Fatalf("setting: %v", err)
	}
	if got := strings.Count(string(result.Edits["app/kustomization.yaml"]), "v2"); got != imageset.MaxChanges {
		t.Errorf("got %d images, want %d", got, imageset.MaxChanges)
	}
}

func kusto(overlay string) map[string]string {
	return map[string]string{"app/kustomization.yaml": overlay}
}

// covers: I1 (Kustomize)
func TestKustomize(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		"base/kustomization.yaml": "resources: [d.yaml]\nimages:\n- {name: placeholder, newName: ghcr.io/x/web, newTag: v1}\n",
		"base/d.yaml":             "kind: Deployment\nspec: {template: {spec: {containers: [{image: placeholder}, {image: nginx:1.0}, {image: redis:7}]}}}\n",
	}
	head := "# overlay\nresources:\n  - ../base # up\n"
	cases := map[string]setCase{
		"Tag":          {reason: "an entry's tag", files: kusto(head + "images:\n  - name: nginx\n    newTag: \"1.0\" # pinned\n"), change: "nginx=:1.10", want: kusto(head + "images:\n  - name: nginx\n    newTag: \"1.10\" # pinned\n")},
		"Number":       {reason: "a tag that reads as a number is quoted", files: kusto(head + "images:\n- newTag: v1\n  name: nginx\n"), change: "nginx=:1.10", want: kusto(head + "images:\n- newTag: \"1.10\"\n  name: nginx\n")},
		"DigestForTag": {reason: "the digest replaces the tag", files: kusto(head + "images:\n- newTag: v1\n  name: nginx\n"), change: "nginx=@" + digest, want: kusto(head + "images:\n- digest: " + digest + "\n  name: nginx\n")},
		"Both":         {reason: "one of both is removed, with its line", files: kusto(head + "images:\n- name: nginx\n  newTag: v1\n  digest: " + digest + "\n"), change: "nginx=:v2", want: kusto(head + "images:\n- name: nginx\n  newTag: v2\n")},
		"BothFirst":    {reason: "the first key is on the line of the dash", files: kusto(head + "images:\n- digest: " + digest + "\n  newTag: v1\n  name: nginx"), change: "nginx=:v2", want: kusto(head + "images:\n- name: nginx\n  newTag: v2")},
		"Rename":       {reason: "another repository adds newName", files: kusto(head + "images:\n- name: nginx\n  newTag: v1\n"), change: "nginx=ghcr.io/y/nginx:v2", want: kusto(head + "images:\n- name: nginx\n  newTag: v2\n  newName: ghcr.io/y/nginx\n")},
		"ByNewName":    {reason: "the new name refers to it too", files: kusto(head + "images:\n- name: a\n  newName: ghcr.io/y/a\n  newTag: v1\n"), change: "ghcr.io/y/a=:v2", want: kusto(head + "images:\n- name: a\n  newName: ghcr.io/y/a\n  newTag: v2\n")},
		"Flow":         {reason: "flow style", files: kusto(head + "images: [{name: nginx, newTag: v1}]\n"), change: "nginx=y/nginx:v2@" + digest, want: kusto(head + "images: [{name: nginx, newTag: v2, newName: y/nginx, digest: " + digest + "}]\n")},
		"Added":        {reason: "a base's image gets an entry", files: kusto(head), change: "nginx=:v2", want: kusto(head + "images:\n- name: nginx\n  newTag: v2\n")},
		"AddedTwice":   {reason: "two get two", files: kusto(strings.TrimSuffix(head, "\n")), change: "nginx=:v2 redis=:8.0", want: kusto(head + "images:\n- name: nginx\n  newTag: v2\n- name: redis\n  newTag: \"8.0\"")},
		"AddedBehind":  {reason: "after the last entry, with the same indentation", files: kusto(head + "images:\n  -   name: x\n      newTag: v1 # c\n\nnamePrefix: a-\n"), change: "nginx=:v2 redis=:v8", want: kusto(head + "images:\n  -   name: x\n      newTag: v1 # c\n  -   name: nginx\n      newTag: v2\n  -   name: redis\n      newTag: v8\n\nnamePrefix: a-\n")},
		"AddedEmpty":   {reason: "an empty list", files: kusto(head + "images: []\n"), change: "nginx=:v2", want: kusto(head + "images: [{name: nginx, newTag: v2}]\n")},
		"AddedNull":    {reason: "a key without a value", files: kusto(head + "images:\nnamePrefix: a-\n"), change: "nginx=:v2 redis=:v8", want: kusto(head + "images: [{name: nginx, newTag: v2}, {name: redis, newTag: v8}]\nnamePrefix: a-\n")},
		"AddedFlow":    {reason: "after the last entry of a flow list", files: kusto(head + "images: [ {name: x, newTag: v1} ]\n"), change: "nginx=:v2", want: kusto(head + "images: [ {name: x, newTag: v1}, {name: nginx, newTag: v2} ]\n")},
		"JSON":         {reason: "a kustomization may be JSON", files: kusto(`{"resources": ["../base"]}`), change: "nginx=:v2", want: kusto(`{"resources": ["../base"], "images": [{"name": "nginx", "newTag": "v2"}]}`)},
		"BaseRenames":  {reason: "the overlay sees the result of the base", files: kusto(head), change: "ghcr.io/x/web=:v2", want: kusto(head + "images:\n- name: ghcr.io/x/web\n  newTag: v2\n")},
		"CRLF":         {reason: "line ends", files: kusto(strings.ReplaceAll(head, "\n", "\r\n")), change: "nginx=:v2", want: kusto(strings.ReplaceAll(head+"images:\n- name: nginx\n  newTag: v2\n", "\n", "\r\n"))},
		"Patch":        {reason: "a patch may add an image", files: kusto(head + "patches:\n- patch: |-\n    spec: {template: {spec: {containers: [{name: s, image: side:1}]}}}\n"), change: "side=:2", want: kusto(head + "patches:\n- patch: |-\n    spec: {template: {spec: {containers: [{name: s, image: side:1}]}}}\nimages:\n- name: side\n  newTag: \"2\"\n")},
		"End":          {reason: "a change that would not parse as intended is refused", files: kusto("resources: [../base]\n...\n"), change: "nginx=:v2", problem: []string{"app/kustomization.yaml", "cannot be changed safely"}},
		"Hidden":       {reason: "the name before the base's own is not seen", files: kusto(head), change: "placeholder=:v2", problem: []string{`"placeholder"`, "ghcr.io/x/web:v1", "nginx:1.0"}},
		"None":         {reason: "no kustomization", files: map[string]string{"app/x.yaml": ""}, change: "nginx=:1", problem: []string{"kustomization.yaml"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for path, content := range base {
				tc.files[path] = content
			}
			tc.req.Kind, tc.req.Path = fleet.SourceKustomize, "app"
			tc.run(t)
		})
	}
}
