package sqlstore

import (
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Subject is something whose structure is decided upon as a whole: a tenant, by its id, or one of
// those below. A store with many writers lets no two transactions commit that each decided on a
// subject which the other has changed.
type Subject string

const (
	// Everything changes with every other subject.
	Everything Subject = ""

	theSettings Subject = "/settings"
	theTenants  Subject = "/tenants" // which there are, and what is said of them
	theTokens   Subject = "/tokens"  // those of no tenant
)

// Lasting reports whether the subject hardly ever changes, so that nobody who decides on it has to
// keep others from changing it meanwhile.
func (s Subject) Lasting() bool { return len(s) > 0 && s[0] == '/' }

// guestsOf is what other tenants have on the places of one: their deployments to its environments,
// and their targets on its agents. It is apart from the tenant itself, whose own affairs are none of
// the guests', and the other way round.
func guestsOf(tenant fleet.TenantID) Subject { return "guests/" + Subject(tenant) }

// Owners is a query for the subjects that a statement is about, for one that names a row and not its
// tenant. What a row is of never changes.
type Owners struct {
	Query string // of one column; "" is none
	Args  []any
}

// Subjects returns what an answer depends on. A tenant's rows change with the tenant.
func (s Scope) Subjects() []Subject {
	switch {
	case !s.everywhere:
		return []Subject{Subject(s.tenant)}
	case !s.narrowed:
		return []Subject{Everything}
	}
	return s.subjects
}

// Owners returns the query for what else an answer depends on.
func (s Scope) Owners() Owners { return s.owners }

// about says that the answers depend on these subjects, and not on everything.
func (b bound) about(subjects ...Subject) bound {
	b.scope.narrowed, b.scope.subjects = true, subjects
	return b
}

// aboutOwners is about for subjects that a query finds.
func (b bound) aboutOwners(query string, args ...any) bound {
	b.scope.narrowed, b.scope.owners = true, Owners{query, args}
	return b
}

// aside is everywhere for rows that no structure is decided upon: logs, connections, servers and
// replies. What keeps those right is in their rows.
func (t *Tx) aside() bound { return t.everywhere().about() }

// at is everywhere for what there is on the places of one tenant, its own and its guests'.
func (t *Tx) at(tenant fleet.TenantID) bound {
	return t.everywhere().about(Subject(tenant), guestsOf(tenant))
}

// atPlace is at for the tenant of a row in agents, environments or grants.
func (t *Tx) atPlace(table, id string) bound {
	return t.everywhere().aboutOwners(`SELECT tenant_id FROM `+table+` WHERE id = $1
		UNION ALL SELECT 'guests/' || tenant_id FROM `+table+` WHERE id = $1`, id)
}

// touch says that a subject has changed which the records of the transaction do not name.
func (t *Tx) touch(s Subject) {
	if !slices.Contains(t.tail.Touched, s) {
		t.tail.Touched = append(t.tail.Touched, s)
	}
}

// visit is touch for something of a tenant on a place of another.
func (t *Tx) visit(tenant, place fleet.TenantID) {
	if place != tenant && place != "" {
		t.touch(guestsOf(place))
	}
}

// Subjects returns what the tail has changed the structure of, each once; none if nothing.
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

// structural reports whether others may have decided on what c is about. Statuses, connections,
// events and pushes are only ever told, and are too many to be checked for.
func structural(c store.Change) bool {
	switch c.Kind {
	case store.ChangeStatus, store.ChangeConnection, store.ChangeEvent, store.ChangePush:
		return false
	}
	return true
}
