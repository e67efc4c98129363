package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// lostObjects are the objects that a target loses.
type lostObjects struct {
	names map[string]bool // as ObjectRef.String, in every form of manifest.Claims
	all   bool            // and unknown others: everything that leaves
}

func (l lostObjects) none() bool { return len(l.names) == 0 && !l.all }

// list returns the names, sorted; nil if everything is lost.
func (l lostObjects) list() []string {
	if l.all {
		return nil
	}
	return slices.Sorted(maps.Keys(l.names))
}

// among returns those of names that are lost.
func (l lostObjects) among(names map[string]bool) []string {
	if l.all {
		return slices.Collect(maps.Keys(names))
	}
	few, many := l.names, names
	if len(few) > len(many) {
		few, many = many, few
	}
	var out []string
	for name := range few {
		if many[name] {
			out = append(out, name)
		}
	}
	return out
}

// CommitScope is what is known about the deployments that one commit changes while it is being written, in one
// transaction or in several.
type CommitScope struct {
	// unevaluated could not be evaluated at the commit.
	Unevaluated []fleet.Deployment
	// pending is the repository whose deployments are evaluated at the commit only after this step.
	Pending fleet.RepositoryID
	// evaluated is the repository whose deployments have all been evaluated.
	Evaluated fleet.RepositoryID
	// previous has the commits at which deployments were evaluated and committed before. Not nil while a worker
	// writes a commit.
	Previous map[fleet.DeploymentID]string
	// newest has, by deployment and variant, the digests that were newest before the commit, of deployments
	// whose sources were usable then.
	newest map[fleet.DeploymentID]map[string]string
	// looked has the deployments that were completely evaluated at the commit.
	whole map[fleet.DeploymentID]bool

	comes []comingObjects
	index map[string][]int // of comes, by the name of an object
}

// comingObjects are the objects that one variant of a deployment wants.
type comingObjects struct {
	deployment fleet.DeploymentID
	name       string
	variant    string // "" means every target
	objects    []string
}

// Add records what one variant of a deployment wants from the commit on: the objects of a packed bundle.
func (c *CommitScope) Add(d fleet.Deployment, variant, digest string, content []byte) error {
	objects, err := Objects(digest, content)
	if err != nil {
		return fmt.Errorf("deployment %q: %w", d.Name, err)
	}
	if c.index == nil {
		c.index = map[string][]int{}
	}
	for _, object := range objects {
		for _, ref := range manifest.Claims(object.Ref, d.Namespace) {
			name := ref.String()
			c.index[name] = append(c.index[name], len(c.comes))
		}
	}
	c.comes = append(c.comes, comingObjects{deployment: d.ID, name: d.Name, variant: variant})
	return nil
}

// MarkEvaluated records a deployment that was completely evaluated at the commit.
func (c *CommitScope) MarkEvaluated(id fleet.DeploymentID) {
	if c.whole == nil {
		c.whole = map[fleet.DeploymentID]bool{}
	}
	c.whole[id] = true
}

// IsEvaluated reports whether a deployment was completely evaluated at the commit.
func (c *CommitScope) IsEvaluated(id fleet.DeploymentID) bool { return c.whole[id] }

// SetNewest records which bundles of a deployment, by variant, were newest before the commit is written.
func (c *CommitScope) SetNewest(id fleet.DeploymentID, digests map[string]string) {
	if c.newest == nil {
		c.newest = map[fleet.DeploymentID]map[string]string{}
	}
	c.newest[id] = digests
}

// upToDate reports whether a target had its newest bundle until the commit that is being written.
func (c *CommitScope) upToDate(t fleet.Target) bool {
	digest, ok := c.newest[t.DeploymentID][t.Variant]
	return ok && digest == t.Desired.Digest
}

// among returns which lost objects the deployments want.
func (c *CommitScope) among(gone lostObjects) []comingObjects {
	found := map[int][]string{}
	if gone.all {
		for name, at := range c.index {
			for _, i := range at {
				found[i] = append(found[i], name)
			}
		}
	} else {
		for name := range gone.names {
			for _, i := range c.index[name] {
				found[i] = append(found[i], name)
			}
		}
	}
	var out []comingObjects
	for _, i := range slices.Sorted(maps.Keys(found)) {
		taker := c.comes[i]
		taker.objects = found[i]
		out = append(out, taker)
	}
	return out
}

// names caches the objects of bundles, which never change. It drops everything when it is full.
type names struct {
	mu     sync.Mutex
	known  map[string]map[string]bool
	amount int
}

// maxNames limits the cached names of objects: about 100 bytes each.
const maxNames = 200_000

func (n *names) get(key string) (map[string]bool, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, ok := n.known[key]
	return found, ok
}

func (n *names) put(key string, found map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || n.amount+len(found) > maxNames {
		n.known, n.amount = map[string]map[string]bool{}, 0
	}
	n.known[key] = found
	n.amount += len(found)
}

// errNoBundle means that the objects of a bundle are unknown.
var errNoBundle = errors.New("the bundle cannot be read")

// objectNames returns the names of the objects of a bundle, in every form of manifest.Claims. The result must
// not be changed.
func (s *Planner) objectNames(ctx context.Context, tx store.Tx, tenant fleet.TenantID, bundle store.PlacedBundle) (map[string]bool, error) {
	if bundle.Digest == "" {
		return nil, nil
	}
	key := fmt.Sprintf("%s %s %s", tenant, bundle.Digest, bundle.Namespace)
	if found, ok := s.names.get(key); ok {
		return found, nil
	}
	stored, err := tx.Bundles().Get(ctx, tenant, bundle.Digest)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s is gone", errNoBundle, bundle.Digest)
	}
	if err != nil {
		return nil, fmt.Errorf("reading bundle %s: %w", bundle.Digest, err)
	}
	objects, err := Objects(bundle.Digest, stored.Content)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBundle, err)
	}
	found := make(map[string]bool, len(objects))
	for _, o := range objects {
		for _, ref := range manifest.Claims(o.Ref, bundle.Namespace) {
			found[ref.String()] = true
		}
	}
	s.names.put(key, found)
	return found, nil
}
