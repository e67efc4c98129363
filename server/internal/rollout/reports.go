package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// Report writes reports of agents, all in one transaction and with a few statements per tenant. It skips
// reports about targets of other agents; reports without changes write nothing. It also detects agents that are
// ahead of the server: polling agents report their state in no other way.
func (s *Planner) Report(ctx context.Context, batch []AgentReports) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		targets, err := standingsOf(ctx, tx, batch)
		if err != nil {
			return err
		}
		said := s.sortReports(batch, targets)
		for _, tenant := range said.tenants {
			if err := s.reportsOf(ctx, tx, tenant, said.reports[tenant], targets); err != nil {
				return fmt.Errorf("recording %d statuses: %w", len(said.reports[tenant]), err)
			}
		}
		for _, from := range batch {
			for _, e := range from.Events {
				t := targets[e.Target]
				if e.Target != "" && (t == nil || t.AgentID != from.Agent.ID) {
					continue
				}
				if err := relayEvent(ctx, tx, from.Agent, t, e.Event); err != nil {
					return fmt.Errorf("recording an event of agent %q: %w", from.Agent.Name, err)
				}
			}
		}
		return nil
	})
}

// standings returns the targets of reports, with their tenants.
type standings map[fleet.TargetID]*store.Standing

func standingsOf(ctx context.Context, tx store.Tx, batch []AgentReports) (standings, error) {
	var ids []fleet.TargetID
	for _, from := range batch {
		for _, r := range from.Reports {
			ids = append(ids, r.Target)
		}
		for _, e := range from.Events {
			if e.Target != "" {
				ids = append(ids, e.Target)
			}
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	slices.Sort(ids)
	rows, err := tx.Targets().StandingsAllTenants(ctx, slices.Compact(ids))
	out := make(standings, len(rows))
	for i := range rows {
		out[rows[i].ID] = &rows[i]
	}
	return out, err
}

// standing returns a target with only the fields of a standing.
func standing(s store.Standing) fleet.Target {
	return fleet.Target{
		ID: s.ID, TenantID: s.TenantID, DeploymentID: s.DeploymentID, DeploymentName: s.DeploymentName, AgentID: s.AgentID, Observed: s.Observed,
		Desired: fleet.Desired{
			Version: s.Desired.Version, Digest: s.Desired.Digest, Tombstone: s.Desired.Tombstone, Detached: s.Desired.Detached},
	}
}

// byTenant groups a batch by the tenants of the targets: those of the deployments, not of the agents.
type byTenant struct {
	tenants []fleet.TenantID
	reports map[fleet.TenantID][]store.AgentReport
}

func (s *Planner) sortReports(batch []AgentReports, targets standings) byTenant {
	out := byTenant{reports: map[fleet.TenantID][]store.AgentReport{}}
	for _, from := range batch {
		for _, r := range from.Reports {
			t := targets[r.Target]
			if t == nil || t.AgentID != from.Agent.ID {
				continue // not (or no longer) a target of this agent
			}
			r = s.understood(standing(*t), r)
			if out.reports[t.TenantID] == nil {
				out.tenants = append(out.tenants, t.TenantID)
			}
			out.reports[t.TenantID] = append(out.reports[t.TenantID], store.AgentReport{Agent: from.Agent.ID, Before: t, Report: r})
		}
	}
	slices.Sort(out.tenants)
	return out
}

// understood returns a report in the form that is stored.
func (s *Planner) understood(t fleet.Target, r store.Report) store.Report {
	o := &r.Observed
	if o.Sync == fleet.SyncDetached && len(r.Objects) == 0 {
		r.Full = false // the agent has no objects any more: listed ones stay listed
	}
	switch {
	case !o.Plausible(s.highestGiven(t)):
		// Stored with the known version: see refuseVersion.
		o.Sync, o.Health, o.Message = fleet.SyncFailed, fleet.HealthUnknown, refusedVersion(o.Version, s.highestGiven(t))
		o.Version, o.Digest = t.Observed.Version, t.Observed.Digest
	case t.Desired.Tombstone || t.Desired.Detached:
	case ahead(t, *o):
		// Only the agent knows its state.
		o.Sync, o.Message = fleet.SyncRewound, rewoundMessage+wording.Suffix(said(o.Message))
	case o.Sync == fleet.SyncRewound:
		o.Sync, o.Message = fleet.SyncPending, "" // the server already has a newer state for it
	}
	return r
}

func said(message string) string {
	if message == "" {
		return ""
	}
	return "it says: " + message
}

// reportsOf writes the reports about the targets of one tenant, and handles the consequences.
func (s *Planner) reportsOf(
	ctx context.Context, tx store.Tx, tenant fleet.TenantID, reports []store.AgentReport, targets standings,
) error {
	changed, err := tx.Targets().SetObserved(ctx, tenant, reports)
	if err != nil || len(changed) == 0 {
		return err
	}
	observed := make(map[fleet.TargetID]fleet.Observed, len(reports))
	for _, r := range reports {
		observed[r.Target] = r.Observed
	}
	awaited, err := tx.Runs().WaitingForTargets(ctx, tenant, changed)
	if err != nil {
		return err
	}
	due := slices.DeleteFunc(changed, func(id fleet.TargetID) bool {
		_, waits := awaited[id]
		return consequenceOf(standing(*targets[id]), observed[id], waits) == noConsequence
	})
	if len(due) == 0 {
		return nil
	}
	// Consequences depend on the complete, current target.
	whole, err := tx.Targets().List(ctx, tenant, due)
	if err != nil {
		return err
	}
	for _, t := range whole {
		t.Observed = targets[t.ID].Observed
		_, waits := awaited[t.ID]
		if err := s.conclude(ctx, tx, t, observed[t.ID], waits); err != nil {
			return fmt.Errorf("target %s: %w", t.ID, err)
		}
	}
	return nil
}

// consequence is what follows from a report.
type consequence int

const (
	noConsequence consequence = iota
	agentIsAhead              // and was not before
	tombstoneDone
	mayBeAwaited // by a run, or by a deletion
)

// consequenceOf returns the consequence of a report about a target, which is in its previous state.
func consequenceOf(t fleet.Target, now fleet.Observed, awaited bool) consequence {
	news := ahead(t, now) && !ahead(t, t.Observed)
	t.Observed = now
	switch {
	case news:
		return agentIsAhead
	case t.Desired.Tombstone && now.Sync == fleet.SyncDeleted && now.Version == t.Desired.Version:
		return tombstoneDone
	case awaited || Released(t):
		return mayBeAwaited
	}
	return noConsequence
}

// conclude handles the consequence of a report.
func (s *Planner) conclude(ctx context.Context, tx store.Tx, t fleet.Target, now fleet.Observed, awaited bool) error {
	what := consequenceOf(t, now, awaited)
	t.Observed = now
	switch what {
	case agentIsAhead:
		return s.catchUpSoon(ctx, tx, t, now.Version)
	case tombstoneDone:
		return s.TargetGone(ctx, tx, t)
	case mayBeAwaited:
		return s.observed(ctx, tx, t)
	}
	return nil
}

// relayEvent stores an event in the affected tenant: that of the deployment, or that of the agent if it is
// about the agent itself.
func relayEvent(ctx context.Context, tx store.Tx, agent fleet.Agent, t *store.Standing, e fleet.Event) error {
	e.TenantID, e.Agent, e.Deployment = agent.TenantID, agent.Name, ""
	if t != nil {
		e.TenantID, e.Deployment = t.TenantID, t.DeploymentName
	}
	return tx.Events().Append(ctx, e)
}
