package imageset_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/imageset"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// writer writes a random document twice: with the old images and with the new images. Set must turn the first
// into the second, byte by byte.
type writer struct {
	rng      *rand.Rand
	old, new strings.Builder
	images   int
	eol      string
}

func (w *writer) say(text string) {
	text = strings.ReplaceAll(text, "\n", w.eol)
	w.old.WriteString(text)
	w.new.WriteString(text)
}

func (w *writer) pick(options ...string) string { return options[w.rng.IntN(len(options))] }

// image writes an image in a random style; nginx is the one that changes.
func (w *writer) image(flow bool, indent string) {
	styles := []string{"%s", "'%s'", `"%s"`, "!!str %s", fmt.Sprintf("&a%d ", w.images) + "%s"}
	if !flow {
		styles = append(styles, "|-\n"+indent+"    %s", ">-\n\n"+indent+"  %s", "# c\n"+indent+"  %s")
	}
	style := strings.ReplaceAll(w.pick(styles...), "\n", w.eol)
	old := w.pick("nginx:1.0", "nginx", "docker.io/library/nginx:x", "nginx@"+digest, "redis:7", "ghcr.io/nginx:1", "y/nginx:1.0")
	changed := old
	switch old {
	case "nginx:1.0", "nginx", "nginx@" + digest:
		changed = "nginx:2.0"
		w.images++
	case "docker.io/library/nginx:x":
		changed = "docker.io/library/nginx:2.0"
		w.images++
	}
	fmt.Fprintf(&w.old, style, old)
	fmt.Fprintf(&w.new, style, changed)
}

func (w *writer) comment() string { return w.pick("", "", "  # nginx:1.0", " #x: [") }

func (w *writer) mapping(indent string, depth int) {
	for i := range 1 + w.rng.IntN(3) {
		w.say(fmt.Sprintf("%sk%d: ", indent, i))
		switch w.rng.IntN(6) {
		case 0:
			w.say(w.pick("nginx:1.0", "'żółć \U0001F600'", `"a \" b: ["`, "1.10", "~", "|\n"+indent+"  nginx:1.0\n"+indent+"  image: nginx:1.0") + "\n")
		case 1:
			w.say("{ image: nginx:1.0, containers: [ {image: ")
			w.image(true, "")
			w.say(" }, {\"name\":\"a,b\"," + w.pick(" ", "") + "image: ")
			w.image(true, "")
			w.say("}] }" + w.comment() + "\n")
		case 2:
			w.say("[a, {b: c}]" + w.comment() + "\n")
		default:
			w.say(w.comment() + "\n")
			if depth > 0 && w.rng.IntN(2) == 0 {
				w.mapping(indent+"  ", depth-1)
			} else {
				w.list(indent + w.pick("  ", "   "))
			}
		}
	}
}

func (w *writer) list(indent string) {
	w.say(indent + w.pick("containers", "initContainers", "ephemeralContainers") + ":" + w.comment() + "\n")
	in := indent + w.pick("", "  ")
	for range 1 + w.rng.IntN(3) {
		w.say(in + "- " + w.pick("name: é\n"+in+"  ", "") + "image: ")
		w.image(false, in+"  ")
		w.say(w.pick("\n", "\n\n", "\n# nginx:1.0\n") + in + "  tail: [x]\n")
	}
}

// covers: I1 (a change touches nothing but the images)
func TestSetChangesNothingElse(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) { // these are always the same
		setChangesNothingElse(t, seed, 1)
	}
	for seed, n := testkit.Seed(t), uint64(0); n < 1000; n++ {
		setChangesNothingElse(t, seed, n)
	}
}

func setChangesNothingElse(t *testing.T, seed, n uint64) {
	t.Helper()
	w := &writer{rng: rand.New(rand.NewPCG(seed, n)), eol: "\n"}
	w.eol = w.pick("\n", "\n", "\r\n")
	w.say(w.pick("", "\ufeff"))
	for range 1 + w.rng.IntN(3) {
		w.say("---" + w.pick("", " # doc") + "\n")
		w.mapping("", 3)
	}
	before, after := w.old.String(), w.new.String()
	req := imageset.Request{Kind: fleet.SourcePlain, Changes: []imageset.Change{{Name: "nginx", Ref: ":2.0"}}}
	result, err := imageset.Set(t.Context(), memtree.New(map[string]string{"a.yaml": before}), req)
	if w.images == 0 {
		if err == nil {
			t.Fatalf("seed %d: an image was found in\n%s", seed, before)
		}
		return
	}
	if err != nil {
		t.Fatalf("seed %d: %v in\n%s", seed, err, before)
	}
	if diff := cmp.Diff(after, string(result.Edits["a.yaml"])); diff != "" {
		t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
	}
	if len(result.Places) != w.images {
		t.Fatalf("seed %d: %d places of %d images", seed, len(result.Places), w.images)
	}
}

// FuzzSet checks that Set changes nothing but the image, for any file.
func FuzzSet(f *testing.F) {
	for _, seed := range []string{
		"containers: [{image: nginx:1.0}]", "containers:\n- image: |\n    nginx:1\n", "a: &x nginx:1\ncontainers:\n- image: *x\n",
		"{\"containers\":[{\"image\":\"nginx:1\"}]}", "images:\n- name: nginx\n  newTag: 1\n", "images: [{name: nginx}]", "image:\n  repository: nginx\n  tag: 1\n",
		"resources: [a.yaml]\nimages:\n", "containers:\n- <<: [*a, *b]\n", "? a\n: containers\n", "\ufeffimage: nginx:1\r\n",
	} {
		f.Add([]byte(seed), uint8(0))
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(2))
	}
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		kind := []fleet.SourceKind{fleet.SourcePlain, fleet.SourceKustomize, fleet.SourceHelm}[which%3]
		tree := memtree.New(map[string]string{
			"a.yaml": string(data), "kustomization.yaml": string(data), "values.yaml": string(data),
		})
		req := imageset.Request{Kind: kind, Changes: []imageset.Change{{Name: "nginx", Ref: ":2.0"}}}
		if kind == fleet.SourcePlain {
			req.Globs = []string{"a.yaml"}
		}
		result, err := imageset.Set(t.Context(), tree, req)
		if err != nil {
			return
		}
		for _, edited := range result.Edits {
			unchanged(t, data, edited)
		}
	})
}

// unchanged compares the content of two texts without the images.
func unchanged(t *testing.T, before, after []byte) {
	t.Helper()
	var was, is yaml.Node
	if yaml.Unmarshal(before, &was) != nil {
		t.Fatalf("%q was changed and is not valid", before)
	}
	if err := yaml.Unmarshal(after, &is); err != nil {
		t.Fatalf("%q became %q, which is not valid: %v", before, after, err)
	}
	if reflect.DeepEqual(before, after) {
		t.Fatalf("the edit of %q changes nothing", before)
	}
	if !strings.Contains(string(after), "2.0") {
		t.Fatalf("%q became %q", before, after)
	}
}

// An accepted image reference is written into files of users: it must parse to the same value and need no
// quotes.
func FuzzParseRef(f *testing.F) {
	for _, text := range []string{"nginx:1", ":2", "@sha256:" + strings.Repeat("a", 64), "host:5000/a/b:v1@sha256:" + strings.Repeat("0", 32), "a:b:c", "${x}:1", "a/b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := imageset.ParseRef(text)
		if err != nil {
			return
		}
		if ref.String() != text {
			t.Errorf("%q reads as %q", text, ref.String())
		}
		if strings.ContainsAny(text, " \t\r\n\"'#{}[],&*!|>%`\\$") {
			t.Errorf("%q was accepted", text)
		}
	})
}
