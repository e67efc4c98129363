package child

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

func TestFramesComeBack(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	large := bytes.Repeat([]byte("x"), 3<<20)
	for _, payload := range [][]byte{nil, []byte("a"), large} {
		if err := writeFrame(&buf, frameReply, payload); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range [][]byte{{}, []byte("a"), large} {
		kind, got, err := readFrame(&buf, 4<<20)
		if err != nil || kind != frameReply || !bytes.Equal(got, want) {
			t.Fatalf("got %q, %d bytes, %v", kind, len(got), err)
		}
	}
	if _, _, err := readFrame(&buf, 1); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v", err)
	}
}

func TestBadFramesAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want func(error) bool
	}{
		"no type":          {"\x00\x00\x00\x00r", func(err error) bool { return errors.Is(err, errFrame) }},
		"larger than most": {"\x00\x00\x00\x10r", func(err error) bool { var big *frameTooBig; return errors.As(err, &big) && big.size == 15 }},
		"cut":              {"\x00\x00\x00\x05rab", func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"promised":         {"\xff\xff\xff\xffr", func(err error) bool { var big *frameTooBig; return errors.As(err, &big) }},
	}
	for reason, tt := range tests {
		if _, _, err := readFrame(strings.NewReader(tt.text), 10); !tt.want(err) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

// Stat, read and list are all that there is.
func TestAChildMayAskForThreeThings(t *testing.T) {
	t.Parallel()
	var known []byte
	for op := range 256 {
		if _, _, err := parseQuery([]byte{byte(op), 'x'}); err == nil {
			known = append(known, byte(op))
		}
	}
	if string(known) != "lrs" {
		t.Errorf("a child may ask for %q", known)
	}
}

func TestRepliesComeBack(t *testing.T) {
	t.Parallel()
	nodes := []treefs.Node{{Name: "a", Kind: treefs.Dir, Real: "x/a"}, {Name: "b\xff"}}
	var list []byte
	for _, n := range nodes {
		list = appendNode(list, n)
	}
	got, err := cutNodes(list)
	if diff := cmp.Diff(nodes, got); diff != "" || err != nil {
		t.Errorf("nodes, %v (-want +got):\n%s", err, diff)
	}
	_, err = cutReply(replyError(&treefs.Error{Path: "a", Problem: "b"}), "x")
	var mistake *treefs.Error
	if !errors.As(err, &mistake) || mistake.Path != "a" || mistake.Problem != "b" {
		t.Errorf("a user error comes back as %v", err)
	}
	if _, err := cutReply(replyError(fs.ErrNotExist), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file comes back as %v", err)
	}
	if _, err := cutReply(replyError(errors.New("secret of the parent")), "x"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a fault comes back as %v", err)
	}
}

// Waiting builds are admitted in the order of arrival, skipping owners at their limit.
func TestAdmission(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(3, 2)
		var order []string
		enter := func(owner string) {
			go func() {
				if a.enter(t.Context(), owner) == nil {
					order = append(order, owner)
				}
			}()
			synctest.Wait()
		}
		for _, owner := range []string{"a", "a", "a", "b", "b"} {
			enter(owner)
		}
		if diff := cmp.Diff([]string{"a", "a", "b"}, order); diff != "" {
			t.Errorf("admitted at first (-want +got):\n%s", diff)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.enter(canceled, "c"); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled wait returned %v", err)
		}
		a.leave("b")
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "a", "b", "b"}, order); diff != "" {
			t.Errorf("after b has left (-want +got):\n%s", diff)
		}
		a.leave("a")
		synctest.Wait()
		for range 2 {
			a.leave("a")
		}
		a.leave("b")
		if a.running != 0 || len(a.owners) != 0 || len(a.waiting) != 0 {
			t.Errorf("left are %+v", a)
		}
	})
}

func TestCleanText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reason, in, want string }{
		{"line ends stay", "a\nb", "a\nb"},
		{"escapes go", "a\x1b[31mb\x00", "a[31mb"},
		{"bytes that are no text", "a\xffb", "a�b"},
		{"a rune is not cut in two", "123456789ä", "1234567…"},
	} {
		if got := clean(tt.in, 10); got != tt.want {
			t.Errorf("%s: %q becomes %q, want %q", tt.reason, tt.in, got, tt.want)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x03rab"))
	f.Add([]byte("\xff\xff\xff\xffr"))
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, payload, err := readFrame(bytes.NewReader(data), 1<<16)
		if err != nil {
			return
		}
		var back bytes.Buffer
		if err := writeFrame(&back, kind, payload); err != nil || !bytes.HasPrefix(data, back.Bytes()) {
			t.Errorf("%q is written as %q, %v", data, back.Bytes(), err)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("k\x01a\x01b\x00"))
	f.Add([]byte("m\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		body, err := cutReply(data, "x")
		if err != nil {
			return
		}
		nodes, err := cutNodes(body)
		if err == nil && len(nodes) > len(body) {
			t.Errorf("%d nodes in %d bytes", len(nodes), len(body))
		}
		_, _, _ = parseQuery(data)
	})
}

// Children send objects in canonical form; any other form is parsed completely.
func TestObjectsAreReadTheSameBothWays(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"apiVersion":"v1","data":{"a":"<&>\u2028ä"},"kind":"ConfigMap","metadata":{"name":"x"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"n":{"big":12345678901234567890,"float":1.5,"int":1,"zero":0}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"n":{"a":1.0,"b":-0.0,"c":1e3}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","namespace":"gone"}}`,
		`{"apiVersion":"v1","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}],"kind":"List"}`,
		`{"apiVersion":"v1","kind":"ConfigMap","kind":"Secret","metadata":{"name":"x"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`, `[1]`, `{`, `null`,
	} {
		got, err := parseObject(append([]byte("\x01f"), text...))
		want, wantErr := manifest.Parse("f", []byte(text))
		if (err == nil) != (wantErr == nil) || !cmp.Equal(want, got) {
			t.Errorf("%s: got %+v, %v, want %+v, %v", text, got, err, want, wantErr)
		}
	}
}

func BenchmarkObject(b *testing.B) {
	objects, err := manifest.Parse("f", []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web","chart":"web","release":"web"},"name":"web-1"},`+
		`"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"nginx:1.29","name":"web"}]}}}}`))
	if err != nil {
		b.Fatal(err)
	}
	payload, err := objectFrame(objects[0])
	if err != nil {
		b.Fatal(err)
	}
	b.Run("canonical", func(b *testing.B) {
		for b.Loop() {
			if _, err := parseObject(payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parsed", func(b *testing.B) {
		for b.Loop() {
			if _, err := manifest.Parse("f", payload[2:]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func FuzzObject(f *testing.F) {
	f.Add([]byte("\x04file{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}"))
	f.Add([]byte("\x00[1,2]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := parseObject(data)
		if err != nil {
			var file *manifest.Error
			if !errors.Is(err, errFrame) && !errors.As(err, &file) {
				t.Errorf("%q gives %v", data, err)
			}
			return
		}
		for _, o := range objects {
			payload, err := objectFrame(o)
			if err != nil {
				t.Fatal(err)
			}
			again, err := parseObject(payload)
			if err != nil || len(again) != 1 || again[0].Hash() != o.Hash() {
				t.Errorf("%s comes back as %+v, %v", o.Ref, again, err)
			}
		}
	})
}
