package manifest_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// kubectl reads a file as the library of the API server does.
func readAsKubectl(data []byte) ([]map[string]any, error) {
	var out []map[string]any
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var content map[string]any
		if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if len(content) > 0 {
			out = append(out, content)
		}
	}
}

func TestBlockScalarsEndAsKubectlReadsThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var text string
		for doc := range rapid.IntRange(1, 3).Draw(r, "documents") {
			if doc > 0 {
				text += rapid.SampledFrom([]string{"\n---\n", "\n--- \n", "\n\n---\n"}).Draw(r, "separator")
			}
			text += "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c" + string(rune('a'+doc)) + "}\ndata:\n  text: " +
				rapid.SampledFrom([]string{"|", "|-", ">", ">-"}).Draw(r, "scalar") + "\n    one\n    two" +
				rapid.SampledFrom([]string{"", "\n", "\n\n", "\n# comment", "\n# comment\n", "  ", "\r\n"}).Draw(r, "end")
		}
		objects, err := manifest.Parse("f.yaml", []byte(text))
		if err != nil {
			r.Fatalf("%q: %v", text, err)
		}
		var got []map[string]any
		for _, o := range objects {
			got = append(got, o.Content)
		}
		want, err := readAsKubectl([]byte(text))
		if err != nil {
			r.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Errorf("%q (-kubectl +ours):\n%s", text, diff)
		}
	})
}
