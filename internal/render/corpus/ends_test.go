package corpus

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render/helm"
)

// The text after the last line of a template decides how its last block scalar ends.
//
// covers: G8
func TestHelmEndsOfTemplates(t *testing.T) {
	program := tool(t, "helm")
	parent := t.TempDir()
	scalar := rapid.SampledFrom([]string{"|", "|-", "|+", ">", ">-", ">+"})
	end := rapid.SampledFrom([]string{"", "\n", "\n\n", "\r\n", "  \n", "\n    \n", "\n# comment", "\n# comment\n", "\n\n\n# comment\n\n", " ", "\n  # in the text\n", "\t"})
	separator := rapid.SampledFrom([]string{"\n---\n", "\n---\r\n", "\n--- \n", "\n--- # comment\n", "\n---\n---\n", "\n\n---\n\n", "\n---", "\n---\n# comment\n"})
	rapid.Check(t, func(r *rapid.T) {
		files := map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
			// The program trims white space at the end of its output, so the last object cannot be compared.
			"templates/z.yaml": "apiVersion: example.com/v1\nkind: Zzz\nmetadata: {name: last}\n",
		}
		for file := range rapid.IntRange(1, 3).Draw(r, "files") {
			var text strings.Builder
			for doc := range rapid.IntRange(1, 3).Draw(r, "documents") {
				if doc > 0 {
					text.WriteString(separator.Draw(r, "separator"))
				}
				eol := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(r, "line break")
				annotations := rapid.SampledFrom([]string{"", ", annotations: {helm.sh/hook: post-install}"}).Draw(r, "hook")
				object := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d-%d%s}\ndata:\n  text: %s\n    one\n    two",
					file, doc, annotations, scalar.Draw(r, "scalar"))
				text.WriteString(strings.ReplaceAll(object, "\n", eol) + end.Draw(r, "end"))
			}
			files[fmt.Sprintf("templates/t%d.yaml", file)] = text.String()
		}
		dir := treeOf(r, parent, files)
		req := helm.Request{Helm: fleet.Helm{ReleaseName: "rel"}}
		theirs := runReal(t, parent, program, "template", "rel", dir, "--include-crds", "--skip-tests")
		agree(r, files, theirs, runHelm(t, dir, req))
	})
}
