package kubeapi

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// entry is what the index knows about a resource.
type entry struct {
	tenant fleet.TenantID
	// uid and applied are the UID and the version of the spec that control has accepted.
	uid     types.UID
	applied specVersion
	// waiting means that the resource cannot be accepted, or deleted, before something in its tenant changes.
	waiting bool
	// recheck means that the resource is processed again after a time.
	recheck bool
	// subjects are the ids of deployments, agents, environments, credentials, repositories and runs whose changes may change
	// the status of the resource.
	subjects []string
}

// specVersion identifies what a resource declares.
type specVersion struct {
	generation int64
	labels     string // hash: a change of labels does not change the generation
}

// index finds the resources that a change of the server concerns. It is safe for concurrent use.
type index struct {
	mu       sync.Mutex
	entries  map[resource]entry
	subjects map[string]map[resource]struct{}
	tenants  map[fleet.TenantID]map[resource]struct{}
	waiting  map[fleet.TenantID]map[resource]struct{}
}

func newIndex() *index {
	return &index{
		entries: map[resource]entry{}, subjects: map[string]map[resource]struct{}{},
		tenants: map[fleet.TenantID]map[resource]struct{}{}, waiting: map[fleet.TenantID]map[resource]struct{}{},
	}
}

func (x *index) get(r resource) entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entries[r]
}

// put replaces the entry of a resource.
func (x *index) put(r resource, e entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeLocked(r)
	x.entries[r] = e
	add(x.tenants, e.tenant, r)
	if e.waiting {
		add(x.waiting, e.tenant, r)
	}
	for _, id := range e.subjects {
		add(x.subjects, id, r)
	}
}

// waitingRuns returns the SyncRuns of a tenant that wait for something.
func (x *index) waitingRuns(tenant fleet.TenantID) []resource {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []resource
	for r := range x.waiting[tenant] {
		if r.kind == v1alpha1.KindSyncRun {
			out = append(out, r)
		}
	}
	return out
}

// empty reports whether a tenant has no resources.
func (x *index) empty(tenant fleet.TenantID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.tenants[tenant]) == 0
}

func (x *index) remove(r resource) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeLocked(r)
}

func (x *index) removeLocked(r resource) {
	e, ok := x.entries[r]
	if !ok {
		return
	}
	delete(x.entries, r)
	drop(x.tenants, e.tenant, r)
	drop(x.waiting, e.tenant, r)
	for _, id := range e.subjects {
		drop(x.subjects, id, r)
	}
}

// concerned returns the resources whose state a change may change.
func (x *index) concerned(c store.Change) []resource {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := map[resource]struct{}{}
	switch c.Kind {
	case store.ChangeEvent, store.ChangeWake:
		return nil
	case store.ChangeSettings:
		for r := range x.entries {
			found[r] = struct{}{}
		}
	case store.ChangeTenant:
		maps.Copy(found, x.tenants[c.TenantID])
	default:
		maps.Copy(found, x.waiting[c.TenantID])
	}
	for _, id := range []string{c.ID, string(c.DeploymentID), string(c.AgentID)} {
		if id == "" || (id == string(c.AgentID) && (c.Kind == store.ChangeDesired || c.Kind == store.ChangeStatus)) {
			continue // a status of one target does not change the others of its agent
		}
		maps.Copy(found, x.subjects[id])
	}
	return slices.Collect(maps.Keys(found))
}

func add[K, V comparable](m map[K]map[V]struct{}, key K, value V) {
	if m[key] == nil {
		m[key] = map[V]struct{}{}
	}
	m[key][value] = struct{}{}
}

func drop[K, V comparable](m map[K]map[V]struct{}, key K, value V) {
	delete(m[key], value)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}
