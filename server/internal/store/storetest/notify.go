package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/store"
)

var notifyTests = map[string]func(*testing.T, store.Store){
	"comes after a commit that recorded changes": notifyAfterCommit,
	"is coalesced and never blocks":              notifyIsCoalesced,
	"ends with its context":                      notifyEnds,
}

// patience limits a wait for something that happens immediately.
const patience = 10 * time.Second

func heard(t *testing.T, wake <-chan struct{}) {
	t.Helper()
	select {
	case _, open := <-wake:
		if !open {
			t.Fatal("the channel was closed")
		}
	case <-time.After(patience):
		t.Fatal("no notification was received")
	}
}

func silent(t *testing.T, what string, wake <-chan struct{}) {
	t.Helper()
	select {
	case <-wake:
		t.Fatalf("%s: a notification was received", what)
	default:
	}
}

func notifyAfterCommit(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	first, second := s.Notify(t.Context()), s.Notify(t.Context())
	silent(t, "what happened before", first)
	sorry := errors.New("sorry")
	refuse(t, s, sorry, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(sorry, tx.Events().Append(ctx, w.event))
	})
	silent(t, "a rollback", first)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Replicas().Beat(ctx, newReplica("srv-1", 1)) })
	silent(t, "a commit without changes", first)

	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		err := tx.Events().Append(ctx, w.event)
		silent(t, "a commit that is yet to come", first)
		return err
	})
	heard(t, first)
	heard(t, second)
	if last(t, s) <= before {
		t.Error("the notified change must be readable")
	}
}

func notifyIsCoalesced(t *testing.T, s store.Store) {
	tenant := newTenant(t, s, "a")
	wake := s.Notify(t.Context())
	for range 5 {
		appendEvents(t, s, tenant, 1) // nobody reads meanwhile
	}
	heard(t, wake)
	for range 2 { // a late notification may come once more, but not once per commit
		select {
		case <-wake:
		default:
			return
		}
	}
	t.Error("five commits must not be notified three times to a busy receiver")
}

func notifyEnds(t *testing.T, s store.Store) {
	tenant := newTenant(t, s, "a")
	ctx, cancel := context.WithCancel(t.Context())
	s.Notify(ctx)
	live := s.Notify(t.Context())
	cancel()
	appendEvents(t, s, tenant, 1)
	heard(t, live)
}
