package control

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// beatEvery bounds how far "last seen" may be off after a crash of the server.
	beatEvery = 10 * time.Second
	// trimEvery × the busiest fleet stays far below keptChanges.
	trimEvery   = 10 * time.Minute
	keptChanges = 200_000
	keptEvents  = 10_000 // per tenant
	// A bundle is put in the transaction that names it; the age only guards a render in flight.
	unusedBundleAge = time.Hour
)

// keepHouse is the only place with timers that no event could replace: time itself passing.
func (s *Service) keepHouse(ctx context.Context) error {
	beat, trim := time.NewTicker(beatEvery), time.NewTicker(trimEvery)
	defer beat.Stop()
	defer trim.Stop()
	for {
		var work func(tx store.Tx) error
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			work = func(tx store.Tx) error { return tx.Connections().Beat(ctx, s.cfg.Now()) }
		case <-trim.C:
			work = func(tx store.Tx) error { return s.trim(ctx, tx) }
		}
		if err := s.store.Update(ctx, work); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("keeping house", obs.KeyError, err)
		}
	}
}

func (s *Service) trim(ctx context.Context, tx store.Tx) error {
	if err := tx.Changes().Trim(ctx, keptChanges); err != nil {
		return err
	}
	if err := tx.Events().Trim(ctx, keptEvents); err != nil {
		return err
	}
	tenants, err := tx.Tenants().List(ctx)
	if err != nil {
		return err
	}
	for _, t := range tenants {
		if _, err := tx.Bundles().DeleteUnused(ctx, t.ID, s.cfg.Now().Add(-unusedBundleAge)); err != nil {
			return err
		}
	}
	return nil
}
