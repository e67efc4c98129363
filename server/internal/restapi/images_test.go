package restapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/imageset"
	"github.com/kedge-dev/kedge/internal/objectdiff"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

func aPlace() imageset.Place {
	return imageset.Place{
		File: "deploy/web.yaml", Line: 12, Object: "Deployment/web", Field: "spec.template.spec.containers[web].image",
		Image: "nginx:1.0", Old: "nginx:1.0", New: "nginx:1.1", Text: "nginx:1.1",
	}
}

func (s *standin) SetImages(_ context.Context, _ auth.Principal, _, _ string, req control.SetImages) (control.ImageUpdate, error) {
	s.called("SetImages")
	if req.Images[0].Name == "none" {
		return control.ImageUpdate{}, fleet.Invalid("images", "no image %q was found; there are: nginx:1.0", "none")
	}
	u := control.ImageUpdate{Places: []imageset.Place{aPlace()}, Base: "c0ffee", Branch: "main"}
	if !req.DryRun {
		u.Commit, u.Branch, u.Protected, u.URL = "decade", "kedge/image/web-1", "protected branch hook declined", "https://github.com/x/y/compare/main...kedge/image/web-1"
	}
	return u, nil
}

func (s *standin) Images(context.Context, auth.Principal, string, string) ([]imageset.Place, string, error) {
	s.called("Images")
	p := aPlace()
	p.New, p.Text = "", ""
	return []imageset.Place{p}, "c0ffee", nil
}

func (s *standin) Diff(_ context.Context, _ auth.Principal, _, _, from, to string) (control.Diff, error) {
	s.called("Diff")
	if from == "99" {
		return control.Diff{}, fleet.Invalid("from", "revision 99 is not kept")
	}
	return control.Diff{
		From: control.DiffSide{Name: "desired", Commit: "c0ffee"}, To: control.DiffSide{Name: to, Revision: 9, Commit: "decade"},
		Variants: []control.VariantDiff{{
			Variant: "v1", Agents: []string{"prod"}, Count: 1, Summary: objectdiff.Summary{Changed: 1, Unchanged: 3}, Notes: []string{"a note"},
			Objects: []objectdiff.Object{{
				Ref: fleet.ObjectRef{Version: "v1", Kind: "Secret", Namespace: "shop", Name: "s"}, Kind: objectdiff.Changed, More: 2,
				Fields: []objectdiff.Field{{Path: "data.password", Kind: objectdiff.Changed, Old: objectdiff.Masked, New: objectdiff.Masked}},
			}},
		}, {Variant: "v2", Problem: "it does not render"}},
	}, nil
}

// covers: I1 (REST)
func TestImagesAndDiffsAreAsRecorded(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newStandin())
	const base = "/api/v1/tenants/default/deployments/web/"
	for name, req := range map[string][3]string{
		"images-set":  {http.MethodPost, base + "images", `{"images":[{"name":"nginx","ref":":1.1"}],"message":"m"}`},
		"images-dry":  {http.MethodPost, base + "images", `{"images":[{"name":"nginx","ref":":1.1"}],"dryRun":true}`},
		"images-none": {http.MethodPost, base + "images", `{"images":[{"name":"none","ref":":1.1"}]}`},
		"images-list": {http.MethodGet, base + "images", ""},
		"diff":        {http.MethodGet, base + "diff?to=9", ""},
		"diff-gone":   {http.MethodGet, base + "diff?from=99", ""},
	} {
		testkit.Golden(t, name+".json", do(t, h, req[0], req[1], req[2]).pretty(t))
	}
	if got := do(t, h, http.MethodPost, base+"images", `{"images":[]}`); got.status != http.StatusUnprocessableEntity || !strings.Contains(got.body, "images") {
		t.Errorf("no image at all: %d %s", got.status, got.body)
	}
}
