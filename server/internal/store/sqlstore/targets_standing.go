package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const standingColumns = `SELECT t.id, t.tenant_id, t.deployment_id, t.deployment_name, COALESCE(t.agent_id, ''),
		t.desired_epoch, t.desired_generation, COALESCE(t.desired_digest, ''), t.desired_tombstone, t.desired_detached,
		t.observed_epoch, t.observed_generation, t.observed_digest, t.observed_sync, t.observed_health,
		t.observed_as_of, t.observed_message, t.observed_reason
	FROM targets t `

// standing has the scan destinations of standingColumns, allocated once for all rows.
type standing struct {
	store.Standing
	into []any
}

func newStanding() *standing {
	x := &standing{}
	d, o := &x.Desired, &x.Observed
	// Texts of named types are scanned with reflection, which costs more than the rest of a row.
	x.into = []any{(*string)(&x.ID), (*string)(&x.TenantID), (*string)(&x.DeploymentID), &x.DeploymentName, (*string)(&x.AgentID),
		&d.Epoch, &d.Generation, &d.Digest, &d.Tombstone, &d.Detached,
		&o.Epoch, &o.Generation, &o.Digest, (*string)(&o.Sync), (*string)(&o.Health), timeInto(&o.AsOf), &o.Message, (*string)(&o.Reason)}
	return x
}

// StandingsAllTenants declares no subject: see its contract.
func (s targets) StandingsAllTenants(ctx context.Context, ids []fleet.TargetID) ([]store.Standing, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := s.standings(ctx, s.tx.aside(), ids, standingColumns+`WHERE t.id IN (SELECT value FROM json_each($1)) ORDER BY t.id`, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading the states of %d targets: %w", len(ids), err)
	}
	return out, nil
}

func (s targets) standings(ctx context.Context, db bound, ids []fleet.TargetID, query string, args ...any) ([]store.Standing, error) {
	out := make([]store.Standing, 0, len(ids))
	x := newStanding()
	err := db.each(ctx, func(row Row) error {
		err := row.Scan(x.into...)
		out = append(out, x.Standing)
		return err
	}, query, args...)
	return out, err
}
