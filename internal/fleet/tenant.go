package fleet

import "time"

// DefaultTenant is the tenant that exists from the first start on.
const DefaultTenant = "default"

// Tenant is the wall. It owns everything below it.
type Tenant struct {
	ID         TenantID
	Name       string // RFC 1123 label, unique in the fleet
	Quota      Quota
	Suspension Suspension // freezes everything that the tenant owns
	CreatedAt  time.Time
}

// Quota bounds what a tenant may own. Zero means without a bound.
type Quota struct {
	Agents, Environments, Repositories, Deployments, Targets, Tokens int
}

// Suspension says that nothing new is sent until it is lifted. What is already sent goes on: drift
// is healed towards it. The zero value means not suspended.
type Suspension struct {
	At     time.Time // zero unless suspended
	By     string
	Reason string // as a person gave it
}

// Active reports whether it holds.
func (s Suspension) Active() bool { return !s.At.IsZero() }

// Settings is what is true of the whole fleet.
type Settings struct {
	// Epoch rises when a backup is restored, so that what comes after is newer than anything that an
	// agent can have seen.
	Epoch      int64
	Suspension Suspension // the freeze of the whole fleet
}

// Member gives a person, or everybody in a group of the identity provider, a role in a tenant.
type Member struct {
	TenantID  TenantID
	Kind      MemberKind
	Subject   string // the person's name, or the group's
	Role      Role
	CreatedAt time.Time
}

// MemberKind says whom a Member is about.
type MemberKind string

// The kinds of member.
const (
	MemberPerson MemberKind = "person"
	MemberGroup  MemberKind = "group"
)
