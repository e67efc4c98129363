package fleet

import "time"

// DefaultTenant is the tenant that exists from the first start.
const DefaultTenant = "default"

// Tenant is the unit of isolation. It owns everything below it.
type Tenant struct {
	ID         TenantID
	Name       string // RFC 1123 label, unique in the fleet
	Quota      Quota
	Suspension Suspension // suspends all deployments of the tenant
	CreatedAt  time.Time
}

// Quota limits what a tenant may own. Zero means no limit.
type Quota struct {
	Agents, Environments, Repositories, Deployments, Targets, Tokens int
}

// Suspension means that no new state is sent until it is lifted. States that were sent stay in force: drift
// from them is corrected. The zero value means not suspended.
type Suspension struct {
	At     time.Time // zero unless suspended
	By     string
	Reason string // entered by a person
}

// Active reports whether the suspension is in force.
func (s Suspension) Active() bool { return !s.At.IsZero() }

// Settings has the settings of the whole fleet.
type Settings struct {
	// Epoch rises when a backup is restored, so that later states are newer than all states that an agent can
	// have seen.
	Epoch      int64
	Suspension Suspension // the freeze of the whole fleet
}

// Member gives a role in a tenant to a person or to a group of the identity provider.
type Member struct {
	TenantID  TenantID
	Kind      MemberKind
	Subject   string // name of the person or of the group
	Role      Role
	CreatedAt time.Time
}

// MemberKind tells whether a Member is a person or a group.
type MemberKind string

// The kinds of member.
const (
	MemberPerson MemberKind = "person"
	MemberGroup  MemberKind = "group"
)
