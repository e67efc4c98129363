package sqlstore

import (
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Subject is a unit of conflict detection: a tenant, by its id, or one of those below. In a store with many
// writers, two transactions cannot both commit if each decided on a subject that the other has changed.
type Subject string

const (
	// Everything changes with every other subject.
	Everything Subject = ""

	theSettings Subject = "/settings"
	theTenants  Subject = "/tenants" // the list of tenants and their settings
	theTokens   Subject = "/tokens"  // tokens without a tenant
)

// Lasting reports whether the subject rarely changes, so that a decision on it need not lock others out.
func (s Subject) Lasting() bool { return len(s) > 0 && s[0] == '/' }

// guestsOf is the subject of what other tenants have in a tenant: their deployments to its environments, and
// their targets on its agents. It is separate from the tenant itself, because neither depends on the other.
func guestsOf(tenant fleet.TenantID) Subject { return "guests/" + Subject(tenant) }

// Owners is a query for the subjects of a statement that names a row and not its tenant. The tenant of a row
// never changes.
type Owners struct {
	Query string // of one column; "" is none
	Args  []any
}

// Subjects returns what a result depends on. The rows of a tenant change with the tenant.
func (s Scope) Subjects() []Subject {
	switch {
	case !s.everywhere:
		return []Subject{Subject(s.tenant)}
	case !s.narrowed:
		return []Subject{Everything}
	}
	return s.subjects
}

// Owners returns the query for further subjects of a result.
func (s Scope) Owners() Owners { return s.owners }

// about declares that results depend only on these subjects.
func (b bound) about(subjects ...Subject) bound {
	b.scope.narrowed, b.scope.subjects = true, subjects
	return b
}

// aboutOwners is about for subjects that a query finds.
func (b bound) aboutOwners(query string, args ...any) bound {
	b.scope.narrowed, b.scope.owners = true, Owners{query, args}
	return b
}

// aside is everywhere for rows outside of conflict detection: logs, connections, servers, and replies. Row
// locks and keys keep them consistent.
func (t *Tx) aside() bound { return t.everywhere().about() }

// at is everywhere for the rows in one tenant, of its own and of its guests.
func (t *Tx) at(tenant fleet.TenantID) bound {
	return t.everywhere().about(Subject(tenant), guestsOf(tenant))
}

// atPlace is at for the tenant of a row in agents, environments, or grants.
func (t *Tx) atPlace(table, id string) bound {
	return t.everywhere().aboutOwners(`SELECT tenant_id FROM `+table+` WHERE id = $1
		UNION ALL SELECT 'guests/' || tenant_id FROM `+table+` WHERE id = $1`, id)
}

// touch declares that a subject has changed that the records of the transaction do not name.
func (t *Tx) touch(s Subject) {
	if !slices.Contains(t.tail.Touched, s) {
		t.tail.Touched = append(t.tail.Touched, s)
	}
}

// visit is touch for a row of a tenant in another tenant.
func (t *Tx) visit(tenant, place fleet.TenantID) {
	if place != tenant && place != "" {
		t.touch(guestsOf(place))
	}
}

// Subjects returns the subjects whose structure the tail has changed, without duplicates.
func (t Tail) Subjects() []Subject {
	seen := map[Subject]bool{}
	for _, c := range t.Changes {
		if !structural(c) {
			continue
		}
		seen[Everything], seen[Subject(c.TenantID)] = true, true
		switch {
		case c.Kind == store.ChangeSettings:
			seen[theSettings] = true
		case c.Kind == store.ChangeTenant:
			seen[theTenants] = true
		case c.Kind == store.ChangeToken && c.TenantID == "":
			seen[theTokens] = true
		}
	}
	for _, s := range t.Touched {
		seen[Everything], seen[s] = true, true
	}
	out := make([]Subject, 0, len(seen))
	for s := range seen {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// structural reports whether other transactions may have decided on the subject of c. Statuses, connections,
// events, and pushes are only reported, and are too frequent to be checked.
func structural(c store.Change) bool {
	switch c.Kind {
	case store.ChangeStatus, store.ChangeConnection, store.ChangeEvent, store.ChangeWake:
		return false
	}
	return true
}
