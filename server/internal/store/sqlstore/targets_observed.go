package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s targets) SetObserved(ctx context.Context, tenant fleet.TenantID, reports []store.AgentReport) ([]fleet.TargetID, error) {
	var changed []fleet.TargetID
	seen := map[fleet.TargetID]bool{}
	for _, round := range rounds(reports) {
		ids, err := s.observe(ctx, tenant, round)
		if err != nil {
			return nil, fmt.Errorf("recording %d reports: %w", len(reports), err)
		}
		for _, id := range ids {
			if !seen[id] {
				seen[id] = true
				changed = append(changed, id)
			}
		}
	}
	return changed, nil
}

// rounds splits reports such that each round has at most one of each target, in their order.
func rounds(reports []store.AgentReport) [][]store.AgentReport {
	var out [][]store.AgentReport
	turn := map[fleet.TargetID]int{}
	for _, r := range reports {
		n := turn[r.Target]
		turn[r.Target]++
		if n == len(out) {
			out = append(out, make([]store.AgentReport, 0, len(reports)-len(turn)+1))
		}
		out[n] = append(out[n], r)
	}
	return out
}

// observation is a report that may be news, with what there was before.
type observation struct {
	store.Report
	agent      fleet.AgentID
	deployment fleet.DeploymentID
	fresh      bool // it tells more than the time, of the target itself
	touched    bool // or of its objects
}

// observe writes reports of different targets.
//
// Where others write too it looks twice: what is news is looked at again with the rows held, so that
// of two reports at once the older one gives way. What is not, which is most of what an agent says in
// peace, holds nothing.
func (s targets) observe(ctx context.Context, tenant fleet.TenantID, reports []store.AgentReport) (changed []fleet.TargetID, err error) {
	if !s.tx.writable {
		return nil, store.ErrReadOnly
	}
	news, err := s.news(ctx, tenant, mended(reports), ``)
	if err != nil || len(news) == 0 {
		return nil, err
	}
	if !s.tx.conn.Alone() {
		again := make([]store.AgentReport, len(news))
		for i, o := range news {
			again[i] = store.AgentReport{Agent: o.agent, Report: o.Report}
		}
		if news, err = s.news(ctx, tenant, again, `ORDER BY id /* FOR NO KEY UPDATE */`); err != nil {
			return nil, err
		}
	}
	if err := s.setObjects(ctx, tenant, news); err != nil {
		return nil, err
	}
	return s.setStatuses(ctx, tenant, news)
}

// mended returns reports as they will be read back, so that they can be compared with what is stored.
func mended(reports []store.AgentReport) []store.AgentReport {
	out := make([]store.AgentReport, len(reports))
	for i, r := range reports {
		o := &r.Observed
		o.Digest, o.Message = Mend(o.Digest), Mend(o.Message)
		o.Sync, o.Health = fleet.SyncState(Mend(string(o.Sync))), fleet.Health(Mend(string(o.Health)))
		r.Objects, r.Gone = mendedObjects(r.Objects), mendedRefs(r.Gone)
		out[i] = r
	}
	return out
}

// news returns what may have to be written. Reports of targets of others and of older versions are
// passed over.
func (s targets) news(ctx context.Context, tenant fleet.TenantID, reports []store.AgentReport, hold string) (out []*observation, err error) {
	at := make(map[fleet.TargetID]*store.AgentReport, len(reports))
	for i := range reports {
		at[reports[i].Target] = &reports[i]
	}
	found := make(map[fleet.TargetID]*observation, len(reports))
	err = s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.TargetID
		var agent fleet.AgentID
		var o fleet.Observed
		x := &observation{}
		err := row.Scan(&id, &agent, &x.deployment, &o.Epoch, &o.Generation, &o.Digest, &o.Sync, &o.Health, timeInto(&o.AsOf), &o.Message)
		r := at[id]
		if err != nil || r == nil || r.Agent != agent {
			return err
		}
		x.Report, x.agent, x.fresh = r.Report, agent, tellsMore(r.Observed, o)
		if r.Observed.Compare(o.Version) >= 0 && (x.fresh || r.Full || len(r.Objects)+len(r.Gone) > 0) {
			found[id] = x
		}
		return nil
	}, `SELECT id, COALESCE(agent_id, ''), deployment_id, observed_epoch, observed_generation, observed_digest, observed_sync,
			observed_health, observed_as_of, observed_message
		FROM targets WHERE tenant_id = $1 AND id IN (SELECT value FROM json_each($2)) `+hold,
		string(tenant), idList(idsOf(reports, func(r *store.AgentReport) fleet.TargetID { return r.Target })))
	for _, r := range reports { // in their order: that of the records
		if x := found[r.Target]; x != nil {
			out = append(out, x)
		}
	}
	return out, err
}

// tellsMore reports whether a status says more than the time that it is of; the first one always does.
func tellsMore(reported, stored fleet.Observed) bool {
	first := stored.AsOf.IsZero() && !reported.AsOf.IsZero()
	reported.AsOf = stored.AsOf
	return first || reported != stored
}

var setStatus = Bulk{
	One: `UPDATE targets SET observed_epoch = $3, observed_generation = $4, observed_digest = $5, observed_sync = $6,
			observed_health = $7, observed_as_of = $8, observed_message = $9
		WHERE tenant_id = $1 AND id = $2`,
	Many: `UPDATE targets AS t SET observed_epoch = r.epoch, observed_generation = r.generation, observed_digest = r.digest,
			observed_sync = r.sync, observed_health = r.health, observed_as_of = r.as_of, observed_message = r.message
		FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[])
			AS r (id, epoch, generation, digest, sync, health, as_of, message)
		WHERE t.tenant_id = $1 AND t.id = r.id`,
}

// setStatuses writes and records those that changed, in the order of their reports.
func (s targets) setStatuses(ctx context.Context, tenant fleet.TenantID, news []*observation) (changed []fleet.TargetID, err error) {
	var rows [][]any
	for _, x := range news {
		if !x.fresh && !x.touched {
			continue
		}
		o := x.Observed
		rows = append(rows, []any{string(x.Target), o.Epoch, o.Generation, o.Digest, string(o.Sync), string(o.Health), micros(o.AsOf), o.Message})
		changed = append(changed, x.Target)
		if err := s.recordTarget(store.ChangeStatus, tenant, x.Target, x.agent, x.deployment); err != nil {
			return nil, err
		}
	}
	return changed, s.tx.of(tenant).bulk(ctx, setStatus, rows, nil)
}
