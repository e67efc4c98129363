package engineupgrade

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// notReady returns why an instance cannot be upgraded now, and the deployment that installs it.
func (s *stepper) notReady(ctx context.Context, i fleet.EngineUpgradeInstance) (fleet.Deployment, string, error) {
	p, err := s.target(ctx, i.DeploymentID, i.Deployment, "")
	d := p.deployment
	if err != nil || p.missing != "" {
		return d, p.missing, err
	}
	open, err := s.tx.Runs().Open(ctx, d.TenantID, d.ID)
	if err != nil {
		return d, "", err
	}
	held, err := rollout.SuspendedBy(ctx, s.tx, d)
	switch {
	case err != nil:
		return d, "", err
	case !held.IsZero():
		return d, fmt.Sprintf("deployment %q is suspended: %s", d.Name, held.Message), nil
	case !d.Policy.Manual || !d.Pin.Active():
		return d, fmt.Sprintf("deployment %q is not a manual deployment that a sync run has installed, so there is no revision to return to", d.Name), nil
	case len(open) > 0:
		return d, fmt.Sprintf("sync run %d of deployment %q is not done", open[0].Seq, d.Name), nil
	case !p.settled():
		return d, fmt.Sprintf("deployment %q: %s", d.Name, p.describe()), nil
	}
	canary, err := s.canary(ctx, i)
	if err == nil && canary.missing == "" && !canary.settled() {
		return d, fmt.Sprintf("canary %q: %s", i.Canary, canary.describe()), nil
	}
	return d, canary.missing, err
}

// progress is how far an installation is.
type progress struct {
	ok, failed bool
	text       string
}

// installed returns whether the revision of a run is installed and healthy. On the way back, objects that failed may
// still succeed: their agent repeats them until the deadline.
func (s *stepper) installed(ctx context.Context, i fleet.EngineUpgradeInstance, run fleet.SyncRun) (progress, error) {
	back := i.Phase == fleet.EngineInstanceRollingBack
	ended := run.Phase == fleet.RunFailed || run.Phase == fleet.RunTerminated
	if ended && (!back || run.StartedAt.IsZero()) {
		return progress{failed: true, text: fmt.Sprintf("sync run %d of deployment %q: %s", run.Seq, run.Deployment, run.Phase) + wording.Suffix(run.Message)}, nil
	}
	if !run.Phase.Done() {
		return progress{text: fmt.Sprintf("sync run %d of deployment %q is %s", run.Seq, run.Deployment, run.Phase) + wording.Suffix(run.Message)}, nil
	}
	p, err := s.target(ctx, i.DeploymentID, i.Deployment, "")
	switch pin := p.deployment.Pin; {
	case err != nil:
		return progress{}, err
	case p.missing != "":
		return progress{failed: true, text: p.missing}, nil
	case pin.Revision != run.Kept:
		return progress{failed: true, text: fmt.Sprintf("somebody else moved deployment %q to commit %.12s", i.Deployment, pin.Commit)}, nil
	case p.settled():
		return progress{ok: true}, nil
	}
	failed := !back && p.acknowledged() && p.view.Health == fleet.HealthFailed
	return progress{failed: failed, text: fmt.Sprintf("deployment %q: %s", i.Deployment, p.describe())}, nil
}

// canary returns the canary on the agent of the instance.
func (s *stepper) canary(ctx context.Context, i fleet.EngineUpgradeInstance) (placed, error) {
	return s.target(ctx, i.CanaryID, i.Canary, i.AgentID)
}

// placed is a deployment on one agent.
type placed struct {
	deployment fleet.Deployment
	target     fleet.Target
	view       fleet.View
	missing    string // why there is no target; "" if there is one
}

// acknowledged reports whether the status is about the newest desired state.
func (p placed) acknowledged() bool { return p.target.Observed.Version == p.target.Desired.Version }

// settled reports whether everything that may be applied is applied and healthy, as of now. Held deletions do not count:
// they wait for a user, and the objects of the revision are in place.
func (p placed) settled() bool {
	synced := p.view.Sync == fleet.SyncSynced || p.view.Sync == fleet.SyncOutOfSync && p.view.Reason == fleet.ReasonPruneHeld
	return p.acknowledged() && synced && p.view.Health == fleet.HealthCurrent
}

func (p placed) describe() string {
	return fmt.Sprintf("%s, %s (%s)", p.view.Sync, p.view.Health, p.view.Reason) + wording.Suffix(p.view.Message)
}

// target returns a deployment on an agent, or on its only agent without one.
func (s *stepper) target(ctx context.Context, id fleet.DeploymentID, name string, agent fleet.AgentID) (p placed, err error) {
	p.deployment, err = s.tx.Deployments().Get(ctx, s.u.TenantID, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !p.deployment.DeletedAt.IsZero() {
		p.missing = fmt.Sprintf("deployment %q was deleted", name)
		return p, nil
	}
	if err != nil {
		return p, err
	}
	targets, err := s.tx.Targets().OfDeployment(ctx, s.u.TenantID, id)
	if err != nil {
		return p, err
	}
	found := 0
	for _, t := range targets {
		if rollout.Attached(t) && (agent == "" || t.AgentID == agent) {
			p.target = t
			found++
		}
	}
	switch {
	case found == 0:
		p.missing = fmt.Sprintf("deployment %q is not on the agent any more", name)
		return p, nil
	case found > 1:
		p.missing = fmt.Sprintf("deployment %q is on %d agents: an instance needs a deployment of its own", name, found)
		return p, nil
	}
	connections, err := rollout.PresenceOf(ctx, s.tx, []fleet.Target{p.target})
	p.view = p.target.ViewAt(rollout.PresenceBy(connections[p.target.AgentID]))
	return p, err
}
