package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Settings is the one row about the whole fleet.
type Settings interface {
	Get(ctx context.Context) (fleet.Settings, error)
	SetSuspension(ctx context.Context, s fleet.Suspension) error
	SetEpoch(ctx context.Context, epoch int64) error
}

// Tenants is the aggregate of walls.
type Tenants interface {
	Create(ctx context.Context, t fleet.Tenant) error
	Get(ctx context.Context, id fleet.TenantID) (fleet.Tenant, error)
	ByName(ctx context.Context, name string) (fleet.Tenant, error)
	// List returns tenants in the order of their names.
	List(ctx context.Context, page Page) ([]fleet.Tenant, error)
	SetQuota(ctx context.Context, id fleet.TenantID, q fleet.Quota) error
	SetSuspension(ctx context.Context, id fleet.TenantID, s fleet.Suspension) error
	// Delete removes a tenant with its members, tokens, events, audit log and bundles. It fails with
	// ErrExists while agents, environments, repositories, credentials or deployments are left.
	Delete(ctx context.Context, id fleet.TenantID) error
}

// Members says who has which role in a tenant.
type Members interface {
	// Put inserts or replaces the role of a subject.
	Put(ctx context.Context, m fleet.Member) error
	Remove(ctx context.Context, tenant fleet.TenantID, kind fleet.MemberKind, subject string) error
	Get(ctx context.Context, tenant fleet.TenantID, kind fleet.MemberKind, subject string) (fleet.Member, error)
	// List returns members by kind and subject: a page begins after the kind After and the subject AfterID.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Member, error)
	// OfAllTenants returns what a person and these groups are anywhere.
	OfAllTenants(ctx context.Context, person string, groups []string) ([]fleet.Member, error)
}

// People says whom the names of people stand for.
type People interface {
	// Bind keeps whom a name stands for. A name that stands for somebody already is ErrExists.
	Bind(ctx context.Context, p fleet.Person) error
	// LoggedIn notes a login of somebody who is known.
	LoggedIn(ctx context.Context, name, displayName string, at time.Time) error
	// ByName and List count the sessions that are open at the time now.
	ByName(ctx context.Context, name string, now time.Time) (fleet.Person, error)
	List(ctx context.Context, now time.Time, page Page) ([]fleet.Person, error)
	// Forget frees a name, and nothing else.
	Forget(ctx context.Context, name string) error
}

// Environments is the aggregate of named places.
type Environments interface {
	Create(ctx context.Context, e fleet.Environment) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID) (fleet.Environment, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Environment, error)
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Environment, error)
	// Update writes agents, labels and suspension and raises Spec.
	Update(ctx context.Context, e fleet.Environment) error
	// Delete fails with ErrExists while deployments or grants refer to it.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID) error
	// Count leaves out those of configurations in Git, which have a dot in their names: there are as many
	// as agents.
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
}

// Grants says who else may deploy to an environment. Both tenants can read a grant; only the owner
// of the environment can change it.
type Grants interface {
	// Create makes a grant; a second one of the same environment and grantee is ErrExists.
	Create(ctx context.Context, g fleet.Grant) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.GrantID) (fleet.Grant, error)
	// Update writes the limits and the service account.
	Update(ctx context.Context, g fleet.Grant) error
	// Delete fails with ErrExists while targets refer to it.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.GrantID) error
	// Given returns the grants that a tenant has given, by environment and grantee: a page begins after
	// the environment After and the grantee AfterID, both by name.
	Given(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Grant, error)
	// To returns those that a tenant was given, by environment and owner: AfterID is the name of the owner.
	To(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Grant, error)
	// OfEnvironment returns the grant of an environment to a tenant.
	OfEnvironment(ctx context.Context, grantee fleet.TenantID, env fleet.EnvironmentID) (fleet.Grant, error)
}

// Replies remembers answers by idempotency key, so that the same request twice changes nothing.
type Replies interface {
	// Claim takes a key for a request. When the key is taken, it returns what is kept and false.
	Claim(ctx context.Context, r Reply) (Reply, bool, error)
	// Complete keeps the answer of a claimed key.
	Complete(ctx context.Context, r Reply) error
	// Release gives up a claim whose request failed before it changed anything.
	Release(ctx context.Context, scope, key string) error
	Trim(ctx context.Context, before time.Time) (int, error)
}

// Reply is an answer by its key. Scope is who asked: keys of others never meet.
type Reply struct {
	Scope, Key string
	Request    []byte // hash of what was asked: the same key for another request is an error
	Status     int    // 0 while the request is under way
	Body       []byte
	Location   string
	At         time.Time
}
