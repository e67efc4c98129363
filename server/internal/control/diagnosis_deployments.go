package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// deployments finds unhealthy deployments with the filters of the listing: healthy ones are not read.
func (e *examiner) deployments(ctx context.Context) error {
	var err error
	if e.out.Deployments, err = e.tx.Deployments().Count(ctx, e.tenant.ID); err != nil {
		return err
	}
	held, err := e.prunes(ctx)
	if err != nil {
		return err
	}
	if err := e.leaving(ctx, held); err != nil {
		return err
	}
	found := map[fleet.DeploymentID]fleet.Deployment{}
	for _, f := range []store.DeploymentFilter{
		{Sync: fleet.SyncFailed}, {Sync: fleet.SyncRewound}, {Sync: fleet.SyncOutOfSync},
		{Health: fleet.HealthFailed}, {Health: fleet.HealthStale},
	} {
		f.Limit = maxFindings + 1
		list, err := e.tx.Deployments().List(ctx, e.tenant.ID, f)
		if err != nil {
			return err
		}
		e.out.Truncated = e.out.Truncated || len(list) > maxFindings
		for _, d := range list[:min(len(list), maxFindings)] {
			found[d.ID] = d
		}
	}
	unwell := make([]fleet.Deployment, 0, len(found))
	for _, d := range found {
		unwell = append(unwell, d)
	}
	slices.SortFunc(unwell, func(a, b fleet.Deployment) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	views, err := newViewer(e.tx, e.tenant.ID).deployments(ctx, unwell)
	for _, v := range views {
		e.deployment(v, held[v.ID])
	}
	return err
}

// deployment adds the most important finding about a deployment. If it is out of sync because of held prunes,
// their finding is sufficient: the next step is to confirm them.
func (e *examiner) deployment(v DeploymentView, holdsPrunes bool) {
	f := Finding{Part: PartDeployments, Severity: SeverityProblem, Subject: v.Name, Message: v.Message, Next: "kedge status " + v.Name}
	switch {
	case !v.DeletedAt.IsZero() && v.Sync != fleet.SyncFailed:
		return // on its way out
	case v.SourceError != "":
		f.Reason = fleet.ReasonSourceInvalid
	case v.Sync == fleet.SyncFailed:
		f.Reason = fleet.ReasonSyncFailed
	case v.Sync == fleet.SyncRewound:
		f.Reason = fleet.ReasonRewound
	case v.Health == fleet.HealthFailed:
		f.Reason, f.Message = fleet.ReasonUnhealthy, "it is not healthy"+wording.Suffix(v.Message)
	case v.Health == fleet.HealthStale:
		f.Reason = fleet.ReasonStale
		f.Message = fmt.Sprintf("the state of %s is unknown since %s: the agents are not connected", wording.Count(v.Counts.Stale, "target"), v.Counts.StaleSince.UTC().Format(time.RFC3339))
	case v.Sync == fleet.SyncOutOfSync && v.Counts.HeldBack > 0:
		f.Severity, f.Reason, f.Message = SeverityNotice, fleet.ReasonNewRevisionWaits, "a newer revision is not sent: "+v.Held.Message
	case v.Sync == fleet.SyncOutOfSync && !holdsPrunes:
		f.Reason = fleet.ReasonDrifted
	default:
		return
	}
	e.add(f)
}

// prunes adds findings about held deletions, and returns their deployments.
func (e *examiner) prunes(ctx context.Context) (map[fleet.DeploymentID]bool, error) {
	held, err := e.tx.Targets().HeldByDeployment(ctx, e.tenant.ID, maxFindings+1)
	e.out.Truncated = e.out.Truncated || len(held) > maxFindings
	of := map[fleet.DeploymentID]bool{}
	for _, h := range held[:min(len(held), maxFindings)] {
		of[h.Deployment] = true
		e.add(Finding{
			PartDeployments, SeverityProblem, fleet.ReasonPruneHeld, h.Name,
			fmt.Sprintf("the deletion of %s on %s waits for a confirmation", wording.Count(h.Objects, "object"), wording.Count(h.Targets, "cluster")),
			"kedge deploy prunes " + h.Name,
		})
	}
	return of, err
}

// leaving adds findings about deleted deployments that wait until other deployments take over their objects, which may never
// happen. held are the deployments that have a finding already.
func (e *examiner) leaving(ctx context.Context, held map[fleet.DeploymentID]bool) error {
	list, err := e.tx.Deployments().List(ctx, e.tenant.ID, store.DeploymentFilter{Reason: fleet.ReasonDeleting, Page: store.Page{Limit: maxFindings + 1}})
	if err != nil {
		return err
	}
	e.out.Truncated = e.out.Truncated || len(list) > maxFindings
	for _, d := range list[:min(len(list), maxFindings)] {
		if held[d.ID] {
			continue
		}
		if err := e.waiting(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// waiting adds a finding about a deleted deployment if an agent has reported that an object of it waits.
func (e *examiner) waiting(ctx context.Context, d fleet.Deployment) error {
	targets, err := e.tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	answered := map[fleet.TargetID]bool{}
	for _, t := range targets {
		answered[t.ID] = t.Desired.Tombstone && t.Observed.Version == t.Desired.Version
	}
	return eachHeld(ctx, e.tx, d, store.HeldObject{}, func(o store.HeldObject) (more bool) {
		if answered[o.Target] {
			e.add(Finding{
				PartDeployments, SeverityProblem, fleet.ReasonHandOverPending, d.Name,
				fmt.Sprintf("it is deleted, except for objects that another deployment is to take over: %s on %s: %s", o, o.Agent, o.Message),
				"kedge deploy prunes " + d.Name,
			})
		}
		return !answered[o.Target]
	})
}
