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

// ErrStale says that something was changed since the caller read it. Nothing was changed.
var ErrStale = errors.New("it was changed meanwhile: read it again and decide anew")

type (
	// ConflictError says that the state of something refuses what was asked for.
	ConflictError = fleet.ConflictError
	// QuotaError says that a tenant has as much as it may have.
	QuotaError = quota.ExceededError
)

// Match is the state of a specification that a caller saw: of which thing, since a name may have been given
// anew meanwhile, and which. The zero value means whatever there is now.
type Match struct {
	ID   string
	Spec int64
}

// check returns ErrStale unless that is what there is.
func (m Match) check(id string, spec int64) error {
	if m != (Match{}) && m != (Match{ID: id, Spec: spec}) {
		return ErrStale
	}
	return nil
}

// checkState is check against a state that has no number of its own.
func (m Match) checkState(now Match) error { return m.check(now.ID, now.Spec) }

// TenantState is the state of a tenant's specification.
func TenantState(t fleet.Tenant) Match {
	x := t.Suspension
	return stateOf(string(t.ID), t.Quota, x.Active(), x.By, x.Reason)
}

// GrantState is the state of a grant's specification.
func GrantState(g fleet.Grant) Match {
	list := func(names []string) []string { return append([]string{}, names...) } // none is the same as no list
	return stateOf(string(g.ID), list(g.Limits.Namespaces), list(g.Limits.Kinds), g.ServiceAccount)
}

// RunState is the state of a sync run's specification. Its phase is status.
func RunState(r fleet.SyncRun) Match { return stateOf(string(r.ID), r.Revision, r.Kept) }

// stateOf numbers a specification whose edits are not counted by what it says: a specification that was changed and
// changed back is the same state again.
func stateOf(id string, spec ...any) Match {
	raw, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("control: the specification of %q has no JSON: %v", id, err)) // plain structs always have
	}
	sum := sha256.Sum256(raw)
	return Match{ID: id, Spec: int64(binary.BigEndian.Uint64(sum[:])>>1 | 1)}
}
