package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Settings stores the settings of the whole fleet.
type Settings interface {
	Get(ctx context.Context) (fleet.Settings, error)
	SetSuspension(ctx context.Context, s fleet.Suspension) error
	SetEpoch(ctx context.Context, epoch int64) error
}

// Tenants stores the tenants.
type Tenants interface {
	Create(ctx context.Context, t fleet.Tenant) error
	Get(ctx context.Context, id fleet.TenantID) (fleet.Tenant, error)
	ByName(ctx context.Context, name string) (fleet.Tenant, error)
	// List returns tenants, sorted by name.
	List(ctx context.Context, page Page) ([]fleet.Tenant, error)
	SetQuota(ctx context.Context, id fleet.TenantID, q fleet.Quota) error
	SetSuspension(ctx context.Context, id fleet.TenantID, s fleet.Suspension) error
	// Delete removes a tenant with its members, tokens, access rules, events, audit log, and bundles. It fails with ErrExists
	// while agents, environments, repositories, credentials, or deployments are left.
	Delete(ctx context.Context, id fleet.TenantID) error
}

// Members stores the roles of people and groups in tenants.
type Members interface {
	// Put inserts or replaces the role of a subject.
	Put(ctx context.Context, m fleet.Member) error
	Remove(ctx context.Context, tenant fleet.TenantID, kind fleet.MemberKind, subject string) error
	Get(ctx context.Context, tenant fleet.TenantID, kind fleet.MemberKind, subject string) (fleet.Member, error)
	// List returns members by kind and subject: a page starts after the kind After and the subject AfterID.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Member, error)
	// OfAllTenants returns the roles of a person and these groups in all tenants.
	OfAllTenants(ctx context.Context, person string, groups []string) ([]fleet.Member, error)
}

// People stores the identities behind the names of people.
type People interface {
	// Bind binds a name to an identity. A bound name is ErrExists.
	Bind(ctx context.Context, p fleet.Person) error
	// LoggedIn records a login of a known person.
	LoggedIn(ctx context.Context, name, displayName string, at time.Time) error
	// ByName and List count the sessions that are open at the time now.
	ByName(ctx context.Context, name string, now time.Time) (fleet.Person, error)
	List(ctx context.Context, now time.Time, page Page) ([]fleet.Person, error)
	// Forget deletes the binding of a name, and nothing else.
	Forget(ctx context.Context, name string) error
}

// Environments stores the environments.
type Environments interface {
	Create(ctx context.Context, e fleet.Environment) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID) (fleet.Environment, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Environment, error)
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Environment, error)
	// Update writes agents, labels, suspension, and Push except for Check, and raises Spec.
	Update(ctx context.Context, e fleet.Environment) error
	// SetCheck writes what the engine instance found at the API server of a push environment. It does not raise Spec. It
	// writes and records nothing if nothing but the time has changed.
	SetCheck(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID, c fleet.EndpointCheck) error
	// Delete fails with ErrExists while deployments or grants refer to it. Access rules lose it.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID) error
	// Count omits those of configurations in Git, which have a dot in their names: there is one per agent.
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
}

// Grants stores which other tenants may deploy to an environment. Both tenants can read a grant; only the owner
// of the environment can change it.
type Grants interface {
	// Create adds a grant; a second one of the same environment and grantee is ErrExists.
	Create(ctx context.Context, g fleet.Grant) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.GrantID) (fleet.Grant, error)
	// Update writes the limits and the service account.
	Update(ctx context.Context, g fleet.Grant) error
	// Delete fails with ErrExists while targets refer to it.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.GrantID) error
	// Given returns the grants that a tenant has given, by environment and grantee: a page starts after the
	// environment After and the grantee AfterID, both by name.
	Given(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Grant, error)
	// To returns the grants that a tenant has received, by environment and owner: AfterID is the name of the
	// owner.
	To(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.Grant, error)
	// OfEnvironment returns the grant of an environment to a tenant.
	OfEnvironment(ctx context.Context, grantee fleet.TenantID, env fleet.EnvironmentID) (fleet.Grant, error)
}

// Replies stores responses by idempotency key, so that a repeated request changes nothing.
type Replies interface {
	// Claim reserves a key for a request. If the key is in use, it returns the stored reply and false.
	Claim(ctx context.Context, r Reply) (Reply, bool, error)
	// Complete stores the response of a claimed key.
	Complete(ctx context.Context, r Reply) error
	// Release releases the claim of a request that failed before it changed anything.
	Release(ctx context.Context, scope, key string) error
	Trim(ctx context.Context, before time.Time) (int, error)
}

// Reply is a response by its key. Scope is the caller: keys of different callers are independent.
type Reply struct {
	Scope, Key string
	Request    []byte // hash of the request: the same key for another request is an error
	Status     int    // 0 while the request is running
	Body       []byte
	Location   string
	At         time.Time
}
