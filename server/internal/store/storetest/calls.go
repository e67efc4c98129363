package storetest

import (
	"context"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// outcome is what a call answers when it is made for another tenant than the one whose ids it uses.
type outcome int

const (
	notFound outcome = iota // ErrNotFound
	empty                   // nothing, and no error
	own                     // it is about the other tenant itself, or something new of its own
	global                  // it takes no tenant
)

// call is one method of a transaction, made with the ids of w for the given tenant.
type call struct {
	name    string
	writes  bool
	foreign outcome
	do      func(ctx context.Context, tx store.Tx, tenant fleet.TenantID, w *world) (any, error)
}

// calls has one entry for every method of every aggregate; a test checks that.
var calls = slices.Concat(identityCalls, placeCalls, configCalls, workCalls, logCalls)
