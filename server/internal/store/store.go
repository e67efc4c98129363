// Package store is the persistence contract of the server: one transaction type, split by
// aggregate, and the sentinels that every implementation returns. Implementations live below it
// (sqlite/) and all pass storetest.
//
// One change is one transaction: rows, generation and [Change] records commit together
// (invariant 10). Every query takes the tenant that it is for (invariant 7); the few that cross
// tenants say so in their names. No error of a database driver leaves this room.
package store

import (
	"context"
	"errors"
	"math"
)

var (
	// ErrNotFound says that no such row exists in that tenant.
	ErrNotFound = errors.New("not found")
	// ErrExists says that a unique name or key is taken.
	ErrExists = errors.New("already exists")
	// ErrReadOnly says that a write was tried inside View.
	ErrReadOnly = errors.New("read-only transaction")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrUnavailable says that the database could not be reached, or went away. Nothing is wrong with
	// what was asked: the same may succeed later. Whether a transaction that failed with it in its
	// commit has been made is not known.
	ErrUnavailable = errors.New("the database cannot be reached now: try again")
)

// Store opens transactions. It is safe for concurrent use.
type Store interface {
	// Update runs fn in one write transaction and commits if fn returns nil. It may wait for
	// another writer. fn must not keep tx, must not call the store again, and may be run again
	// after a serialisation failure. After ErrExists and ErrNotFound fn may go on; any other error,
	// and a reference to a row that does not exist, fails the whole transaction.
	Update(ctx context.Context, fn func(tx Tx) error) error
	// View runs fn on one consistent snapshot. Writes fail with ErrReadOnly.
	View(ctx context.Context, fn func(tx Tx) error) error
	// Lock takes a name for this process, over all replicas; false when another one holds it. It is
	// held until Release, or until Lost is closed.
	Lock(ctx context.Context, name string) (Lock, bool, error)
	// AwaitFree returns as soon as nobody holds name, which is at once when its holder's process
	// dies. It takes nothing. ctx ends before the store is closed.
	AwaitFree(ctx context.Context, name string) error
	// Notify returns a channel that gets a value soon after any commit that recorded changes,
	// by this process or another. It is a hint with no content and is coalesced: the cursor over
	// Changes.After is the guarantee. The subscription ends with ctx; the channel is never closed.
	Notify(ctx context.Context) <-chan struct{}
	Close() error
}

// Lock is held by one process at a time.
type Lock interface {
	// Lost is closed when the lock may be somebody else's: the connection that held it broke.
	Lost() <-chan struct{}
	// Release gives it back; once is enough, more does nothing.
	Release()
}

// Tx is one transaction, split by aggregate. It belongs to one goroutine.
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
	Repositories() Repositories
	Credentials() Credentials
	Deployments() Deployments
	PendingSpecs() PendingSpecs
	Declarations() Declarations
	GitLabProjects() GitLabProjects
	Revisions() Revisions
	Targets() Targets
	Bundles() Bundles
	Runs() Runs
	Operations() Operations
	Audit() Audit
	Events() Events
	Changes() Changes
	Replies() Replies
}

// Page bounds a listing by key: the rows whose name (or sequence number) comes after After.
type Page struct {
	After string // exclusive; "" starts at the beginning
	// AfterID is the id of the row that After names, where names are not unique: a deployment and
	// those before it that are on their way out. "" passes over all of that name.
	AfterID string
	Limit   int // at most this many; 0 means 100
}

// Whole is the one page that has everything, for those few who decide on all of a listing that is short.
func Whole() Page { return Page{Limit: math.MaxInt32} }
