package restapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type runControl interface {
	CreateRun(ctx context.Context, p auth.Principal, tenant, deployment string, req control.CreateRun) (fleet.SyncRun, error)
	Rollback(ctx context.Context, p auth.Principal, tenant, deployment string, req control.Rollback) (fleet.SyncRun, error)
	// Runs lists the runs of a deployment, newest first, in pages by Seq.
	Runs(ctx context.Context, p auth.Principal, tenant, deployment string, f store.RunFilter) ([]fleet.SyncRun, error)
	Run(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID) (fleet.SyncRun, error)
	UpdateRun(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID, req control.UpdateRun, match control.Match) (fleet.SyncRun, error)
	// RunWaiting returns some of the targets that a run waits for; more is the number of other agents.
	RunWaiting(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID) (waits []control.RunWait, more int, err error)
	TerminateRun(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID, match control.Match) (fleet.SyncRun, error)
}

var runs = resource{"run", tenant + "/runs"}

type (
	// OneRun is the input of requests about one run.
	OneRun struct {
		InTenant
		Run string `path:"run" maxLength:"64" doc:"ID of the run."`
	}
	updateRunInput struct {
		OneRun
		Matching
		Body apiv1.UpdateRun
	}
	terminateRunInput struct {
		OneRun
		Matching
	}
	rollbackInput struct {
		Named
		Body apiv1.Rollback
	}
)

func (in *OneRun) at() (string, string) { return in.Tenant, in.Run }

func (a *api) registerRuns() {
	one := runs.path + "/{run}"
	register(a, operation("list-runs", http.MethodGet, oneDeployment+"/runs", "List the sync runs of a deployment, newest first", http.StatusOK), deployments, a.listRuns)
	register(a, operation("create-run", http.MethodPost, oneDeployment+"/runs",
		"Sync a deployment now, to its own revision or to another", http.StatusAccepted), deployments, a.createRun)
	register(a, operation("rollback-deployment", http.MethodPost, oneDeployment+"/rollback",
		"Roll back to a kept revision, without Git; an automated deployment is pinned to it until it is released", http.StatusAccepted), deployments, a.rollback)
	register(a, operation("get-run", http.MethodGet, one, "Read a sync run", http.StatusOK), runs, a.getRun)
	register(a, operation("update-run", http.MethodPatch, one, "Change the revision of a sync run that has not started", http.StatusOK), runs, a.updateRun)
	register(a, operation("get-run-waiting", http.MethodGet, one+"/waiting", "List what a sync run waits for", http.StatusOK), runs, a.runWaiting)
	register(a, operation("terminate-run", http.MethodPost, one+"/terminate",
		"Terminate a sync run: agents that have not finished it stop, and applied objects stay", http.StatusOK), runs, a.terminateRun)
}

type listRunsInput struct {
	Named
	Paging
	Reason string `query:"reason" maxLength:"64" pattern:"^[A-Za-z]*$" doc:"Reason of the phase; see docs/reasons.md."`
}

func (a *api) listRuns(ctx context.Context, p auth.Principal, in *listRunsInput) (*listOutput[apiv1.SyncRun], error) {
	page, err := in.numbered()
	if err != nil {
		return nil, err
	}
	found, err := a.control.Runs(ctx, p, in.Tenant, in.Name, store.RunFilter{Page: page, Reason: fleet.Reason(in.Reason)})
	if err != nil {
		return nil, err
	}
	return paged(found, in.Limit, runJSON, func(r fleet.SyncRun) string { return strconv.FormatInt(r.Seq, 10) }), nil
}

func (a *api) createRun(ctx context.Context, p auth.Principal, in *actInput[apiv1.CreateRun]) (*accepted[apiv1.SyncRun], error) {
	req := control.CreateRun{}
	if in.Body != nil {
		req.Revision = in.Body.Revision
	}
	run, err := a.control.CreateRun(ctx, p, in.Tenant, in.Name, req)
	return runAccepted(in.Tenant, run, err)
}

func (a *api) rollback(ctx context.Context, p auth.Principal, in *rollbackInput) (*accepted[apiv1.SyncRun], error) {
	run, err := a.control.Rollback(ctx, p, in.Tenant, in.Name, control.Rollback(in.Body))
	return runAccepted(in.Tenant, run, err)
}

func runAccepted(tenantName string, r fleet.SyncRun, err error) (*accepted[apiv1.SyncRun], error) {
	if err != nil {
		return nil, err
	}
	return &accepted[apiv1.SyncRun]{Location: operationURL(tenantName, r.OperationID), Body: runJSON(r)}, nil
}

func (a *api) getRun(ctx context.Context, p auth.Principal, in *OneRun) (*tagged[apiv1.SyncRun], error) {
	return runAnswer(a.control.Run(ctx, p, in.Tenant, fleet.RunID(in.Run)))
}

func (a *api) updateRun(ctx context.Context, p auth.Principal, in *updateRunInput) (*tagged[apiv1.SyncRun], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return runAnswer(a.control.UpdateRun(ctx, p, in.Tenant, fleet.RunID(in.Run), control.UpdateRun(in.Body), match))
}

func (a *api) terminateRun(ctx context.Context, p auth.Principal, in *terminateRunInput) (*tagged[apiv1.SyncRun], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return runAnswer(a.control.TerminateRun(ctx, p, in.Tenant, fleet.RunID(in.Run), match))
}

func (a *api) runWaiting(ctx context.Context, p auth.Principal, in *OneRun) (*plain[apiv1.RunWaiting], error) {
	waits, more, err := a.control.RunWaiting(ctx, p, in.Tenant, fleet.RunID(in.Run))
	if err != nil {
		return nil, err
	}
	out := apiv1.RunWaiting{For: []apiv1.RunWait{}, More: more}
	for _, w := range waits {
		out.For = append(out.For, apiv1.RunWait{Reason: string(w.Reason), Agent: w.Agent, Message: w.Message})
	}
	return &plain[apiv1.RunWaiting]{out}, nil
}

func runAnswer(r fleet.SyncRun, err error) (*tagged[apiv1.SyncRun], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.SyncRun]{ETag: stateTag(control.RunState(r)), Body: runJSON(r)}, nil
}

func runJSON(r fleet.SyncRun) apiv1.SyncRun {
	return apiv1.SyncRun{
		ID: string(r.ID), Deployment: r.Deployment, Seq: r.Seq, Kind: string(r.Kind), Revision: r.Revision, Kept: r.Kept,
		Phase: string(r.Phase), Reason: string(r.Reason), Message: r.Message, Commit: r.Commit, By: r.By, Operation: string(r.OperationID),
		CreatedAt: utc(r.CreatedAt), StartedAt: utc(r.StartedAt), FinishedAt: utc(r.FinishedAt),
	}
}
