package placement

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Deletion defines what happens to the objects of a deleted deployment.
type Deletion int

// The values of Deletion.
const (
	DeleteObjects Deletion = iota // agents delete them, by tombstones, because a user requested it
	PruneObjects                  // agents delete them, by tombstones, because of a commit
	KeepObjects                   // they stay in their clusters, unmanaged
	HoldProtected                 // like DeleteObjects, and protected kinds are held until their deletion is confirmed
)

// RemoveDeployment marks d as deleted, ends its runs, and makes tombstones of the targets that were sent to an
// agent, or detaches them. Other targets are removed immediately, and with the last one d itself.
func (p *Placer) RemoveDeployment(ctx context.Context, tx store.Tx, d fleet.Deployment, fate Deletion) error {
	if err := p.planner.EndRuns(ctx, tx, d, fleet.Cause{Reason: fleet.ReasonDeploymentDeleted, Message: "its deployment was deleted"}); err != nil {
		return err
	}
	if err := tx.PendingSpecs().Remove(ctx, d.TenantID, d.ID); err != nil {
		return err
	}
	if err := tx.Deployments().MarkDeleted(ctx, d.TenantID, d.ID, p.cfg.Now()); err != nil {
		return err
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	w, err := DestinationOf(ctx, tx, d)
	if err != nil {
		return err
	}
	d.Policy = w.Grant.Applied(d.Policy)
	handOvers := rollout.NewHandOvers(p.planner, tx, nil)
	for _, t := range targets {
		if err := p.tombstone(ctx, tx, d, t, fate, handOvers); err != nil {
			return fmt.Errorf("writing the tombstone of target %s: %w", t.ID, err)
		}
	}
	// Hand-overs of other targets to it are obsolete.
	if err := handOvers.Refresh(ctx, d.TenantID, func(h fleet.HandOver) bool { return h.To == d.ID }); err != nil {
		return err
	}
	return p.planner.RemoveIfEmpty(ctx, tx, d.TenantID, d.ID)
}

// tombstone makes a tombstone of a target, with exceptions: a detached one has released its objects, which
// stay; one without an agent cannot delete; one that was never sent has nothing to delete. If objects are kept,
// the target is detached instead.
func (p *Placer) tombstone(ctx context.Context, tx store.Tx, d fleet.Deployment, t fleet.Target, fate Deletion, handOvers *rollout.HandOvers) error {
	unheard := t.Desired.Version == (fleet.Version{}) && t.Observed.Version == (fleet.Version{})
	switch {
	case t.AgentID == "", rollout.Released(t), unheard:
		return tx.Targets().Remove(ctx, t.TenantID, t.ID)
	case t.Desired.Tombstone, !t.DetachedAt.IsZero():
		return nil // removed when its agent has confirmed
	case fate == KeepObjects:
		return p.Detach(ctx, tx, t, "the deployment was deleted with its objects kept", false)
	}
	want := fleet.Desired{
		Version: p.planner.Next(rollout.Newest(t)), Namespace: d.Namespace, Policy: d.Policy, SourceRevision: d.SourceRevision,
		Tombstone: true, Consent: fate == DeleteObjects || fate == HoldProtected, HoldProtected: fate == HoldProtected,
	}
	if t.Desired.SourceRevision != d.SourceRevision && t.Desired.Digest != "" {
		want.Namespace, want.Policy, want.SourceRevision = t.Desired.Namespace, t.Desired.Policy, t.Desired.SourceRevision
	}
	var err error
	if want.HandOvers, err = handOvers.Of(ctx, t, want); err != nil {
		return err
	}
	return tx.Targets().SetDesired(ctx, t.TenantID, t.ID, want)
}

// ReleaseProtected ends the hold of protected kinds of a tombstone: its agent stops managing them, and they stay. It does
// nothing for any other target. It reports whether it has changed the target.
func (p *Placer) ReleaseProtected(ctx context.Context, tx store.Tx, t fleet.Target) (bool, error) {
	if !t.Desired.Tombstone || !t.Desired.HoldProtected {
		return false, nil
	}
	want := t.Desired
	want.Version, want.HoldProtected, want.Confirmed = p.planner.Next(rollout.Newest(t)), false, nil
	return true, tx.Targets().SetDesired(ctx, t.TenantID, t.ID, want)
}
