package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
)

type replicas struct{ tx *Tx }

func (s replicas) Beat(ctx context.Context, r fleet.ServerReplica) error {
	_, err := s.tx.aside().exec(ctx, `INSERT INTO server_replicas (id, address, version, started_at, beat_at)
		VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version,
			started_at = excluded.started_at, beat_at = excluded.beat_at
		WHERE server_replicas.beat_at <= excluded.beat_at`,
		r.ID, r.Address, r.Version, micros(r.StartedAt), micros(r.BeatAt))
	if err != nil {
		return fmt.Errorf("recording a heartbeat of server %q: %w", r.ID, err)
	}
	return nil
}

func (s replicas) List(ctx context.Context) ([]fleet.ServerReplica, error) {
	var out []fleet.ServerReplica
	err := s.tx.aside().each(ctx, func(row Row) error {
		var r fleet.ServerReplica
		err := row.Scan(&r.ID, &r.Address, &r.Version, timeInto(&r.StartedAt), timeInto(&r.BeatAt))
		out = append(out, r)
		return err
	}, `SELECT id, address, version, started_at, beat_at FROM server_replicas ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	return out, nil
}

// Remove does nothing if the server does not exist: two servers may notice at the same time that a third is
// gone.
func (s replicas) Remove(ctx context.Context, id string) error {
	if _, err := s.tx.aside().exec(ctx, `DELETE FROM server_replicas WHERE id = $1`, id); err != nil {
		return fmt.Errorf("removing server %q: %w", id, err)
	}
	return nil
}
