package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// HeldPrunes lists the objects of a deployment that left its source and are kept until a user confirms their
// deletion, by agent and object, starting after after. agent "" means all.
func (s *Service) HeldPrunes(
	ctx context.Context, p auth.Principal, tenant, deployment, agent string, after store.HeldObject, limit int,
) ([]HeldPrune, error) {
	var out []HeldPrune
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		all, err := withName(ctx, tx, t.ID, deployment)
		if err != nil {
			return err
		}
		holders, err := s.holders(ctx, tx, all, agent)
		if err != nil {
			return err
		}
		for _, d := range startingWith(all, holders[after.Target].DeploymentID) {
			err := eachHeld(ctx, tx, d, after, func(o store.HeldObject) (more bool) {
				if h, ok := holders[o.Target]; ok {
					out = append(out, HeldPrune{
						HeldObject: o, Commit: h.Desired.Commit, Deleted: !d.DeletedAt.IsZero(), Current: s.answered(h), Confirmed: slices.Contains(h.Desired.Confirmed, o.String()),
					})
				}
				return len(out) < limit
			})
			if err != nil || len(out) == limit {
				return err
			}
			after = store.HeldObject{}
		}
		return nil
	})
	return out, err
}

// startingWith returns the deployments from the one with the ID on; all of them if there is none.
func startingWith(all []fleet.Deployment, id fleet.DeploymentID) []fleet.Deployment {
	if i := slices.IndexFunc(all, func(d fleet.Deployment) bool { return d.ID == id }); i > 0 {
		return all[i:]
	}
	return all
}

// eachHeld calls f with the held objects of a deployment until it returns false.
func eachHeld(ctx context.Context, tx store.Tx, d fleet.Deployment, after store.HeldObject, f func(store.HeldObject) (more bool)) error {
	const size = 500
	for {
		page, err := tx.Targets().Held(ctx, d.TenantID, d.ID, after, size)
		if err != nil {
			return err
		}
		for _, o := range page {
			if !f(o) {
				return nil
			}
		}
		if len(page) < size {
			return nil
		}
		after = page[len(page)-1]
	}
}

// withName returns the deployment with a name, and those that had it before and are being deleted: they may hold objects too.
func withName(ctx context.Context, tx store.Tx, tenant fleet.TenantID, name string) ([]fleet.Deployment, error) {
	leaving, err := tx.Deployments().LeavingByName(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	live, err := tx.Deployments().ByName(ctx, tenant, name)
	if errors.Is(err, store.ErrNotFound) && len(leaving) > 0 {
		return leaving, nil
	}
	if err != nil {
		return nil, fmt.Errorf("deployment %q: %w", name, err)
	}
	return append([]fleet.Deployment{live}, leaving...), nil
}

// holders returns the targets of deployments that may have held objects, on one agent or on all.
func (s *Service) holders(ctx context.Context, tx store.Tx, deployments []fleet.Deployment, agent string) (map[fleet.TargetID]fleet.Target, error) {
	out, known := map[fleet.TargetID]fleet.Target{}, agent == ""
	for _, d := range deployments {
		targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			if agent != "" && t.AgentName != agent {
				continue
			}
			known = true
			if rollout.Attached(t) || t.Desired.Tombstone && t.AgentID != "" {
				out[t.ID] = t
			}
		}
	}
	if !known {
		return nil, fleet.Invalid("agent", "deployment %q is not on an agent %q", deployments[0].Name, agent)
	}
	return out, nil
}

// answered reports whether an agent has reported for the desired state of a target: only then are its held
// objects those that a confirmation would delete.
func (s *Service) answered(t fleet.Target) bool {
	// After a restored database, the server sends the state of a live target again, but not a tombstone that the agent has.
	return (t.Desired.Tombstone || t.Desired.Digest != "" && !s.planner.Ahead(t)) && !rollout.KeepsPruneHold(t) && t.Observed.Version == t.Desired.Version
}

// ConfirmPrune lets agents delete held objects, only for their current bundle. It is refused as a whole if it
// names an object that is not held now, if the number of all differs from the expected one, and during a
// suspension.
func (s *Service) ConfirmPrune(ctx context.Context, p auth.Principal, tenant, name string, req ConfirmPrune) (ConfirmedPrune, error) {
	if err := req.check(); err != nil {
		return ConfirmedPrune{}, err
	}
	var out ConfirmedPrune
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		all, err := withName(ctx, tx, t.ID, name)
		if err != nil {
			return err
		}
		out, err = s.confirm(ctx, tx, p, all, req)
		return err
	})
	return out, err
}

// suspendedBy returns why no deletion of d can be confirmed now; zero if it can. The suspension of a deployment that is being
// deleted cannot end any more and does not count: it did not prevent the deletion either.
func suspendedBy(ctx context.Context, tx store.Tx, d fleet.Deployment) (fleet.Cause, error) {
	if d.DeletedAt.IsZero() {
		return rollout.SuspendedBy(ctx, tx, d)
	}
	return rollout.NewSuspensions(tx).Around(ctx, d)
}

func (req ConfirmPrune) check() error {
	switch {
	case req.All && len(req.Objects) > 0:
		return fleet.Invalid("objects", "objects and all exclude each other")
	case !req.All && len(req.Objects) == 0:
		return fleet.Invalid("objects", "at least one object is required, or all with their number")
	case len(req.Objects) > wire.MaxConfirmed:
		return fleet.Invalid("objects", "at most %[2]d objects are allowed, not %[1]d", len(req.Objects), wire.MaxConfirmed)
	case req.All && req.Count <= 0:
		return fleet.Invalid("count", "the number of held objects is required, so that no more than you have seen are deleted")
	}
	return nil
}

// confirm writes the confirmations, each to the target with the held object.
func (s *Service) confirm(ctx context.Context, tx store.Tx, p auth.Principal, deployments []fleet.Deployment, req ConfirmPrune) (ConfirmedPrune, error) {
	holders, err := s.holders(ctx, tx, deployments, req.Agent)
	if err != nil {
		return ConfirmedPrune{}, err
	}
	held, err := s.heldNow(ctx, tx, deployments, holders)
	if err != nil {
		return ConfirmedPrune{}, err
	}
	chosen, err := req.choose(held)
	if err == nil && !req.All {
		err = oneDeployment(chosen, holders)
	}
	if err != nil {
		return ConfirmedPrune{}, err
	}
	var out ConfirmedPrune
	for _, d := range deployments {
		done, err := s.confirmOf(ctx, tx, d, chosen, holders, held)
		if err != nil {
			return ConfirmedPrune{}, err
		}
		if done.Targets > 0 {
			if err := s.record(ctx, tx, p, d, "deployment.confirm-prune", fleet.ReasonPruneConfirmed, done.String()); err != nil {
				return ConfirmedPrune{}, err
			}
		}
		out.Objects, out.Deletions, out.Targets = append(out.Objects, done.Objects...), out.Deletions+done.Deletions, out.Targets+done.Targets
	}
	out.Objects = slices.Compact(slices.Sorted(slices.Values(out.Objects)))
	return out, nil
}

// oneDeployment refuses a name of objects on several agents that belong to different deployments: a user who has seen one of them
// may not know of the other.
func oneDeployment(chosen map[fleet.TargetID][]string, holders map[fleet.TargetID]fleet.Target) error {
	first := map[string]fleet.Target{}
	for _, id := range slices.Sorted(maps.Keys(chosen)) {
		for _, name := range chosen[id] {
			t, known := first[name]
			if !known {
				first[name] = holders[id]
			}
			if o := holders[id]; known && o.DeploymentID != t.DeploymentID && o.AgentID != t.AgentID {
				return fleet.Conflict("%s is held on %q and on %q by two deployments named %q, one of which is deleted: set the agent", name, t.AgentName, o.AgentName, o.DeploymentName)
			}
		}
	}
	return nil
}

// confirmOf writes the chosen confirmations of one deployment.
func (s *Service) confirmOf(
	ctx context.Context, tx store.Tx, d fleet.Deployment, chosen map[fleet.TargetID][]string, holders map[fleet.TargetID]fleet.Target, held map[string][]fleet.TargetID,
) (ConfirmedPrune, error) {
	var out ConfirmedPrune
	for _, id := range slices.Sorted(maps.Keys(chosen)) {
		t := holders[id]
		if t.DeploymentID != d.ID {
			continue
		}
		all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(stillHeld(t, held), chosen[id]))))
		if len(all) > wire.MaxConfirmed {
			return ConfirmedPrune{}, fleet.Invalid("objects", "agent %q would have %d deletions confirmed for one revision, which is more than %d",
				t.AgentName, len(all), wire.MaxConfirmed)
		}
		out.Objects, out.Deletions = append(out.Objects, chosen[id]...), out.Deletions+len(chosen[id])
		if !slices.ContainsFunc(chosen[id], func(name string) bool { return !slices.Contains(t.Desired.Confirmed, name) }) {
			continue // already confirmed
		}
		want := t.Desired
		want.Version, want.Confirmed, want.HoldPrune = s.planner.Next(rollout.Newest(t)), all, false // the held objects are known: answered
		if err := tx.Targets().SetDesired(ctx, t.TenantID, t.ID, want); err != nil {
			return ConfirmedPrune{}, err
		}
		out.Targets++
	}
	if len(out.Objects) == 0 {
		return out, nil
	}
	suspended, err := suspendedBy(ctx, tx, d)
	if err == nil && !suspended.IsZero() {
		err = fleet.Conflict("nothing of deployment %q can be deleted now: %s", d.Name, suspended)
	}
	return out, err
}

// stillHeld returns the confirmed deletions of a target that are not done yet. An agent that is done has
// deleted all that it does not hold; for one that is not, this is unknown, so nothing is removed.
func stillHeld(t fleet.Target, held map[string][]fleet.TargetID) []string {
	if !rollout.Done(t.Observed.Sync) {
		return t.Desired.Confirmed
	}
	return slices.DeleteFunc(slices.Clone(t.Desired.Confirmed), func(name string) bool { return !slices.Contains(held[name], t.ID) })
}

// heldNow returns the held objects of the targets for their desired states, by name.
func (s *Service) heldNow(
	ctx context.Context, tx store.Tx, deployments []fleet.Deployment, holders map[fleet.TargetID]fleet.Target,
) (map[string][]fleet.TargetID, error) {
	out := map[string][]fleet.TargetID{}
	for _, d := range deployments {
		err := eachHeld(ctx, tx, d, store.HeldObject{}, func(o store.HeldObject) (more bool) {
			if t, ok := holders[o.Target]; ok && s.answered(t) {
				out[o.String()] = append(out[o.String()], o.Target)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// choose selects the deletions of a request, by target.
func (req ConfirmPrune) choose(held map[string][]fleet.TargetID) (map[fleet.TargetID][]string, error) {
	names := slices.Compact(slices.Sorted(slices.Values(req.Objects)))
	if req.All {
		names = slices.Sorted(maps.Keys(held))
	}
	out, n := map[fleet.TargetID][]string{}, 0
	var unknown []string
	for _, name := range names {
		targets, ok := held[name]
		if !ok {
			unknown = append(unknown, name)
		}
		for _, id := range targets {
			out[id] = append(out[id], name)
			n++
		}
	}
	if len(unknown) > 0 {
		return nil, fleet.Conflict("held deletion not found: %s: it is not held now, or its agent has not reported for the newest generation yet", some(unknown))
	}
	if req.All && n != req.Count {
		return nil, fleet.Conflict("%d deletions are held now, not %d: check them again", n, req.Count)
	}
	return out, nil
}

// String describes the confirmed deletions for the audit log.
func (c ConfirmedPrune) String() string {
	return fmt.Sprintf("%d deletions were confirmed, on %d agents: %s", c.Deletions, c.Targets, some(c.Objects))
}

// some lists the first of many names.
func some(names []string) string {
	const named = 20
	if len(names) <= named {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), len(names)-named)
}
