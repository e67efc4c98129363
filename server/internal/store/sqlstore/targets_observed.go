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

// rounds splits reports so that each round has at most one of each target, in their order.
func rounds(reports []store.AgentReport) [][]store.AgentReport {
	var out [][]store.AgentReport
	turn := make(map[fleet.TargetID]int, len(reports))
	for _, r := range reports {
		n := turn[r.Target]
		turn[r.Target]++
		if n == len(out) {
			out = append(out, make([]store.AgentReport, 0, len(reports)-len(turn)+1))
		}
		if n > 0 {
			r.Before = nil // the previous round may have changed it
		}
		out[n] = append(out[n], r)
	}
	return out
}

// observation is a report that may contain changes.
type observation struct {
	*store.AgentReport
	fresh   bool // it changes more than the time of the target
	touched bool // it changes objects of the target
}

// observe writes reports of different targets.
//
// If there are other writers, it reads twice: reports with changes are checked again with the rows locked, so
// that of two concurrent reports the older one is dropped. Reports without changes, which are most, lock
// nothing.
func (s targets) observe(ctx context.Context, tenant fleet.TenantID, reports []store.AgentReport) (changed []fleet.TargetID, err error) {
	if !s.tx.writable {
		return nil, store.ErrReadOnly
	}
	reports = mended(reports)
	if err := s.lookFirst(ctx, tenant, reports); err != nil {
		return nil, err
	}
	reports = newsOf(tenant, reports)
	if len(reports) == 0 {
		return nil, nil
	}
	if !s.tx.conn.Alone() {
		if err := s.look(ctx, tenant, reports, `ORDER BY t.id /* FOR NO KEY UPDATE */`); err != nil {
			return nil, err
		}
		reports = newsOf(tenant, reports)
	}
	news := make([]*observation, len(reports))
	for i := range reports {
		news[i] = &observation{AgentReport: &reports[i], fresh: tellsMore(reports[i].Observed, reports[i].Before.Observed)}
	}
	if err := s.setObjects(ctx, tenant, news); err != nil {
		return nil, err
	}
	return s.setStatuses(ctx, tenant, news)
}

// mended returns reports with the values that a later read returns, so that they can be compared with stored
// ones.
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

// lookFirst reads the targets that the caller has not read.
func (s targets) lookFirst(ctx context.Context, tenant fleet.TenantID, reports []store.AgentReport) error {
	var unknown []store.AgentReport
	var at []int
	for i, r := range reports {
		if r.Before == nil {
			unknown, at = append(unknown, r), append(at, i)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	err := s.look(ctx, tenant, unknown, ``)
	for i, r := range unknown {
		reports[at[i]].Before = r.Before
	}
	return err
}

// look sets Before of the reports; nil if there is no such target.
func (s targets) look(ctx context.Context, tenant fleet.TenantID, reports []store.AgentReport, hold string) error {
	ids := idsOf(reports, func(r *store.AgentReport) fleet.TargetID { return r.Target })
	found, err := s.standings(ctx, s.tx.of(tenant), ids, standingColumns+`WHERE t.tenant_id = $1 AND t.id IN (SELECT value FROM json_each($2)) `+hold,
		string(tenant), idList(ids))
	at := make(map[fleet.TargetID]*store.Standing, len(found))
	for i := range found {
		at[found[i].ID] = &found[i]
	}
	for i := range reports {
		reports[i].Before = at[reports[i].Target]
	}
	return err
}

// newsOf returns the reports that may have to be written, in their order, which is that of the records. It
// skips reports of targets of other agents and of older versions.
func newsOf(tenant fleet.TenantID, reports []store.AgentReport) []store.AgentReport {
	out := reports[:0]
	for _, r := range reports {
		b := r.Before
		if b == nil || b.TenantID != tenant || b.AgentID != r.Agent || r.Observed.Compare(b.Observed.Version) < 0 {
			continue
		}
		if r.Full || len(r.Objects)+len(r.Gone) > 0 || tellsMore(r.Observed, b.Observed) {
			out = append(out, r)
		}
	}
	return out
}

// tellsMore reports whether a status differs in more than its time; the first one always does.
func tellsMore(reported, stored fleet.Observed) bool {
	first := stored.AsOf.IsZero() && !reported.AsOf.IsZero()
	reported.AsOf = stored.AsOf
	return first || reported != stored
}

// setStatus writes a status, and setMessage one without a change of sync and health: a database that does not
// compare would remove the row from the indexes of these columns and add it again.
var (
	setStatus = Bulk{
		One: `UPDATE targets SET observed_epoch = $3, observed_generation = $4, observed_digest = $5, observed_sync = $6,
				observed_health = $7, observed_as_of = $8, observed_message = $9, observed_reason = $10,
				observed_sync_at = CASE WHEN observed_sync = $6 AND observed_epoch = $3 AND observed_generation = $4 THEN observed_sync_at ELSE $8 END,
				observed_health_at = CASE WHEN observed_health = $7 THEN observed_health_at ELSE $8 END
			WHERE tenant_id = $1 AND id = $2`,
		Many: `UPDATE targets AS t SET observed_epoch = r.epoch, observed_generation = r.generation, observed_digest = r.digest,
				observed_sync = r.sync, observed_health = r.health, observed_as_of = r.as_of, observed_message = r.message, observed_reason = r.reason,
				observed_sync_at = CASE WHEN t.observed_sync = r.sync AND t.observed_epoch = r.epoch AND t.observed_generation = r.generation
					THEN t.observed_sync_at ELSE r.as_of END,
				observed_health_at = CASE WHEN t.observed_health = r.health THEN t.observed_health_at ELSE r.as_of END
			FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[], $10::text[])
				AS r (id, epoch, generation, digest, sync, health, as_of, message, reason)
			WHERE t.tenant_id = $1 AND t.id = r.id`,
	}
	setMessage = Bulk{
		One: `UPDATE targets SET observed_digest = $3, observed_as_of = $4, observed_message = $5, observed_reason = $6 WHERE tenant_id = $1 AND id = $2`,
		Many: `UPDATE targets AS t SET observed_digest = r.digest, observed_as_of = r.as_of, observed_message = r.message, observed_reason = r.reason
			FROM unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[]) AS r (id, digest, as_of, message, reason)
			WHERE t.tenant_id = $1 AND t.id = r.id`,
	}
)

// setStatuses writes and records those that changed, in the order of their reports.
func (s targets) setStatuses(ctx context.Context, tenant fleet.TenantID, news []*observation) (changed []fleet.TargetID, err error) {
	var statuses, messages [][]any
	for _, x := range news {
		if !x.fresh && !x.touched {
			continue
		}
		o, b := x.Observed, x.Before.Observed
		if o.Version == b.Version && o.Sync == b.Sync && o.Health == b.Health {
			messages = append(messages, []any{string(x.Target), o.Digest, micros(o.AsOf), o.Message, string(o.Reason)})
		} else {
			statuses = append(statuses, []any{string(x.Target), o.Epoch, o.Generation, o.Digest, string(o.Sync), string(o.Health), micros(o.AsOf), o.Message, string(o.Reason)})
		}
		changed = append(changed, x.Target)
		if err := s.recordTarget(store.ChangeStatus, tenant, x.Target, x.Agent, x.Before.DeploymentID); err != nil {
			return nil, err
		}
	}
	if err := s.tx.of(tenant).bulk(ctx, setStatus, statuses, nil); err != nil {
		return nil, err
	}
	return changed, s.tx.of(tenant).bulk(ctx, setMessage, messages, nil)
}
