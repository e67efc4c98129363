package imageset_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/imageset"
)

// covers: I1 (Helm values)
func TestHelm(t *testing.T) {
	t.Parallel()
	values := func(s string) map[string]string { return map[string]string{"chart/values.yaml": s} }
	prod := fleet.Helm{ValuesFiles: []string{"/env/base.yaml", "prod.yaml"}}
	cases := map[string]setCase{
		"Map":         {reason: "repository and tag", files: values("# v\nweb:\n  image:\n    repository: ghcr.io/x/web # r\n    tag: v1 # t\n"), change: "ghcr.io/x/web=:v2", want: values("# v\nweb:\n  image:\n    repository: ghcr.io/x/web # r\n    tag: v2 # t\n")},
		"NumberTag":   {reason: "a tag that was a number becomes a text", files: values("image: {repository: web, tag: 1.9}\n"), change: "web=:1.10", want: values("image: {repository: web, tag: \"1.10\"}\n")},
		"HexTag":      {reason: "a hash that reads as a number", files: values("image: {repository: web, tag: abc}\n"), change: "web=:12e4567", want: values("image: {repository: web, tag: \"12e4567\"}\n")},
		"EmptyTag":    {reason: "an empty tag is filled", files: values("image:\n  repository: web\n  tag: \"\"\n"), change: "web=:v2", want: values("image:\n  repository: web\n  tag: \"v2\"\n")},
		"NullTag":     {reason: "no value at all", files: values("image:\n  tag:\n  repository: web\n"), change: "web=:v2", want: values("image:\n  tag: v2\n  repository: web\n")},
		"Text":        {reason: "an image as one text", files: values("sidecarImage: 'web:v1'\nimage: web:v1\n"), change: "web=:v2", want: values("sidecarImage: 'web:v2'\nimage: web:v2\n")},
		"Beside":      {reason: "the tag next to it", files: values("image: web\nimageTag: v1\n"), change: "web=:v2", want: values("image: web\nimageTag: v2\n")},
		"Registry":    {reason: "another registry", files: values("image:\n  registry: docker.io\n  repository: bitnami/web\n  tag: v1\n  digest: \"\"\n"), change: "bitnami/web=ghcr.io/y/web:v2", want: values("image:\n  registry: ghcr.io\n  repository: y/web\n  tag: v2\n  digest: \"\"\n")},
		"SameRepo":    {reason: "the registry is implicit", files: values("image: {registry: ghcr.io, repository: x/web, tag: v1}\n"), change: "x/web=x/web:v2", want: values("image: {registry: ghcr.io, repository: x/web, tag: v2}\n")},
		"Digest":      {reason: "a digest where there is a field", files: values("image: {repository: web, tag: v1, digest: ''}\n"), change: "web=@" + digest, want: values("image: {repository: web, tag: v1, digest: '" + digest + "'}\n")},
		"ClearDigest": {reason: "a tag alone clears the digest, which would take precedence", files: values("image: {repository: web, tag: v1, digest: '" + digest + "'}\n"), change: "web=:v2", want: values("image: {repository: web, tag: v2, digest: ''}\n")},
		"NoDigest":    {reason: "no field for it", files: values("image: {repository: web, tag: v1}\n"), change: "web=@" + digest, problem: []string{"chart/values.yaml", "no digest"}},
		"Lists":       {reason: "in lists, nested anywhere", files: values("a:\n- name: x\n  image: {repository: web, tag: v1}\n- image: web:v1\n"), change: "web=:v2", want: values("a:\n- name: x\n  image: {repository: web, tag: v2}\n- image: web:v2\n")},
		"Layers": {
			reason: "the file that wins is changed, with the repository from below",
			files:  map[string]string{"chart/values.yaml": "image: {repository: web, tag: v0}\n", "env/base.yaml": "image:\n  tag: v1\n", "chart/prod.yaml": "image:\n  tag: v2\n"},
			req:    imageset.Request{Helm: prod}, change: "web=:v3", want: map[string]string{"chart/prod.yaml": "image:\n  tag: v3\n"},
		},
		"Inserted": {
			reason: "a field that the winning file lacks is added there",
			files:  map[string]string{"chart/values.yaml": "image: {repository: web, tag: \"\"}\n", "env/base.yaml": "x: 1\n", "chart/prod.yaml": "image:\n  repository: other # o\n"},
			req:    imageset.Request{Helm: prod}, change: "other=:v3", want: map[string]string{"chart/prod.yaml": "image:\n  repository: other # o\n  tag: v3\n"},
		},
		"Chart": {
			reason: "else the chart's own", files: map[string]string{"chart/values.yaml": "image: {repository: web, tag: v0}\n", "env/base.yaml": "image: {pullPolicy: Always}\n", "chart/prod.yaml": ""},
			req: imageset.Request{Helm: prod}, change: "web=:v3", want: values("image: {repository: web, tag: v3}\n"),
		},
		"Inline": {
			reason: "inline values are not in Git", files: values("image: {repository: web, tag: v0}\n"),
			req: imageset.Request{Helm: fleet.Helm{Values: "image: {tag: v9}"}}, change: "web=:v3", problem: []string{"inline values", "image.tag", "web:v9"},
		},
		"Outside":  {reason: "values stay in the repository", files: values(""), req: imageset.Request{Helm: fleet.Helm{ValuesFiles: []string{"../../x.yaml"}}}, change: "web=:v3", problem: []string{"outside the repository"}},
		"Missing":  {reason: "a values file that is not there", files: values(""), req: imageset.Request{Helm: fleet.Helm{ValuesFiles: []string{"x.yaml"}}}, change: "web=:v3", problem: []string{"chart/x.yaml"}},
		"Link":     {reason: "links are not followed", files: map[string]string{"chart/values.yaml": memtree.Symlink}, change: "web=:v3", problem: []string{"chart/values.yaml", "regular file"}},
		"Template": {reason: "text with braces is no image", files: values("image: '{{ .x }}:v1'\n"), change: "x=:v2", problem: []string{"none"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.req.Kind, tc.req.Path = fleet.SourceHelm, "chart"
			tc.run(t)
		})
	}
}
