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
