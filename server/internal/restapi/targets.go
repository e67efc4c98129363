package restapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

type revisionControl interface {
	Revisions(ctx context.Context, p auth.Principal, tenant, name string) ([]fleet.Revision, error)
	TargetObjects(ctx context.Context, p auth.Principal, tenant, deployment, agent string) (control.TargetView, error)
	DismissTarget(ctx context.Context, p auth.Principal, tenant, deployment string, id fleet.TargetID) error
}

const (
	targetsPath   = oneDeployment + "/targets"
	revisionsPath = oneDeployment + "/revisions"
)

var targets = resource{"target", deployments.path}

type (
	targetOfInput struct {
		Named
		Agent string `path:"agent" maxLength:"253" doc:"Name of the agent."`
	}
	targetInput struct {
		Named
		Target string `path:"target" maxLength:"64" doc:"ID of the target."`
	}
)

func (in *targetOfInput) at() (string, string) { return in.Tenant, in.Name + "/" + in.Agent }
func (in *targetInput) at() (string, string)   { return in.Tenant, in.Name + "/" + in.Target }

func (a *api) registerTargets() {
	register(a, operation("list-targets", http.MethodGet, targetsPath,
		"List the targets of a deployment by the names of their agents, without objects", http.StatusOK), deployments, a.listTargets)
	register(a, operation("get-target", http.MethodGet, targetsPath+"/{agent}",
		"Read one target with its objects", http.StatusOK), targets, a.getTarget)
	register(a, operation("dismiss-target", http.MethodPost, targetsPath+"/{target}/dismiss",
		"Drop a detached target from the listing: whoever looks after its objects now, it is not Kedge", http.StatusNoContent), targets, a.dismissTarget)
	register(a, operation("list-revisions", http.MethodGet, revisionsPath,
		"List the kept revisions of a deployment, newest first", http.StatusOK), deployments, a.listRevisions)
}

func (a *api) listTargets(ctx context.Context, p auth.Principal, in *namedListInput) (*listOutput[apiv1.Target], error) {
	view, err := a.control.Deployment(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	convert := func(t control.TargetView) apiv1.Target { return targetJSON(t, false) }
	return cut(in.Paging, view.Targets, convert, func(t control.TargetView) string { return t.AgentName + "/" + string(t.ID) }), nil
}

func (a *api) getTarget(ctx context.Context, p auth.Principal, in *targetOfInput) (*plain[apiv1.Target], error) {
	view, err := a.control.TargetObjects(ctx, p, in.Tenant, in.Name, in.Agent)
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Target]{targetJSON(view, true)}, nil
}

func (a *api) dismissTarget(ctx context.Context, p auth.Principal, in *targetInput) (*struct{}, error) {
	return nil, a.control.DismissTarget(ctx, p, in.Tenant, in.Name, fleet.TargetID(in.Target))
}

func (a *api) listRevisions(ctx context.Context, p auth.Principal, in *namedListInput) (*listOutput[apiv1.Revision], error) {
	found, err := a.control.Revisions(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	return cut(in.Paging, found, revisionJSON, func(r fleet.Revision) string { return newestFirst(r.Seq) }), nil
}

// newestFirst is a key that orders higher numbers first.
func newestFirst(seq int64) string { return fmt.Sprintf("%016x", uint64(1<<63-1-seq)) }

func revisionJSON(r fleet.Revision) apiv1.Revision {
	digests := slices.Compact(slices.Sorted(maps.Values(r.Bundles)))
	return apiv1.Revision{Seq: r.Seq, Commit: r.Commit, RenderedAt: utc(r.RenderedAt), Digests: append([]string{}, digests...)}
}
