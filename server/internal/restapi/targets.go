package restapi

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type revisionControl interface {
	Revisions(ctx context.Context, p auth.Principal, tenant, name string, page store.Page) ([]fleet.Revision, error)
	Targets(ctx context.Context, p auth.Principal, tenant, deployment string, f store.TargetFilter) ([]control.TargetView, error)
	TargetObjects(ctx context.Context, p auth.Principal, tenant, deployment, agent string) (control.TargetView, error)
	DismissTarget(ctx context.Context, p auth.Principal, tenant, deployment string, id fleet.TargetID) error
}

const (
	targetsPath   = oneDeployment + "/targets"
	revisionsPath = oneDeployment + "/revisions"
)

var targets = resource{"target", deployments.path}

type (
	listTargetsInput struct {
		Named
		Paging
		Sync   string `query:"sync" enum:"Pending,Syncing,Synced,OutOfSync,Failed,Deleted,Rewound,Detached"`
		Reason string `query:"reason" maxLength:"64" pattern:"^[A-Za-z]*$" doc:"Reason of the target; see docs/reasons.md."`
		Health string `query:"health" enum:"Current,InProgress,Failed,Terminating,NotFound,Unknown,Stale"`
		Agent  string `query:"agent" maxLength:"253" doc:"Name of the agent."`
		Stale  string `query:"stale" enum:"true,false" doc:"Whether its agent is not connected, so that its state may be outdated."`
	}
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
		"List the targets of a deployment by agent name, without objects", http.StatusOK), deployments, a.listTargets)
	register(a, operation("get-target", http.MethodGet, targetsPath+"/{agent}",
		"Read one target with its objects", http.StatusOK), targets, a.getTarget)
	register(a, operation("dismiss-target", http.MethodPost, targetsPath+"/{target}/dismiss",
		"Dismiss a detached target: Kedge no longer manages its objects", http.StatusNoContent), targets, a.dismissTarget)
	register(a, operation("list-revisions", http.MethodGet, revisionsPath,
		"List the kept revisions of a deployment, newest first", http.StatusOK), deployments, a.listRevisions)
}

func (a *api) listTargets(ctx context.Context, p auth.Principal, in *listTargetsInput) (*listOutput[apiv1.Target], error) {
	f := store.TargetFilter{Page: in.page(), Sync: fleet.SyncState(in.Sync), Health: fleet.Health(in.Health), Reason: fleet.Reason(in.Reason), Agent: in.Agent}
	if in.Stale != "" {
		f.Stale = new(in.Stale == "true")
	}
	found, err := a.control.Targets(ctx, p, in.Tenant, in.Name, f)
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, targetJSON, nextTarget), nil
}

// nextTarget returns the start of the page after t. Two agents may have had the same name.
func nextTarget(t control.TargetView) string { return t.AgentName + "/" + string(t.ID) }

func (a *api) getTarget(ctx context.Context, p auth.Principal, in *targetOfInput) (*plain[apiv1.Target], error) {
	view, err := a.control.TargetObjects(ctx, p, in.Tenant, in.Name, in.Agent)
	if err != nil {
		return nil, err
	}
	return &plain[apiv1.Target]{targetJSON(view)}, nil
}

func (a *api) dismissTarget(ctx context.Context, p auth.Principal, in *targetInput) (*struct{}, error) {
	return nil, a.control.DismissTarget(ctx, p, in.Tenant, in.Name, fleet.TargetID(in.Target))
}

func (a *api) listRevisions(ctx context.Context, p auth.Principal, in *namedListInput) (*listOutput[apiv1.Revision], error) {
	page, err := in.numbered()
	if err != nil {
		return nil, err
	}
	found, err := a.control.Revisions(ctx, p, in.Tenant, in.Name, page)
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, revisionJSON, func(r fleet.Revision) string { return strconv.FormatInt(r.Seq, 10) }), nil
}

func revisionJSON(r fleet.Revision) apiv1.Revision {
	digests := slices.Compact(slices.Sorted(maps.Values(r.Bundles)))
	return apiv1.Revision{Seq: r.Seq, Commit: r.Commit, Author: r.Author, Message: r.Message, RenderedAt: utc(r.RenderedAt), Digests: append([]string{}, digests...)}
}
