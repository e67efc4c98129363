package restapi

import (
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/objectdiff"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

type diffControl interface {
	Diff(ctx context.Context, p auth.Principal, tenant, deployment, from, to string) (control.Diff, error)
}

type diffInput struct {
	Named
	From string `query:"from" maxLength:"255" doc:"Number of a kept revision, branch, tag, commit, or full ref. 'desired', the default, is the desired state of the clusters."`
	To   string `query:"to" maxLength:"255" doc:"The same; the default is the newest commit of the revision of the deployment."`
}

func (a *api) registerDiff() {
	register(a, operation("diff-deployment", http.MethodGet, oneDeployment+"/diff",
		"Compare two revisions of a deployment, object by object and field by field; values of Secrets are hidden",
		http.StatusOK, http.StatusConflict, http.StatusUnprocessableEntity), deployments, a.diff)
}

func (a *api) diff(ctx context.Context, p auth.Principal, in *diffInput) (*plain[apiv1.Diff], error) {
	d, err := a.control.Diff(ctx, p, in.Tenant, in.Name, in.From, in.To)
	if err != nil {
		return nil, err
	}
	out := apiv1.Diff{From: apiv1.DiffSide(d.From), To: apiv1.DiffSide(d.To), Variants: []apiv1.VariantDiff{}, More: d.More}
	for _, v := range d.Variants {
		out.Variants = append(out.Variants, apiv1.VariantDiff{
			Variant: v.Variant, Agents: v.Agents, Count: v.Count, Objects: objectsJSON(v.Objects), Problem: v.Problem, Notes: v.Notes,
			Added: v.Summary.Added, Removed: v.Summary.Removed, Changed: v.Summary.Changed, Unchanged: v.Summary.Unchanged,
		})
	}
	return &plain[apiv1.Diff]{out}, nil
}

func objectsJSON(objects []objectdiff.Object) []apiv1.ObjectDiff {
	out := make([]apiv1.ObjectDiff, len(objects))
	for i, o := range objects {
		out[i] = apiv1.ObjectDiff{Object: o.Ref.String(), Change: string(o.Kind), Fields: make([]apiv1.FieldDiff, len(o.Fields)), More: o.More}
		for j, f := range o.Fields {
			out[i].Fields[j] = apiv1.FieldDiff{Path: f.Path, Change: string(f.Kind), Old: f.Old, New: f.New}
		}
	}
	return out
}
