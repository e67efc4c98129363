package storetest

import (
	"context"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// outcome is the expected result of a call for another tenant than that of its ids.
type outcome int

const (
	notFound outcome = iota // ErrNotFound
	empty                   // nothing, and no error
	own                     // it affects the other tenant itself, or a new row of it
	global                  // it takes no tenant
)

// call is one method of a transaction, called with the ids of w for the given tenant.
type call struct {
	name    string
	writes  bool
	foreign outcome
	do      func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error)
}

// calls has one entry for every method of every aggregate; a test checks that.
var calls = slices.Concat(identityCalls, placeCalls, accessRuleCalls, configCalls, workCalls, engineUpgradeCalls, logCalls)
