package manifest_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

func parse(t testing.TB, source, text string) []manifest.Object {
	t.Helper()
	objects, err := manifest.Parse(source, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func object(t testing.TB, source, apiVersion, kind, namespace, name string) manifest.Object {
	t.Helper()
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %q, namespace: %q}\n", apiVersion, kind, name, namespace)
	return parse(t, source, text)[0]
}

// covers: G11
func TestDuplicatesNameBothFiles(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		a, b   manifest.Object
		want   string // "" when both may be
	}{
		{"the same", object(t, "a.yaml", "v1", "Secret", "n", "x"), object(t, "b.yaml", "v1", "Secret", "n", "x"), "Secret n/x is defined twice: in a.yaml and in b.yaml"},
		{"no namespace is the default one", object(t, "a.yaml", "v1", "Secret", "", "x"), object(t, "b.yaml", "v1", "Secret", "def", "x"), "Secret def/x is defined twice: in a.yaml and in b.yaml"},
		{"versions do not distinguish objects", object(t, "a.yaml", "apps/v1", "Deployment", "n", "x"), object(t, "b.yaml", "apps/v1beta1", "Deployment", "n", "x"), "Deployment.apps n/x is defined twice: in a.yaml and in b.yaml"},
		{"cluster-scoped kinds have no namespace", object(t, "a.yaml", "v1", "Namespace", "", "x"), object(t, "b.yaml", "v1", "Namespace", "def", "x"), "Namespace x is defined twice: in a.yaml and in b.yaml"},
		{"unknown kinds count as namespaced", object(t, "a.yaml", "e.com/v1", "Foo", "", "x"), object(t, "b.yaml", "e.com/v1", "Foo", "def", "x"), "Foo.e.com def/x is defined twice: in a.yaml and in b.yaml"},
		{"another namespace", object(t, "a.yaml", "v1", "Secret", "n", "x"), object(t, "b.yaml", "v1", "Secret", "", "x"), ""},
		{"another group", object(t, "a.yaml", "v1", "Event", "n", "x"), object(t, "b.yaml", "events.k8s.io/v1", "Event", "n", "x"), ""},
		{"another kind", object(t, "a.yaml", "v1", "Secret", "n", "x"), object(t, "b.yaml", "v1", "ConfigMap", "n", "x"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			set, err := manifest.NewSet([]manifest.Object{tt.a, tt.b}, "def")
			if tt.want == "" {
				if err != nil || set.Len() != 2 {
					t.Errorf("got %v", err)
				}
				return
			}
			var duplicate *manifest.DuplicateError
			if !errors.As(err, &duplicate) || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestSetIsSortedAndFound(t *testing.T) {
	t.Parallel()
	set, err := manifest.NewSet([]manifest.Object{
		object(t, "a", "apps/v1", "Deployment", "n", "x"), object(t, "a", "v1", "Secret", "n", "x"),
		object(t, "a", "v1", "Secret", "", "x"), object(t, "a", "v1", "Namespace", "", "n"),
	}, "def")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range set.Objects() {
		got = append(got, o.Ref.String())
	}
	if diff := cmp.Diff([]string{"Namespace n", "Secret x", "Secret n/x", "Deployment.apps n/x"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for _, namespace := range []string{"", "def"} {
		if o, ok := set.Get(ref("", "Secret", namespace, "x")); !ok || o.Ref.Namespace != "" {
			t.Errorf("in %q: found %v, %t", namespace, o.Ref, ok)
		}
	}
	if _, ok := set.Get(ref("", "Secret", "other", "x")); ok {
		t.Error("found a cluster-scoped object in a namespace")
	}
}

func TestDigestDependsOnContentAlone(t *testing.T) {
	t.Parallel()
	one := parse(t, "a.yaml", "apiVersion: v1\nkind: A\nmetadata: {name: a}\nx: '<&>'\nz: 1\n---\napiVersion: v1\nkind: B\nmetadata: {name: b}\n")
	two := parse(t, "other.json", `{"kind":"B","apiVersion":"v1","metadata":{"name":"b"}}{"z":1.0,"x":"<&>","metadata":{"name":"a"},"kind":"A","apiVersion":"v1"}`)
	first, err := manifest.NewSet(one, "n")
	if err != nil {
		t.Fatal(err)
	}
	second, err := manifest.NewSet(two, "m")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"x":"<&>","z":1}` + "\n" + `{"apiVersion":"v1","kind":"B","metadata":{"name":"b"}}` + "\n"
	for _, set := range []*manifest.Set{first, second} {
		if got := string(set.Encode()); got != want {
			t.Errorf("got %s", got)
		}
	}
	if first.Digest() != second.Digest() || first.Objects()[0].Hash() != second.Objects()[0].Hash() {
		t.Error("equal sets have different digests or hashes")
	}
	if first.Objects()[0].Hash() == first.Objects()[1].Hash() {
		t.Error("different objects have one hash")
	}
	changed := first.Objects()[0].Unstructured()
	changed.SetName("changed")
	if first.Digest() != second.Digest() {
		t.Error("changing a copy changed the set")
	}
}

func TestUnpackRefusesWhatWasNotPacked(t *testing.T) {
	t.Parallel()
	set, err := manifest.NewSet([]manifest.Object{object(t, "a", "v1", "Secret", "", "x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	digest, packed, size := set.Pack()
	if again, err := manifest.Unpack(digest, packed, size); err != nil || again.Digest() != digest {
		t.Fatalf("unpacking failed: %v", err)
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	bomb := enc.EncodeAll(make([]byte, 64<<20), nil)
	tests := map[string]struct {
		digest string
		packed []byte
		limit  int64
		want   error
	}{
		"another digest":  {"sha256:" + strings.Repeat("0", 64), packed, size, manifest.ErrCorrupt},
		"cut off":         {digest, packed[:len(packed)-3], size, manifest.ErrCorrupt},
		"larger":          {digest, packed, size - 1, manifest.ErrTooLarge},
		"a bomb":          {digest, bomb, 1 << 20, manifest.ErrTooLarge},
		"not zstd at all": {digest, []byte("hello"), 1 << 20, manifest.ErrCorrupt},
	}
	for reason, tt := range tests {
		if _, err := manifest.Unpack(tt.digest, tt.packed, tt.limit); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", reason, err, tt.want)
		}
	}
	empty, err := manifest.NewSet(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	digest, packed, size = empty.Pack()
	if again, err := manifest.Unpack(digest, packed, size+1); err != nil || again.Len() != 0 {
		t.Errorf("an empty set: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}` + "\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a","namespace":"x"},"n":1e21}` + "\n" + `{"apiVersion":"v1","kind":"B","metadata":{"name":"b"}}` + "\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","namespace":"x"}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := manifest.Decode(data)
		if err != nil {
			if !errors.Is(err, manifest.ErrCorrupt) {
				t.Fatalf("not ErrCorrupt: %v", err)
			}
			return
		}
		if got := set.Encode(); !bytes.Equal(got, data) {
			t.Errorf("decoded %q, which encodes to %q", data, got)
		}
	})
}

// covers: A3 (order by kind)
func TestRanksFollowWhatNeedsWhat(t *testing.T) {
	t.Parallel()
	refs := []fleet.ObjectRef{
		ref("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "", "a"),
		ref("example.com", "Widget", "n", "a"),
		ref("apps", "Deployment", "n", "a"),
		ref("", "Secret", "n", "a"),
		ref("rbac.authorization.k8s.io", "RoleBinding", "n", "a"),
		ref("", "ServiceAccount", "n", "a"),
		ref("apiextensions.k8s.io", "CustomResourceDefinition", "", "widgets.example.com"),
		ref("", "Namespace", "", "n"),
		ref("gateway.networking.k8s.io", "HTTPRoute", "n", "a"),
		ref("networking.k8s.io", "Ingress", "n", "a"),
	}
	got := make([][]string, 6)
	for _, r := range refs {
		got[manifest.RankOf(r)] = append(got[manifest.RankOf(r)], r.Kind)
	}
	want := [][]string{
		{"CustomResourceDefinition", "Namespace"},
		{"RoleBinding", "ServiceAccount"},
		{"Secret"},
		{"Deployment", "Ingress"},
		{"Widget", "HTTPRoute"},
		{"ValidatingWebhookConfiguration"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	type scope struct{ cluster, known bool }
	for r, want := range map[fleet.ObjectRef]scope{
		ref("", "Namespace", "", "a"):                                    {true, true},
		ref("", "Pod", "n", "a"):                                         {false, true},
		ref("rbac.authorization.k8s.io", "ClusterRole", "", "a"):         {true, true},
		ref("example.com", "Namespace", "", "a"):                         {false, false},
		ref("apiextensions.k8s.io", "CustomResourceDefinition", "", "a"): {true, true},
	} {
		cluster, known := manifest.IsClusterScoped(r)
		if (scope{cluster, known}) != want {
			t.Errorf("%s: got %t, %t, want %v", r, cluster, known, want)
		}
	}
	protected := slices.DeleteFunc([]fleet.ObjectRef{
		ref("", "Namespace", "", "a"), ref("", "PersistentVolumeClaim", "n", "a"),
		ref("apiextensions.k8s.io", "CustomResourceDefinition", "", "a"), ref("", "Secret", "n", "a"), ref("example.com", "Namespace", "", "a"),
	}, manifest.IsProtected)
	if len(protected) != 2 {
		t.Errorf("not protected are %v", protected)
	}
}
