// Package storetest is the conformance suite of the persistence contract: every implementation of [store.Store]
// passes Run. It uses only the contract, so its results apply to all of them. It is for tests.
package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kedge-dev/kedge/server/internal/store"
)

// Run runs the suite. open returns an empty store of the test's own and closes it by t.Cleanup;
// it is called once per sub-test, and they run in parallel.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	groups := map[string]map[string]func(*testing.T, store.Store){
		"settings":     settingsTests,
		"tenants":      tenantTests,
		"members":      memberTests,
		"people":       peopleTests,
		"agents":       agentTests,
		"agentconfigs": agentConfigTests,
		"owners":       ownerTests,
		"connections":  connectionTests,
		"replicas":     replicaTests,
		"tokens":       tokenTests,
		"environments": environmentTests,
		"grants":       grantTests,
		"accessrules":  accessRuleTests,
		"repositories": repositoryTests,
		"credentials":  credentialTests,
		"deployments":  deploymentTests,
		"pending":      pendingTests,
		"filters":      filterTests,
		"tallies":      tallyTests,
		"pages":        pageTests,
		"revisions":    revisionTests,
		"targets":      targetTests,
		"reports":      reportTests,
		"bundles":      bundleTests,
		"runs":         runTests,
		"operations":   operationTests,
		"upgrades":     engineUpgradeTests,
		"audit":        auditTests,
		"events":       eventTests,
		"changes":      changeTests,
		"replies":      replyTests,
		"transactions": transactionTests,
		"notify":       notifyTests,
		"isolation":    isolationTests,
		"concurrency":  concurrencyTests,
	}
	for group, tests := range groups {
		for name, test := range tests {
			t.Run(group+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, open(t))
			})
		}
	}
}

// epoch is the start time of the suite. It has microseconds, the precision of stores.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// at is n seconds after the beginning.
func at(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

// update runs fn in a transaction that must commit.
func update(t *testing.T, s store.Store, fn func(ctx context.Context, tx store.Tx) error) {
	t.Helper()
	ctx := t.Context()
	if err := s.Update(ctx, func(tx store.Tx) error { return fn(ctx, tx) }); err != nil {
		t.Fatalf("updating: %v", err)
	}
}

// refuse runs fn in a transaction that must fail with want.
func refuse(t *testing.T, s store.Store, want error, fn func(ctx context.Context, tx store.Tx) error) {
	t.Helper()
	ctx := t.Context()
	if err := s.Update(ctx, func(tx store.Tx) error { return fn(ctx, tx) }); !errors.Is(err, want) {
		t.Fatalf("updating: got error %v, want %v", err, want)
	}
}

// read returns what fn reads from a snapshot.
func read[T any](t *testing.T, s store.Store, fn func(ctx context.Context, tx store.Tx) (T, error)) T {
	t.Helper()
	ctx := t.Context()
	var out T
	err := s.View(ctx, func(tx store.Tx) (err error) {
		out, err = fn(ctx, tx)
		return err
	})
	if err != nil {
		t.Fatalf("reading: %v", err)
	}
	return out
}

// missing checks that fn finds nothing.
func missing[T any](t *testing.T, s store.Store, fn func(ctx context.Context, tx store.Tx) (T, error)) {
	t.Helper()
	ctx := t.Context()
	err := s.View(ctx, func(tx store.Tx) error {
		_, err := fn(ctx, tx)
		return err
	})
	if !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("reading: got error %v, want %v", err, store.ErrNotFound)
	}
}

// same compares; nil and an empty list are equal.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s differs (-want +got):\n%s", what, diff)
	}
}

// last is the newest sequence number of the outbox.
func last(t *testing.T, s store.Store) int64 {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (int64, error) { return tx.Changes().Last(ctx) })
}

// since returns the records after seq without numbers and times.
func since(t *testing.T, s store.Store, seq int64) []store.Change {
	t.Helper()
	out := read(t, s, func(ctx context.Context, tx store.Tx) ([]store.Change, error) {
		return tx.Changes().AfterAllTenants(ctx, seq, 10_000)
	})
	for i := range out {
		out[i].Seq, out[i].At = 0, time.Time{}
	}
	return out
}
