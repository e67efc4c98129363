// Package store is the persistence contract of the server: one transaction type, split by aggregate, and the
// sentinel errors that every implementation returns. The implementations are below it (sqlite/, postgres/), and
// all pass storetest.
//
// One change is one transaction: rows, generation, and [Change] records commit together (invariant 10). Every
// query takes a tenant (invariant 7); the few that cross tenants have AllTenants in their names. No error of a
// database driver leaves this package.
package store

import (
	"context"
	"errors"
	"math"
)

var (
	// ErrNotFound means that the row does not exist in the tenant.
	ErrNotFound = errors.New("not found")
	// ErrExists means that a unique name or key is in use.
	ErrExists = errors.New("already exists")
	// ErrReadOnly means that there was a write inside View.
	ErrReadOnly = errors.New("read-only transaction")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrUnavailable means that the database could not be reached, or that the connection broke. The request is
	// valid and may succeed later. If a transaction failed with it in its commit, its outcome is unknown.
	ErrUnavailable = errors.New("the database is not available now: try again")
)

// Store opens transactions. It is safe for concurrent use.
type Store interface {
	// Update runs fn in one write transaction and commits if fn returns nil. It may wait for another writer. fn
	// must not keep tx, must not call the store, and may run again after a serialization failure. After
	// ErrExists and ErrNotFound, fn may continue; any other error, and a reference to a row that does not
	// exist, fails the whole transaction.
	Update(ctx context.Context, fn func(tx Tx) error) error
	// View runs fn on one consistent snapshot. Writes fail with ErrReadOnly.
	View(ctx context.Context, fn func(tx Tx) error) error
	// Lock locks a name for this process, across all replicas; false if another one holds it. The lock lasts
	// until Release, or until Lost is closed.
	Lock(ctx context.Context, name string) (Lock, bool, error)
	// AwaitFree returns as soon as name is not locked, which is immediately when the process of its holder
	// dies. It does not lock. ctx must end before the store is closed.
	AwaitFree(ctx context.Context, name string) error
	// Notify returns a channel that gets a value soon after any commit with changes, by this process or
	// another. It is a hint without content, and several count as one: the cursor over Changes.After is the
	// guarantee. The subscription ends with ctx; the channel is never closed.
	Notify(ctx context.Context) <-chan struct{}
	Close() error
}

// Lock is held by one process at a time.
type Lock interface {
	// Lost is closed when another process may hold the lock: the connection that held it broke.
	Lost() <-chan struct{}
	// Release releases the lock; further calls do nothing.
	Release()
}

// Tx is one transaction, split by aggregate. It must be used by one goroutine.
type Tx interface {
	Settings() Settings
	Tenants() Tenants
	Members() Members
	People() People
	Agents() Agents
	AgentConfigs() AgentConfigs
	Connections() Connections
	Replicas() Replicas
	Tokens() Tokens
	Environments() Environments
	Grants() Grants
	AccessRules() AccessRules
	Repositories() Repositories
	Credentials() Credentials
	Deployments() Deployments
	PendingSpecs() PendingSpecs
	Declarations() Declarations
	Owners() Owners
	GitLabProjects() GitLabProjects
	Revisions() Revisions
	Targets() Targets
	Bundles() Bundles
	Runs() Runs
	Operations() Operations
	EngineUpgrades() EngineUpgrades
	Audit() Audit
	Events() Events
	Changes() Changes
	Replies() Replies
}

// Page limits a listing by key: the rows whose name (or sequence number) comes after After.
type Page struct {
	After string // exclusive; "" starts at the beginning
	// AfterID is the id of the row After, where names are not unique: a deployment and earlier ones that are
	// being deleted. "" skips all with that name.
	AfterID string
	Limit   int // at most this many; 0 means 100
}

// Whole is a page with everything, for decisions on a complete, short listing.
func Whole() Page { return Page{Limit: math.MaxInt32} }
