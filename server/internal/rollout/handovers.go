package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// HandOvers determines, within one transaction, which lost objects of a target other deployments on the same
// agent, in the same cluster, want. The agent keeps these objects until they are taken over, so that an object that moves from one
// deployment to another is never deleted in between, independent of the order in which the targets are written,
// sent, and applied:
//
//	a deployment that is written in the same step, or later for the same commit, wants it   HandOverPending
//	a target on the agent that is not in sync wants it, or would if it were not held back   HandOverPending
//	a deployment could not be evaluated at the commit that removes it                       NotEvaluated
//	the commit was not evaluated for every deployment yet                                   CommitNotEvaluated
//
// Kept objects stay kept while one of these is true.
type HandOvers struct {
	planner *Planner
	tx      store.Tx
	scope   *CommitScope
	holds   *Suspensions

	unsettled map[fleet.AgentID][]store.UnsettledTarget
	targets   map[fleet.DeploymentID][]fleet.Target // of deployments in scope
	broken    map[fleet.RepositoryID][]fleet.Deployment
	refs      map[refKey]store.EvaluatedRef
	files     map[fleet.RepositoryID]map[fleet.AgentID]bool // agents whose configuration cannot be used
	clusters  map[fleet.DeploymentID]string                 // API servers of push environments; "" for the cluster of an agent
}

type refKey struct {
	repository fleet.RepositoryID
	revision   string
}

// NewHandOvers returns the hand-overs of one transaction. scope has what is known of the other deployments of
// the commit; it may be nil.
func NewHandOvers(s *Planner, tx store.Tx, scope *CommitScope) *HandOvers {
	if scope == nil {
		scope = &CommitScope{}
	}
	return &HandOvers{
		planner: s, tx: tx, scope: scope, holds: NewSuspensions(tx),
		unsettled: map[fleet.AgentID][]store.UnsettledTarget{}, targets: map[fleet.DeploymentID][]fleet.Target{},
		broken: map[fleet.RepositoryID][]fleet.Deployment{}, refs: map[refKey]store.EvaluatedRef{},
		files: map[fleet.RepositoryID]map[fleet.AgentID]bool{}, clusters: map[fleet.DeploymentID]string{},
	}
}

// Of returns the hand-overs of t when it becomes want.
func (h *HandOvers) Of(ctx context.Context, t fleet.Target, want fleet.Desired) ([]fleet.HandOver, error) {
	gone, err := h.lost(ctx, t, want)
	if err != nil || gone.none() || t.AgentID == "" {
		return nil, err
	}
	out, err := h.wanted(ctx, t, gone, want.Tombstone && want.Consent)
	if err != nil {
		return nil, err
	}
	broken := h.scope.Unevaluated
	if ends := want.Tombstone || want.Detached; !ends && want.Digest != t.Desired.Digest {
		missed, file, err := h.missed(ctx, t)
		if err != nil {
			return nil, err
		}
		broken = slices.Concat(broken, missed)
		if file != "" && file != h.scope.Pending {
			out = append(out, fleet.HandOver{Reason: fleet.ReasonCommitNotEvaluated, Repository: file})
		}
	}
	unevaluated, err := h.unevaluated(ctx, t, gone, broken)
	if err != nil {
		return nil, err
	}
	for _, u := range unevaluated {
		if !slices.ContainsFunc(out, u.Equal) {
			out = append(out, u)
		}
	}
	return bounded(out), nil
}

// lost returns what t loses when it becomes want, and what it already hands over.
func (h *HandOvers) lost(ctx context.Context, t fleet.Target, want fleet.Desired) (lostObjects, error) {
	out := lostObjects{names: map[string]bool{}}
	for _, was := range t.Desired.HandOvers {
		out.all = out.all || was.Objects == nil
		for _, name := range was.Objects {
			out.names[name] = true
		}
	}
	ends := want.Tombstone || want.Detached
	if !ends && want.Digest == t.Desired.Digest && want.Namespace == t.Desired.Namespace && out.none() {
		return out, nil
	}
	if t.Desired.Digest == "" && t.Observed.Version != (fleet.Version{}) {
		out.all = true // it was detached and is attached again: its agent may not know that, and may have any object
	}
	before, err := h.planner.objectNames(ctx, h.tx, t.TenantID, store.PlacedBundle{Digest: t.Desired.Digest, Namespace: t.Desired.Namespace})
	if errors.Is(err, errNoBundle) {
		out.all, err = true, nil
	}
	if err != nil {
		return lostObjects{}, err
	}
	for name := range before {
		out.names[name] = true
	}
	if ends {
		return out, nil
	}
	after, err := h.planner.objectNames(ctx, h.tx, t.TenantID, store.PlacedBundle{Digest: want.Digest, Namespace: want.Namespace})
	if err != nil {
		return lostObjects{}, err
	}
	for name := range after {
		delete(out.names, name)
	}
	return out, nil
}

// wanted lists the deployments that want any of the lost objects of t. If a user deleted the deployment of t, a
// dry run of another one keeps nothing.
func (h *HandOvers) wanted(ctx context.Context, t fleet.Target, gone lostObjects, deleted bool) ([]fleet.HandOver, error) {
	byTaker := map[fleet.DeploymentID]*fleet.HandOver{}
	take := func(id fleet.DeploymentID, deployment string, objects []string) {
		if id == t.DeploymentID || len(objects) == 0 {
			return
		}
		if byTaker[id] == nil {
			byTaker[id] = &fleet.HandOver{Reason: fleet.ReasonHandOverPending, To: id, Deployment: deployment}
		}
		byTaker[id].Objects = append(byTaker[id].Objects, objects...)
	}
	coming, err := h.coming(ctx, t, gone)
	if err != nil {
		return nil, err
	}
	for _, c := range coming {
		take(c.deployment, c.name, c.objects)
	}
	unsettled, err := h.unsettledOn(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, u := range unsettled {
		if deleted && u.DryRun {
			continue
		}
		for _, bundle := range []store.PlacedBundle{u.Desired, u.Newest} {
			names, err := h.planner.objectNames(ctx, h.tx, t.TenantID, bundle)
			if errors.Is(err, errNoBundle) {
				continue // its agent cannot have it either
			}
			if err != nil {
				return nil, err
			}
			objects := gone.among(names)
			if len(objects) == 0 {
				continue
			}
			same, err := h.sameCluster(ctx, t, u.Deployment)
			if err != nil {
				return nil, err
			}
			if same {
				take(u.Deployment, u.DeploymentName, objects)
			}
		}
	}
	out := make([]fleet.HandOver, 0, len(byTaker))
	for _, id := range slices.Sorted(maps.Keys(byTaker)) {
		taker := byTaker[id]
		slices.Sort(taker.Objects)
		taker.Objects = slices.Compact(taker.Objects)
		out = append(out, *taker)
	}
	return out, nil
}

// missed lists the deployments that cannot be evaluated, and could have taken objects over by a commit that is
// new for t: because t was held back, was broken itself, or was not written with the others. file is the
// repository of t if the configuration of its agent there cannot be used: its declarations are unknown.
func (h *HandOvers) missed(ctx context.Context, t fleet.Target) (list []fleet.Deployment, file fleet.RepositoryID, err error) {
	d, err := h.tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return nil, "", err
	}
	misread, err := h.misread(ctx, t, d.RepositoryID)
	if err != nil {
		return nil, "", err
	}
	if misread {
		file = d.RepositoryID
	}
	broken, err := h.brokenIn(ctx, d)
	if err != nil {
		return nil, "", err
	}
	upToDate := h.scope.upToDate(t)
	return slices.DeleteFunc(slices.Clone(broken), func(other fleet.Deployment) bool {
		together := h.scope.Previous != nil && h.scope.Previous[d.ID] == h.scope.Previous[other.ID]
		return other.ID == d.ID || other.Source.Revision != d.Source.Revision || upToDate && together
	}), file, nil
}

// misread reports whether a repository has the configuration of t's agent and it cannot be used.
func (h *HandOvers) misread(ctx context.Context, t fleet.Target, repository fleet.RepositoryID) (bool, error) {
	agents, ok := h.files[repository]
	if !ok {
		list, err := h.tx.AgentConfigs().OfRepository(ctx, t.TenantID, repository)
		if err != nil {
			return false, err
		}
		agents = map[fleet.AgentID]bool{}
		for _, c := range list {
			agents[c.AgentID] = c.State == fleet.ConfigInvalid || c.State == fleet.ConfigRefused
		}
		h.files[repository] = agents
	}
	return agents[t.AgentID], nil
}

// brokenIn lists the deployments of d's repository whose newest commit could not be evaluated.
func (h *HandOvers) brokenIn(ctx context.Context, d fleet.Deployment) ([]fleet.Deployment, error) {
	if list, ok := h.broken[d.RepositoryID]; ok {
		return list, nil
	}
	list, err := h.tx.Deployments().OfRepository(ctx, d.TenantID, d.RepositoryID)
	if err != nil {
		return nil, err
	}
	var broken []fleet.Deployment
	for _, other := range list {
		known, err := h.evaluated(ctx, other)
		if err != nil {
			return nil, err
		}
		if !known {
			broken = append(broken, other)
		}
	}
	h.broken[d.RepositoryID] = broken
	return broken, nil
}

// evaluated reports whether a deployment was evaluated at the newest commit of its worker.
func (h *HandOvers) evaluated(ctx context.Context, d fleet.Deployment) (bool, error) {
	if h.scope.whole[d.ID] {
		return true, nil
	}
	if d.Rendered.At.IsZero() || d.PendingSpecRevision != 0 || SourceError(d) != "" {
		return false, nil
	}
	key := refKey{d.RepositoryID, d.Source.Revision}
	ref, ok := h.refs[key]
	if !ok {
		var err error
		if ref, err = h.tx.Repositories().Evaluated(ctx, d.TenantID, d.RepositoryID, d.Source.Revision); err != nil {
			return false, err
		}
		h.refs[key] = ref
	}
	return !slices.Contains(ref.Except, d.ID), nil
}

// unevaluated lists the deployments that may want lost objects of t: of those that could not be evaluated the
// ones on its agent, and what it waits for already.
func (h *HandOvers) unevaluated(ctx context.Context, t fleet.Target, gone lostObjects, broken []fleet.Deployment) ([]fleet.HandOver, error) {
	var out []fleet.HandOver
	if h.scope.Pending != "" {
		out = append(out, fleet.HandOver{Reason: fleet.ReasonCommitNotEvaluated, Repository: h.scope.Pending})
	}
	known := map[fleet.DeploymentID]bool{t.DeploymentID: true}
	for _, d := range broken {
		on, err := h.isBeside(ctx, t, d.ID)
		if err != nil {
			return nil, err
		}
		if on && !known[d.ID] {
			out = append(out, fleet.HandOver{Reason: fleet.ReasonNotEvaluated, To: d.ID, Deployment: d.Name, Objects: gone.list()})
			known[d.ID] = true
		}
	}
	for _, was := range t.Desired.HandOvers {
		still, err := h.still(ctx, t, was)
		if err != nil {
			return nil, err
		}
		if !still || known[was.To] && was.To != "" {
			continue
		}
		if was.Objects != nil {
			was.Objects = slices.DeleteFunc(slices.Clone(was.Objects), func(name string) bool { return !gone.names[name] })
			if len(was.Objects) == 0 {
				continue
			}
		}
		out = append(out, was)
	}
	return out, nil
}

// still reports whether the cause that t waits for is still unknown.
func (h *HandOvers) still(ctx context.Context, t fleet.Target, was fleet.HandOver) (bool, error) {
	switch was.Reason {
	case fleet.ReasonCommitNotEvaluated:
		if was.Repository == h.scope.Pending {
			return false, nil // determined again
		}
		misread, err := h.misread(ctx, t, was.Repository)
		return misread || was.Repository != h.scope.Evaluated, err
	case fleet.ReasonNotEvaluated:
	default:
		return false, nil
	}
	d, err := h.tx.Deployments().Get(ctx, t.TenantID, was.To)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	on, err := h.isBeside(ctx, t, d.ID)
	if err != nil || !on || !d.DeletedAt.IsZero() {
		return false, err
	}
	known, err := h.evaluated(ctx, d)
	return !known, err
}

// coming lists which lost objects of t the deployments of the commit that is being written want.
func (h *HandOvers) coming(ctx context.Context, t fleet.Target, gone lostObjects) ([]comingObjects, error) {
	var out []comingObjects
	for _, c := range h.scope.among(gone) {
		if c.deployment == t.DeploymentID {
			continue
		}
		targets, err := h.targetsOf(ctx, t.TenantID, c.deployment)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(targets, func(o fleet.Target) bool {
			return o.AgentID == t.AgentID && Attached(o) && (c.variant == "" || o.Variant == c.variant)
		}) {
			continue
		}
		same, err := h.sameCluster(ctx, t, c.deployment)
		if err != nil {
			return nil, err
		}
		if same {
			out = append(out, c)
		}
	}
	return out, nil
}

func (h *HandOvers) unsettledOn(ctx context.Context, t fleet.Target) ([]store.UnsettledTarget, error) {
	if list, ok := h.unsettled[t.AgentID]; ok {
		return list, nil
	}
	list, err := h.tx.Targets().Unsettled(ctx, t.TenantID, []fleet.AgentID{t.AgentID})
	h.unsettled[t.AgentID] = list
	return list, err
}

func (h *HandOvers) targetsOf(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Target, error) {
	if list, ok := h.targets[id]; ok {
		return list, nil
	}
	list, err := h.tx.Targets().OfDeployment(ctx, tenant, id)
	h.targets[id] = list
	return list, err
}

// isBeside reports whether a deployment belongs on the agent of t, in the same cluster.
func (h *HandOvers) isBeside(ctx context.Context, t fleet.Target, id fleet.DeploymentID) (bool, error) {
	targets, err := h.targetsOf(ctx, t.TenantID, id)
	if err != nil || !slices.ContainsFunc(targets, func(o fleet.Target) bool { return o.AgentID == t.AgentID && Attached(o) }) {
		return false, err
	}
	return h.sameCluster(ctx, t, id)
}

// Refresh updates the hand-overs of targets that wait for something that has changed. Those of suspended
// deployments are updated when they are resumed: an object that is no longer kept is deleted.
func (h *HandOvers) Refresh(ctx context.Context, tenant fleet.TenantID, changed func(fleet.HandOver) bool) error {
	targets, err := h.tx.Targets().HandingOver(ctx, tenant)
	if err != nil {
		return err
	}
	clear(h.unsettled) // which may have changed since
	clear(h.targets)
	clear(h.clusters)
	for _, t := range targets {
		if !slices.ContainsFunc(t.Desired.HandOvers, changed) || Attached(t) && h.planner.Ahead(t) {
			continue
		}
		now, err := h.Of(ctx, t, t.Desired)
		if err != nil {
			return fmt.Errorf("computing the hand-overs of target %s: %w", t.ID, err)
		}
		if suspended, err := h.isSuspended(ctx, t); err != nil {
			return err
		} else if suspended {
			continue
		}
		if err := h.set(ctx, t, now); err != nil {
			return err
		}
	}
	return nil
}

// isSuspended reports whether an attached target may not get a new state. The end of a target is explicit.
func (h *HandOvers) isSuspended(ctx context.Context, t fleet.Target) (bool, error) {
	if !Attached(t) {
		return false, nil
	}
	d, err := h.tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return false, fmt.Errorf("reading the deployment of target %s: %w", t.ID, err)
	}
	cause, err := h.holds.Of(ctx, d)
	return !cause.IsZero(), err
}

// set writes the hand-overs of t, if they changed.
func (h *HandOvers) set(ctx context.Context, t fleet.Target, now []fleet.HandOver) error {
	if slices.EqualFunc(t.Desired.HandOvers, now, fleet.HandOver.Equal) {
		return nil
	}
	want := t.Desired
	want.Version, want.HandOvers = h.planner.Next(Newest(t)), now
	return h.tx.Targets().SetDesired(ctx, t.TenantID, t.ID, want)
}

// KeepAll lets the targets of a deployment that is being removed keep everything until the commit that removes
// it is evaluated.
func (h *HandOvers) KeepAll(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	targets, err := h.tx.Targets().OfDeployment(ctx, tenant, id)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if t.AgentID == "" || !t.Desired.Tombstone && !t.Desired.Detached {
			continue
		}
		now, err := h.unevaluated(ctx, t, lostObjects{all: true}, h.scope.Unevaluated)
		if err != nil {
			return err
		}
		if err := h.set(ctx, t, now); err != nil {
			return err
		}
	}
	return nil
}

// bounded keeps the list within the limit of a frame: above it, everything that left the target is kept.
func bounded(list []fleet.HandOver) []fleet.HandOver {
	if len(list) > wire.MaxHandOvers {
		list = list[:wire.MaxHandOvers]
		list[0].Objects = nil
	}
	if wire.TooManyHandedOver(list) {
		for i := range list {
			list[i].Objects = nil
		}
	}
	return slices.Clip(list)
}
