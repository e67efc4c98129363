package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// viewer creates views of the deployments and targets of a tenant in one transaction. A page costs a few
// queries.
type viewer struct {
	tx     store.Tx
	tenant fleet.TenantID
	holds  *rollout.Suspensions
}

// outlook is the state of a target if its deployment were not held.
type outlook struct {
	held          fleet.Cause  // why nothing new is sent; zero when it would be
	newest        string       // digest of the newest render for it, or ""
	problem       string       // why the newest revision cannot be used
	problemReason fleet.Reason // identifies the problem
}

func newViewer(tx store.Tx, tenant fleet.TenantID) *viewer {
	return &viewer{tx: tx, tenant: tenant, holds: rollout.NewSuspensions(tx)}
}

// deployments sums up deployments. It reads the number of targets with equal states, and the worst target of
// each, for its message.
func (v *viewer) deployments(ctx context.Context, deployments []fleet.Deployment) ([]DeploymentView, error) {
	held := make(map[fleet.DeploymentID]fleet.Cause, len(deployments))
	for _, d := range deployments {
		var err error
		if held[d.ID], err = v.held(ctx, d); err != nil {
			return nil, fmt.Errorf("deployment %q: %w", d.Name, err)
		}
	}
	tallies, err := v.tallies(ctx, deployments, held)
	if err != nil {
		return nil, err
	}
	worst, err := v.worst(ctx, deployments, tallies, held)
	if err != nil {
		return nil, err
	}
	problems, err := v.tx.Repositories().Problems(ctx, v.tenant, repositoriesOf(deployments))
	if err != nil {
		return nil, err
	}
	declared, err := v.declared(ctx, deployments)
	if err != nil {
		return nil, err
	}
	owners, err := v.owners(ctx, deployments)
	if err != nil {
		return nil, err
	}
	prunes, err := v.heldPrunes(ctx, slices.Sorted(maps.Keys(held))...)
	if err != nil {
		return nil, err
	}
	pending, err := v.pending(ctx, deployments)
	if err != nil {
		return nil, err
	}
	out := make([]DeploymentView, len(deployments))
	for i, d := range deployments {
		n := tallies[d.ID]
		out[i] = sumUp(d, n, worst[n.worst], problems[d.RepositoryID], held[d.ID])
		out[i].Owner = owners[d.ID]
		out[i].Declared, out[i].Counts.HeldPrunes = declared[d.ID], prunes.deployments[d.ID]
		out[i].addPending(pending[d.ID])
	}
	return out, nil
}

// declared returns the files that declare deployments. It reads only deployments with a name from a file.
func (v *viewer) declared(ctx context.Context, deployments []fleet.Deployment) (map[fleet.DeploymentID]*fleet.Declaration, error) {
	var ids []fleet.DeploymentID
	for _, d := range deployments {
		if rollout.DeclaredInGit(d.Name) {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := v.tx.Declarations().Of(ctx, v.tenant, ids)
	out := make(map[fleet.DeploymentID]*fleet.Declaration, len(found))
	for _, d := range found {
		out[d.DeploymentID] = &d
	}
	return out, err
}

// owners returns the Kubernetes resources that created deployments.
func (v *viewer) owners(ctx context.Context, deployments []fleet.Deployment) (map[fleet.DeploymentID]*fleet.Owned, error) {
	ids := make([]string, len(deployments))
	for i, d := range deployments {
		ids[i] = string(d.ID)
	}
	found, err := v.tx.Owners().Of(ctx, v.tenant, fleet.OwnedDeployment, ids)
	out := make(map[fleet.DeploymentID]*fleet.Owned, len(found))
	for _, o := range found {
		out[fleet.DeploymentID(o.ID)] = &o
	}
	return out, err
}

func (v *viewer) tallies(ctx context.Context, deployments []fleet.Deployment, held map[fleet.DeploymentID]fleet.Cause) (map[fleet.DeploymentID]tally, error) {
	ids := make([]fleet.DeploymentID, len(deployments))
	for i, d := range deployments {
		ids[i] = d.ID
	}
	groups, err := v.tx.Targets().Tally(ctx, v.tenant, ids)
	out := make(map[fleet.DeploymentID]tally, len(deployments))
	for _, g := range groups {
		out[g.Deployment] = out[g.Deployment].with(g, !held[g.Deployment].IsZero())
	}
	return out, err
}

// worst views the worst target of each deployment.
func (v *viewer) worst(
	ctx context.Context, deployments []fleet.Deployment, tallies map[fleet.DeploymentID]tally, held map[fleet.DeploymentID]fleet.Cause,
) (map[fleet.TargetID]TargetView, error) {
	var ids []fleet.TargetID
	of := make(map[fleet.DeploymentID]fleet.Deployment, len(deployments))
	for _, d := range deployments {
		of[d.ID] = d
		if id := tallies[d.ID].worst; id != "" {
			ids = append(ids, id)
		}
	}
	found, err := v.tx.Targets().List(ctx, v.tenant, ids)
	if err != nil {
		return nil, err
	}
	views, err := v.view(ctx, found, func(t fleet.Target) (fleet.Deployment, fleet.Cause) { return of[t.DeploymentID], held[t.DeploymentID] })
	out := make(map[fleet.TargetID]TargetView, len(views))
	for _, t := range views {
		out[t.ID] = t
	}
	return out, err
}

// targets views the targets of one deployment that match.
func (v *viewer) targets(ctx context.Context, d fleet.Deployment, f store.TargetFilter) ([]TargetView, error) {
	held, err := v.held(ctx, d)
	if err != nil {
		return nil, err
	}
	f.Held = !held.IsZero()
	found, err := v.tx.Targets().PageOfDeployment(ctx, v.tenant, d.ID, f)
	if err != nil {
		return nil, err
	}
	views, err := v.view(ctx, found, func(fleet.Target) (fleet.Deployment, fleet.Cause) { return d, held })
	if err != nil {
		return nil, err
	}
	prunes, err := v.heldPrunes(ctx, d.ID)
	for i := range views {
		views[i].HeldPrunes = prunes.targets[views[i].ID]
	}
	return views, err
}

// view creates views of targets; of returns the deployment of each, and why it is held.
func (v *viewer) view(ctx context.Context, targets []fleet.Target, of func(fleet.Target) (d fleet.Deployment, held fleet.Cause)) ([]TargetView, error) {
	presence, err := rollout.PresenceOf(ctx, v.tx, targets)
	if err != nil {
		return nil, err
	}
	variants, err := v.variants(ctx, targets)
	if err != nil {
		return nil, err
	}
	out := make([]TargetView, len(targets))
	for i, t := range targets {
		d, held := of(t)
		o := outlook{held: held, newest: d.Rendered.Digest}
		if t.Variant != "" {
			o.newest = variants[t.ID].Rendered.Digest
		}
		if d.DeletedAt.IsZero() {
			o.problemReason, o.problem = variants[t.ID].Reason, variants[t.ID].Error
		}
		out[i] = viewTarget(t, presence[t.AgentID], o)
	}
	return out, nil
}

func (v *viewer) variants(ctx context.Context, targets []fleet.Target) (map[fleet.TargetID]fleet.Variant, error) {
	var ids []fleet.TargetID
	for _, t := range targets {
		if t.Variant != "" {
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return v.tx.Targets().Variants(ctx, v.tenant, ids)
}

// held returns why no new state is sent to the targets of d, or "".
func (v *viewer) held(ctx context.Context, d fleet.Deployment) (fleet.Cause, error) {
	if !d.DeletedAt.IsZero() {
		return fleet.Cause{}, nil
	}
	held, err := v.holds.Of(ctx, d)
	switch {
	case err != nil || !held.IsZero():
		return held, err
	case d.Pin.TerminatedRun != 0:
		return fleet.Cause{Reason: fleet.ReasonRunTerminated, Message: fmt.Sprintf("sync run %d was terminated: agents that had not finished it change nothing; start a sync run%s", d.Pin.TerminatedRun, orRelease(d))}, nil
	case d.Policy.Manual:
		return fleet.Cause{Reason: fleet.ReasonManual, Message: "the deployment is manual and waits for a sync run"}, nil
	case d.Pin.Active():
		return fleet.Cause{Reason: fleet.ReasonPinned, Message: describePin(d)}, nil
	}
	return fleet.Cause{}, nil
}

func describePin(d fleet.Deployment) string {
	text := fmt.Sprintf("the deployment is pinned to revision %d (commit %.12s) by %s since %s", d.Pin.Revision, d.Pin.Commit, d.Pin.By, d.Pin.At.UTC().Format(time.RFC3339))
	if d.Pin.SourceRevision != d.SourceRevision {
		text += ", of an earlier source: release it, sync it or roll it back"
	}
	return text
}

// orRelease returns the alternative for a pinned deployment.
func orRelease(d fleet.Deployment) string {
	if d.Policy.Manual {
		return ""
	}
	return ", or release the deployment"
}

func repositoriesOf(deployments []fleet.Deployment) []fleet.RepositoryID {
	ids := map[fleet.RepositoryID]bool{}
	for _, d := range deployments {
		ids[d.RepositoryID] = true
	}
	return slices.Sorted(maps.Keys(ids))
}
