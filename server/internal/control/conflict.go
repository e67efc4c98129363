package control

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/quota"
)

// ErrStale means that a resource changed since the caller read it. Nothing was changed.
var ErrStale = errors.New("it changed in the meantime: read it again")

type (
	// ConflictError means that the current state does not allow a request.
	ConflictError = fleet.ConflictError
	// QuotaError means that a quota of a tenant is reached.
	QuotaError = quota.ExceededError
)

// Match is the state of a spec that a caller read: the id of the resource, because a name may be used again,
// and the number. The zero value matches any state.
type Match struct {
	ID           string
	SpecRevision int64
}

// check returns ErrStale if the current state differs.
func (m Match) check(id string, spec int64) error {
	if m != (Match{}) && m != (Match{ID: id, SpecRevision: spec}) {
		return ErrStale
	}
	return nil
}

// checkState is check for a state without a number.
func (m Match) checkState(now Match) error { return m.check(now.ID, now.SpecRevision) }

// TenantState returns the state of the spec of a tenant.
func TenantState(t fleet.Tenant) Match {
	x := t.Suspension
	return stateOf(string(t.ID), t.Quota, x.Active(), x.By, x.Reason)
}

// GrantState returns the state of the spec of a grant.
func GrantState(g fleet.Grant) Match {
	list := func(names []string) []string { return append([]string{}, names...) } // empty is the same as nil
	return stateOf(string(g.ID), list(g.Limits.Namespaces), list(g.Limits.Kinds), g.ServiceAccount)
}

// RunState returns the state of the spec of a sync run. Its phase is status.
func RunState(r fleet.SyncRun) Match { return stateOf(string(r.ID), r.Revision, r.Kept) }

// stateOf computes a number from the content of a spec without an edit count: a spec that was changed and
// changed back has the same state again.
func stateOf(id string, spec ...any) Match {
	raw, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("control: encoding the spec of %q: %v", id, err)) // plain structs can always be encoded
	}
	sum := sha256.Sum256(raw)
	return Match{ID: id, SpecRevision: int64(binary.BigEndian.Uint64(sum[:])>>1 | 1)}
}
