package render

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Cache is a [Builder] that builds equal inputs of one owner once: those that were built before, as long
// as they are kept, and those that are being built. What two jobs read decides whether they are equal, so
// a deployment in a hundred namespaces, or a commit that touches something else, costs one build. Owners
// share nothing, and what is volatile nobody shares: two deployments must not have one password. It is safe for concurrent use.
type Cache struct {
	next  Builder
	bytes int64

	mu      sync.Mutex
	used    int64
	owners  map[string]int64          // bytes by owner
	kept    map[place][]*list.Element // of *keep; newest last
	order   *list.List                // of *keep; longest unused first
	flights map[flightKey]*flight
}

// DefaultCacheBytes is what a Cache keeps that is not told otherwise, by estimate.
const DefaultCacheBytes = 64 << 20

// ownerShare is the part of the cache that one owner may fill: 1/ownerShare.
const ownerShare = 4

// perPlace bounds how many trees are compared for one job: those of a few branches.
const perPlace = 4

type place struct{ owner, settings string }

type keep struct {
	place
	reads []string
	sum   string
	built *Built
	cost  int64
}

type flightKey struct {
	place
	tree string
}

type flight struct {
	done  chan struct{}
	built *Built
	err   error
}

// NewCache puts a cache before a builder; bytes 0 means DefaultCacheBytes.
func NewCache(next Builder, bytes int64) *Cache {
	return &Cache{
		next: next, bytes: cmp.Or(bytes, DefaultCacheBytes), owners: map[string]int64{},
		kept: map[place][]*list.Element{}, order: list.New(), flights: map[flightKey]*flight{},
	}
}

// Build implements [Builder]. What it returns is shared and must not be changed.
func (c *Cache) Build(ctx context.Context, job Job) (*Built, error) {
	at := place{job.Owner, job.settings()}
	built, err := c.find(ctx, job, at)
	if built != nil || err != nil {
		return built, err
	}
	tree, err := job.Tree.ID(ctx, ".")
	if err != nil {
		return nil, err
	}
	key := flightKey{at, tree}
	for {
		f, first := c.board(key)
		if first {
			return c.fly(ctx, job, key, f)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.done:
		}
		// Who was first may have been told to stop, which is nothing to those who wait; and what is random is
		// nobody else's.
		if f.err == nil && f.built.Volatile {
			continue
		}
		if f.err == nil || !errors.Is(f.err, context.Canceled) && !errors.Is(f.err, context.DeadlineExceeded) {
			return f.built, f.err
		}
	}
}

func (c *Cache) board(key flightKey) (f *flight, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.flights[key]; ok {
		return f, false
	}
	f = &flight{done: make(chan struct{})}
	c.flights[key] = f
	return f, true
}

func (c *Cache) fly(ctx context.Context, job Job, key flightKey, f *flight) (*Built, error) {
	// A builder that panics must not leave others waiting for ever.
	f.err = errors.New("the build ended early")
	defer func() {
		c.mu.Lock()
		delete(c.flights, key)
		c.mu.Unlock()
		close(f.done)
	}()
	// Another flight may have landed since it was looked for.
	if f.built, f.err = c.find(ctx, job, key.place); f.built == nil && f.err == nil {
		f.built, f.err = c.build(ctx, job, key.place)
	}
	return f.built, f.err
}

func (c *Cache) build(ctx context.Context, job Job, at place) (*Built, error) {
	built, err := c.next.Build(ctx, job)
	if err != nil || built.Volatile {
		return built, err
	}
	sum, err := treefs.Fingerprint(ctx, job.Tree, built.Reads)
	if err != nil {
		return nil, err
	}
	c.put(&keep{place: at, reads: built.Reads, sum: sum, built: built, cost: costOf(built)})
	return built, nil
}

// find looks for a build that has read what this one would read.
func (c *Cache) find(ctx context.Context, job Job, at place) (*Built, error) {
	c.mu.Lock()
	candidates := append([]*list.Element(nil), c.kept[at]...)
	c.mu.Unlock()
	for i := len(candidates) - 1; i >= 0; i-- {
		k := candidates[i].Value.(*keep)
		sum, err := treefs.Fingerprint(ctx, job.Tree, k.reads)
		if err != nil {
			return nil, err
		}
		if sum == k.sum {
			c.mu.Lock()
			c.order.MoveToBack(candidates[i]) // which does nothing when it was dropped meanwhile
			c.mu.Unlock()
			return k.built, nil
		}
	}
	return nil, nil
}

func (c *Cache) put(k *keep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.cost > c.bytes/ownerShare {
		return
	}
	if same := c.kept[k.place]; len(same) >= perPlace {
		c.drop(same[0])
	}
	for e := c.order.Front(); e != nil && c.owners[k.owner]+k.cost > c.bytes/ownerShare; {
		next := e.Next()
		if e.Value.(*keep).owner == k.owner {
			c.drop(e)
		}
		e = next
	}
	for c.used+k.cost > c.bytes {
		c.drop(c.order.Front())
	}
	c.kept[k.place] = append(c.kept[k.place], c.order.PushBack(k))
	c.used += k.cost
	c.owners[k.owner] += k.cost
}

// drop forgets one; the caller holds the lock.
func (c *Cache) drop(e *list.Element) {
	k := c.order.Remove(e).(*keep)
	rest := c.kept[k.place]
	for i := range rest {
		if rest[i] == e {
			c.kept[k.place] = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	if len(c.kept[k.place]) == 0 {
		delete(c.kept, k.place)
	}
	c.used -= k.cost
	if c.owners[k.owner] -= k.cost; c.owners[k.owner] <= 0 {
		delete(c.owners, k.owner)
	}
}

// costOf estimates what a build takes in memory.
func costOf(b *Built) int64 {
	cost := int64(1024)
	for _, read := range b.Reads {
		cost += int64(len(read)) + 16
	}
	for _, o := range b.Objects {
		cost += int64(len(o.Source)) + sizeOf(o)
	}
	return cost
}

func sizeOf(o manifest.Object) int64 { return sizeOfValue(o.Content) }

// sizeOfValue counts texts, and for everything a little that holds it.
func sizeOfValue(v any) int64 {
	const each = 32
	switch v := v.(type) {
	case string:
		return each + int64(len(v))
	case []any:
		n := int64(each)
		for _, item := range v {
			n += sizeOfValue(item)
		}
		return n
	case map[string]any:
		n := int64(each)
		for key, item := range v {
			n += each + int64(len(key)) + sizeOfValue(item)
		}
		return n
	default:
		return each
	}
}
