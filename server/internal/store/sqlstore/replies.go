package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store"
)

type replies struct{ tx *Tx }

// Claim inserts first and reads second: of two concurrent callers, the database admits one.
func (s replies) Claim(ctx context.Context, r store.Reply) (store.Reply, bool, error) {
	for {
		kept, claimed, err := s.claim(ctx, r)
		if errors.Is(err, store.ErrNotFound) {
			continue // released in between
		}
		if err != nil {
			return store.Reply{}, false, fmt.Errorf("claiming an idempotency key: %w", err)
		}
		return kept, claimed, nil
	}
}

func (s replies) claim(ctx context.Context, r store.Reply) (store.Reply, bool, error) {
	n, err := s.tx.aside().exec(ctx, `INSERT INTO replies (scope, key, request, status, body, location, at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
		r.Scope, r.Key, bytesOf(r.Request), r.Status, bytesOf(r.Body), r.Location, micros(r.At))
	if err == nil && n > 0 {
		return r, true, nil
	}
	if err != nil {
		return store.Reply{}, false, err
	}
	kept := store.Reply{Scope: r.Scope, Key: r.Key}
	err = s.tx.aside().get(ctx, []any{&kept.Request, &kept.Status, &kept.Body, &kept.Location, timeInto(&kept.At)},
		`SELECT request, status, body, location, at FROM replies WHERE scope = $1 AND key = $2`, r.Scope, r.Key)
	return kept, false, err
}

func (s replies) Complete(ctx context.Context, r store.Reply) error {
	n, err := s.tx.aside().exec(ctx, `UPDATE replies SET status = $3, body = $4, location = $5 WHERE scope = $1 AND key = $2`,
		r.Scope, r.Key, r.Status, bytesOf(r.Body), r.Location)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("storing the response of an idempotency key: %w", err)
	}
	return nil
}

// Release does not remove a completed response.
func (s replies) Release(ctx context.Context, scope, key string) error {
	_, err := s.tx.aside().exec(ctx, `DELETE FROM replies WHERE scope = $1 AND key = $2 AND status = 0`, scope, key)
	if err != nil {
		return fmt.Errorf("releasing an idempotency key: %w", err)
	}
	return nil
}

func (s replies) Trim(ctx context.Context, before time.Time) (int, error) {
	n, err := s.tx.aside().exec(ctx, `DELETE FROM replies WHERE at < $1`, micros(before))
	if err != nil {
		return 0, fmt.Errorf("trimming replies: %w", err)
	}
	return int(n), nil
}

// bytesOf never returns NULL.
func bytesOf(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
