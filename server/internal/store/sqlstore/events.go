package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type events struct{ tx *Tx }

func (s events) Append(ctx context.Context, e fleet.Event) error {
	err := s.tx.of(e.TenantID).last(ctx, `INSERT INTO events (tenant_id, at, type, reason, agent, deployment, object, message)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		e.TenantID, micros(e.At), e.Type, e.Reason, e.Agent, e.Deployment, e.Object, e.Message)
	if err != nil {
		return fmt.Errorf("appending event %q: %w", e.Reason, err)
	}
	return s.tx.record(store.Change{TenantID: e.TenantID, Kind: store.ChangeEvent})
}

func (s events) List(ctx context.Context, tenant fleet.TenantID, f store.EventFilter) ([]fleet.Event, error) {
	if err := s.tx.flush(ctx); err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	var out []fleet.Event
	query, args := eventQuery(tenant, f)
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var e fleet.Event
		err := row.Scan(&e.Seq, timeInto(&e.At), &e.TenantID, &e.Type, &e.Reason, &e.Agent, &e.Deployment, &e.Object, &e.Message)
		out = append(out, e)
		return err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("listing events: %w", err)
	}
	return out, nil
}

// eventQuery omits conditions that are not requested, so that an index can serve each combination.
func eventQuery(tenant fleet.TenantID, f store.EventFilter) (string, []any) {
	var a args
	where := `tenant_id = ` + a.add(tenant)
	for _, c := range []struct{ column, value string }{
		{"agent", f.Agent}, {"deployment", f.Deployment}, {"reason", string(f.Reason)}, {"type", string(f.Type)},
	} {
		if c.value != "" {
			where += ` AND ` + c.column + ` = ` + a.add(c.value)
		}
	}
	if f.BeforeSeq > 0 {
		where += ` AND seq < ` + a.add(f.BeforeSeq)
	}
	if !f.Since.IsZero() {
		where += ` AND at >= ` + a.add(micros(f.Since)) // the log is trimmed, so the number of skipped rows is limited
	}
	const columns = `seq, at, tenant_id, type, reason, agent, deployment, object, message`
	if f.AfterSeq > 0 {
		return `SELECT ` + columns + ` FROM events WHERE ` + where + ` AND seq > ` + a.add(f.AfterSeq) +
			` ORDER BY seq LIMIT ` + a.add(limitOf(f.Limit)), a
	}
	return `SELECT ` + columns + ` FROM (SELECT ` + columns + ` FROM events
		WHERE ` + where + ` ORDER BY seq DESC LIMIT ` + a.add(limitOf(f.Limit)) + `) AS newest ORDER BY seq`, a
}

func (s events) Trim(ctx context.Context, tenant fleet.TenantID, n int) error {
	if err := s.tx.flush(ctx); err != nil {
		return fmt.Errorf("trimming events to %d: %w", n, err)
	}
	_, err := s.tx.aside().exec(ctx, `DELETE FROM events WHERE tenant_id = $1 AND seq <= (
		SELECT x.seq FROM events x WHERE x.tenant_id = $1 ORDER BY x.seq DESC LIMIT 1 OFFSET $2)`, tenant, max(n, 0))
	if err != nil {
		return fmt.Errorf("trimming events to %d: %w", n, err)
	}
	return nil
}
