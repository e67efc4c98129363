package placement

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// assignment is the result of one deployment on one agent.
type assignment int

const (
	assignmentSame    assignment = iota // nothing was written
	assignmentNew                       // a target was created
	assignmentChanged                   // a target was detached, attached again, or got another variant or grant
)

// assign brings the target of d on an agent into its required state; t is the zero value if there is none, or
// the target of a deleted agent with the same name.
//
//	(none) ──selected──▶ attached ──not selected──▶ detached (or a tombstone, by policy)
//	                        ▲                          │
//	                        └─────────selected─────────┤
//	                        ▲                          │ agent deleted
//	                        └──enrolled again in the same cluster, selected─┘
func (p *Placer) assign(
	ctx context.Context, tx store.Tx, d fleet.Deployment, w Destination, a fleet.Agent, t fleet.Target,
) (fleet.TargetID, assignment, error) {
	if !w.Selects(a) {
		change, err := p.unassign(ctx, tx, d, w, t)
		return t.ID, change, err
	}
	want := t
	want.GrantID, want.DetachedAt, want.DetachedWhy = w.Grant.ID, time.Time{}, ""
	want.Variant, want.VariantError = variantFor(d, a)
	if keeps, err := keepsVariant(ctx, tx, d, t.Variant, want.Variant); err != nil {
		return t.ID, assignmentSame, err
	} else if keeps {
		want.Variant, want.VariantError = t.Variant, t.VariantError
	}
	if !a.Kinds.Equal(t.Kinds) {
		want.Kinds, want.KindError = a.Kinds, "" // the next reconciliation finds what the new filter refuses
	}
	switch {
	case t.ID == "":
		want.ID, want.TenantID, want.DeploymentID = fleet.NewTargetID(), d.TenantID, d.ID
		want.AgentTenant, want.AgentID, want.AgentName, want.DeploymentName = a.TenantID, a.ID, a.Name, d.Name
		return want.ID, assignmentNew, tx.Targets().Create(ctx, want)
	case HasLeft(t), t.AgentID == "":
		want.AgentID = a.ID
		return t.ID, assignmentChanged, p.attach(ctx, tx, d, w, want, t.AgentID == "")
	case t.GrantID != want.GrantID || t.Variant != want.Variant || t.VariantError != want.VariantError || !t.Kinds.Equal(want.Kinds):
		return t.ID, assignmentChanged, tx.Targets().SetPlace(ctx, want)
	default:
		return t.ID, assignmentSame, nil
	}
}

// HasLeft reports whether a target has left its environment already.
func HasLeft(t fleet.Target) bool {
	return !t.DetachedAt.IsZero() || t.Desired.Tombstone || t.Desired.Detached
}

// variantFor returns the variant of d for an agent, or fleet.NoVariant and the reason if the agent lacks a
// label that the source uses.
func variantFor(d fleet.Deployment, a fleet.Agent) (name, problem string) {
	_, name, err := d.For(a)
	if err != nil {
		return fleet.NoVariant, err.Error()
	}
	return name, ""
}

// attach attaches a detached target again. It has no bundle until it is settled. A target of an agent that was
// enrolled again prunes nothing at first, because its state in the meantime is unknown.
func (p *Placer) attach(ctx context.Context, tx store.Tx, d fleet.Deployment, w Destination, t fleet.Target, again bool) error {
	if err := tx.Targets().SetPlace(ctx, t); err != nil {
		return err
	}
	renewed := fleet.Desired{Version: p.planner.Next(rollout.Newest(t)), Namespace: d.Namespace, Policy: w.Grant.Applied(d.Policy), HoldPrune: again || p.planner.Ahead(t) || rollout.KeepsPruneHold(t), HandOvers: t.Desired.HandOvers}
	if err := tx.Targets().SetDesired(ctx, t.TenantID, t.ID, renewed); err != nil {
		return err
	}
	message := fmt.Sprintf("agent %q is in environment %q again", t.AgentName, d.Environment)
	if again {
		message = fmt.Sprintf("agent %q was enrolled again and continues with its targets", t.AgentName)
		if t.LeftIn != "" {
			message += ", after it has reported that it is in the same cluster"
		}
	}
	return p.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonTargetAttached, Agent: t.AgentName, Deployment: t.DeploymentName, Message: message,
	})
}

// unassign detaches a target that d's environment does not select, unless there is none or it has left already.
func (p *Placer) unassign(ctx context.Context, tx store.Tx, d fleet.Deployment, w Destination, t fleet.Target) (assignment, error) {
	if t.ID == "" || HasLeft(t) {
		return assignmentSame, nil
	}
	if !w.open {
		// Revoking a grant deletes nothing, independent of the policy of the deployment.
		return assignmentChanged, p.Detach(ctx, tx, t, fmt.Sprintf("environment %q is no longer granted to this tenant", d.Environment), false)
	}
	why := fmt.Sprintf("agent %q is not in environment %q", t.AgentName, d.Environment)
	if !d.Policy.PruneOnDetach {
		return assignmentChanged, p.Detach(ctx, tx, t, why, false)
	}
	// Nothing is deleted during a suspension, nor after a restore before Git is read again.
	held, err := rollout.SuspendedBy(ctx, tx, d)
	if err != nil {
		return assignmentSame, err
	}
	return assignmentChanged, p.Detach(ctx, tx, t, why, held.IsZero() && !p.planner.Ahead(t) && !rollout.KeepsPruneHold(t))
}

// Detach detaches a target: its objects stay unchanged and are listed, unless they are to be pruned. A target
// that was never sent to its agent is removed.
func (p *Placer) Detach(ctx context.Context, tx store.Tx, t fleet.Target, why string, prune bool) error {
	if t.Desired.Version == (fleet.Version{}) && t.Observed.Version == (fleet.Version{}) {
		return tx.Targets().Remove(ctx, t.TenantID, t.ID)
	}
	last := fleet.Desired{Version: p.planner.Next(rollout.Newest(t)), Commit: t.Desired.Commit, Namespace: t.Desired.Namespace, Policy: t.Desired.Policy}
	what := "its objects stay and are no longer managed"
	if prune {
		last.Tombstone, last.Commit = true, ""
		what = "its objects are deleted"
	} else {
		last.Detached, last.HoldPrune = true, rollout.KeepsPruneHold(t) // it may be attached again before its agent gets this
		t.DetachedAt, t.DetachedWhy, t.GrantID = p.cfg.Now(), why, ""
		if err := tx.Targets().SetPlace(ctx, t); err != nil {
			return err
		}
	}
	handOvers := rollout.NewHandOvers(p.planner, tx, nil)
	var err error
	if last.HandOvers, err = handOvers.Of(ctx, t, last); err != nil {
		return err
	}
	if err := tx.Targets().SetDesired(ctx, t.TenantID, t.ID, last); err != nil {
		return err
	}
	// Hand-overs of other targets on the agent to this one are obsolete.
	if err := handOvers.Refresh(ctx, t.TenantID, func(h fleet.HandOver) bool { return h.To == t.DeploymentID }); err != nil {
		return err
	}
	return p.tell(ctx, tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonTargetDetached, Agent: t.AgentName, Deployment: t.DeploymentName,
		Message: why + ": " + what,
	})
}
