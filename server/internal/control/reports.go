package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Report writes what agents said, all in one transaction and with a few statements per tenant. What is
// not about a target of the agent is passed over; what says nothing new writes nothing. An agent that is
// ahead of the server is heard of here too: one that polls says what it has in no other way.
func (s *Service) Report(ctx context.Context, batch []AgentReports) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		targets, err := targetsNamed(ctx, tx, batch)
		if err != nil {
			return err
		}
		said := sortReports(batch, targets)
		for _, tenant := range said.tenants {
			if err := s.reportsOf(ctx, tx, tenant, said.reports[tenant], targets); err != nil {
				return fmt.Errorf("recording %d statuses: %w", len(said.reports[tenant]), err)
			}
		}
		for _, from := range batch {
			for _, e := range from.Events {
				t, ok := targets[e.Target]
				if e.Target != "" && (!ok || t.AgentID != from.Agent.ID) {
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

// targetsNamed reads the targets that agents speak of: they say whose they are.
func targetsNamed(ctx context.Context, tx store.Tx, batch []AgentReports) (map[fleet.TargetID]fleet.Target, error) {
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
	rows, err := tx.Targets().ListAllTenants(ctx, slices.Compact(ids))
	out := make(map[fleet.TargetID]fleet.Target, len(rows))
	for _, t := range rows {
		out[t.ID] = t
	}
	return out, err
}

// byTenant is a batch by the tenants of the targets: those of the deployments, not of the agents.
type byTenant struct {
	tenants []fleet.TenantID
	reports map[fleet.TenantID][]store.AgentReport
}

func sortReports(batch []AgentReports, targets map[fleet.TargetID]fleet.Target) byTenant {
	out := byTenant{reports: map[fleet.TenantID][]store.AgentReport{}}
	for _, from := range batch {
		for _, r := range from.Reports {
			t, ok := targets[r.Target]
			if !ok || t.AgentID != from.Agent.ID {
				continue // not (or no longer) a target of this agent
			}
			r = understood(t, r)
			if out.reports[t.TenantID] == nil {
				out.tenants = append(out.tenants, t.TenantID)
			}
			out.reports[t.TenantID] = append(out.reports[t.TenantID], store.AgentReport{Agent: from.Agent.ID, Report: r})
		}
	}
	slices.Sort(out.tenants)
	return out
}

// understood is a report as it is to be kept.
func understood(t fleet.Target, r store.Report) store.Report {
	o := &r.Observed
	if o.Sync == fleet.SyncDetached && len(r.Objects) == 0 {
		r.Full = false // it knows of none any more: what is listed stays listed
	}
	switch {
	case t.Desired.Tombstone || t.Desired.Detached:
	case ahead(t, *o):
		// In sync with what, only the agent knows.
		o.Sync, o.Message = fleet.SyncRewound, rewoundMessage+suffixed(said(o.Message))
	case o.Sync == fleet.SyncRewound:
		o.Sync, o.Message = fleet.SyncPending, "" // what the server has for it is newer already
	}
	return r
}

func said(message string) string {
	if message == "" {
		return ""
	}
	return "it says: " + message
}

// reportsOf writes what was said of the targets of one tenant, and does what follows from it.
func (s *Service) reportsOf(
	ctx context.Context, tx store.Tx, tenant fleet.TenantID, reports []store.AgentReport, targets map[fleet.TargetID]fleet.Target,
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
	for _, id := range changed {
		t := targets[id]
		news := ahead(t, observed[id]) && !ahead(t, t.Observed)
		t.Observed = observed[id]
		_, waits := awaited[id]
		switch {
		case news:
			err = s.catchUp(ctx, tx, t, t.Observed.Version)
		case t.Desired.Tombstone && t.Observed.Sync == fleet.SyncDeleted && t.Observed.Version == t.Desired.Version:
			err = s.targetGone(ctx, tx, t)
		case waits || letGo(t):
			err = s.observed(ctx, tx, t)
		}
		if err != nil {
			return fmt.Errorf("target %s: %w", id, err)
		}
	}
	return nil
}

// relayEvent files an event where the people are whom it concerns: with the deployment's tenant, or
// with the agent's when it is about the agent itself.
func relayEvent(ctx context.Context, tx store.Tx, agent fleet.Agent, t fleet.Target, e fleet.Event) error {
	e.TenantID, e.Agent, e.Deployment = agent.TenantID, agent.Name, ""
	if t.ID != "" {
		e.TenantID, e.Deployment = t.TenantID, t.DeploymentName
	}
	return tx.Events().Append(ctx, e)
}
