package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// settings is the row from the first migration.
type settings struct{ tx *Tx }

func (s settings) Get(ctx context.Context) (fleet.Settings, error) {
	var out fleet.Settings
	err := s.tx.everywhere().about(theSettings).get(ctx, append([]any{&out.Epoch}, suspensionInto(&out.Suspension)...),
		`SELECT epoch, suspended_at, suspended_by, suspension_reason FROM settings WHERE one = 1`)
	if err != nil {
		return fleet.Settings{}, fmt.Errorf("reading the settings: %w", err)
	}
	return out, nil
}

func (s settings) SetSuspension(ctx context.Context, x fleet.Suspension) error {
	err := s.change(ctx, `UPDATE settings SET suspended_at = $1, suspended_by = $2, suspension_reason = $3
		WHERE one = 1 AND (suspended_at IS DISTINCT FROM $1 OR suspended_by <> $2 OR suspension_reason <> $3)`,
		micros(x.At), x.By, x.Reason)
	if err != nil {
		return fmt.Errorf("writing the suspension of the fleet: %w", err)
	}
	return nil
}

func (s settings) SetEpoch(ctx context.Context, epoch int64) error {
	if err := s.change(ctx, `UPDATE settings SET epoch = $1 WHERE one = 1 AND epoch <> $1`, epoch); err != nil {
		return fmt.Errorf("writing epoch %d: %w", epoch, err)
	}
	return nil
}

func (s settings) change(ctx context.Context, update string, args ...any) error {
	n, err := s.tx.everywhere().about(theSettings).exec(ctx, update, args...)
	if err != nil || n == 0 {
		return err
	}
	return s.tx.record(store.Change{Kind: store.ChangeSettings})
}

// suspensionInto scans suspended_at, suspended_by, and suspension_reason.
func suspensionInto(s *fleet.Suspension) []any { return []any{timeInto(&s.At), &s.By, &s.Reason} }
