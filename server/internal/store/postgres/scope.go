package postgres

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

const (
	appRole   = "kedge_app"   // accesses the rows of one tenant
	fleetRole = "kedge_fleet" // accesses the rows of all tenants

	enterScope = `SELECT set_config('role', $1, true), set_config('kedge.tenant', $2, true)`
	lookSerial = `SELECT COALESCE((SELECT n FROM serials WHERE subject = $1), 0)`
	lookOwners = `SELECT o.subject, COALESCE(s.n, 0) FROM (%s) AS o (subject) LEFT JOIN serials s ON s.subject = o.subject`
)

// The advisory locks of a transaction have two keys: this class, and their purpose. The migrations use these
// numbers too.
const (
	lockClass  = 1801806951
	fleetGate  = 1
	firstOwned = 2 // gates of other subjects start here
)

// gateOf returns the lock that a transaction holds on a subject when it runs again. Two subjects may share a
// lock: then they wait for each other.
func gateOf(s sqlstore.Subject) int32 {
	if s == sqlstore.Everything {
		return fleetGate
	}
	sum := sha256.Sum256([]byte(s))
	n := int32(binary.BigEndian.Uint32(sum[:]) >> 1) // not negative
	return max(n, firstOwned)
}

// place is the role and the tenant of a connection.
type place struct{ role, tenant string }

func placeOf(of sqlstore.Scope) place {
	if tenant, one := of.Tenant(); one {
		return place{appRole, string(tenant)}
	}
	return place{role: fleetRole}
}

// goTo queues the statement that makes exactly the rows of a place accessible.
func (t *tx) goTo(b *pgx.Batch, p place) {
	if t.place == p {
		return
	}
	b.Queue(enterScope, p.role, p.tenant)
	t.place = p
}

// mustLook reports whether the transaction has not read the serial of a subject of a scope.
func (t *tx) mustLook(of sqlstore.Scope) bool {
	if !t.writable {
		return false
	}
	if tenant, one := of.Tenant(); one {
		_, looked := t.serials[sqlstore.Subject(tenant)]
		return !looked
	}
	return of.Owners().Query != "" || slices.ContainsFunc(of.Subjects(), func(s sqlstore.Subject) bool {
		_, looked := t.serials[s]
		return !looked
	})
}

// look queues a read of the serials of the subjects of a scope, before a transaction that may write reads
// anything else of them. The first serial counts.
func (t *tx) look(b *pgx.Batch, of sqlstore.Scope) {
	if !t.writable {
		return
	}
	for _, s := range of.Subjects() {
		if _, looked := t.serials[s]; looked {
			continue
		}
		t.serials[s] = 0
		b.Queue(lookSerial, string(s)).QueryRow(func(row pgx.Row) error {
			var n int64
			err := row.Scan(&n)
			t.serials[s] = n
			return err
		})
	}
	owners := of.Owners()
	if owners.Query == "" {
		return
	}
	b.Queue(fmt.Sprintf(lookOwners, translate(owners.Query)), clean(slices.Clone(owners.Args))...).Query(func(rows pgx.Rows) error {
		var s sqlstore.Subject
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&s, &n}, func() error {
			if _, looked := t.serials[s]; !looked {
				t.serials[s] = n
			}
			return nil
		})
		return err
	})
}

// gate is one lock that a transaction holds while it runs again.
type gate struct {
	key    int32
	shared bool
}

// gates returns the locks that keep others from changing what was read, in a global order. Subjects that rarely
// change need none, and would make all transactions wait for each other.
func gates(serials map[sqlstore.Subject]int64) []gate {
	if _, all := serials[sqlstore.Everything]; all {
		return []gate{{key: fleetGate}}
	}
	out := []gate{{key: fleetGate, shared: true}}
	for s := range serials {
		if !s.Lasting() {
			out = append(out, gate{key: gateOf(s)})
		}
	}
	slices.SortFunc(out, func(a, b gate) int { return cmp.Compare(a.key, b.key) })
	return slices.Compact(out)
}
