package resourcefile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
)

type spec struct {
	Path string `json:"path,omitempty"`
}

func TestWhatIsEncodedIsParsedAgain(t *testing.T) {
	t.Parallel()
	one, err := resourcefile.New("Deployment", resourcefile.Metadata{Name: "web", Tenant: "shop", Labels: map[string]string{"a": "b"}}, spec{"deploy"})
	if err != nil {
		t.Fatal(err)
	}
	two, err := resourcefile.New("Repository", resourcefile.Metadata{Name: "https://git.example.com/web"}, spec{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := resourcefile.Encode(one, two)
	if err != nil {
		t.Fatal(err)
	}
	got, err := resourcefile.Parse("file", append([]byte("# a comment\n---\n"), text...))
	if err != nil {
		t.Fatal(err)
	}
	one.Source, two.Source = "file, document 2", "file, document 3"
	if diff := cmp.Diff([]resourcefile.Document{one, two}, got); diff != "" {
		t.Error(diff)
	}
	if s, err := resourcefile.Spec[spec](got[0]); err != nil || s.Path != "deploy" {
		t.Errorf("the spec is %+v, %v", s, err)
	}
}

func TestMistakesNameTheirPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"kind: Deployment":                             "file: metadata.name is missing",
		"metadata: {name: x}":                          "file: kind is missing",
		"apiVersion: apps/v1\nkind: Deployment":        `apiVersion is "apps/v1"`,
		"kind: A\nmetadata: {name: x}\nspce: {}":       `unknown field "spce"`,
		"kind: A\nmetadata: {name: x}\n---\nkind: [a]": "file, document 2",
		"kind: A\nkind: B\nmetadata: {name: x}":        `"kind" already set`,
	} {
		if _, err := resourcefile.Parse("file", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	docs, err := resourcefile.Parse("file", []byte("kind: A\nmetadata: {name: x}\nspec: {paht: y}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resourcefile.Spec[spec](docs[0]); err == nil || !strings.Contains(err.Error(), `file: spec of a/x: `) || !strings.Contains(err.Error(), "paht") {
		t.Errorf("an unknown field of the spec: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("kind: A\nmetadata: {name: x}\n---\n# nothing\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = resourcefile.Parse("file", data) })
}
