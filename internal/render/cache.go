package render

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// Cache is a [Builder] that builds equal inputs of one owner once: it keeps results, and joins concurrent
// builds. Two jobs are equal if they read the same content, so a deployment in a hundred namespaces, or a
// commit that changes other files, costs one build. Owners share nothing, and volatile results are not shared:
// two deployments must not get the same password. It is safe for concurrent use.
type Cache struct {
	next  Builder
	bytes int64

	mu      sync.Mutex
	used    int64
	owners  map[string]int64  // bytes by owner
	kept    map[place][]*keep // newest last
	recent  *simplelru.LRU[*keep, struct{}]
	flights map[flightKey]*flight
}

// DefaultCacheBytes is the default size of a Cache, an estimate.
const DefaultCacheBytes = 64 << 20

// ownerShare limits the part of the cache that one owner may fill to 1/ownerShare.
const ownerShare = 4

// perPlace limits how many trees are compared for one job: those of a few branches.
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

// NewCache returns a cache in front of a builder; bytes 0 means DefaultCacheBytes.
func NewCache(next Builder, bytes int64) *Cache {
	recent, _ := simplelru.NewLRU[*keep, struct{}](math.MaxInt, nil) // fails only for a size below 1
	return &Cache{
		next: next, bytes: cmp.Or(bytes, DefaultCacheBytes), owners: map[string]int64{},
		kept: map[place][]*keep{}, recent: recent, flights: map[flightKey]*flight{},
	}
}

// Build implements [Builder]. Its result is shared and must not be changed.
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
		// The first caller may have been cancelled, which must not affect the waiting ones. Volatile results
		// are not shared.
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
	// A panic of the builder must not block waiting callers.
	f.err = errors.New("the build ended early")
	defer func() {
		c.mu.Lock()
		delete(c.flights, key)
		c.mu.Unlock()
		close(f.done)
	}()
	// Another build may have finished since the lookup.
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

// find returns a kept build that read the same content as this one would.
func (c *Cache) find(ctx context.Context, job Job, at place) (*Built, error) {
	c.mu.Lock()
	candidates := slices.Clone(c.kept[at])
	c.mu.Unlock()
	for _, k := range slices.Backward(candidates) {
		sum, err := treefs.Fingerprint(ctx, job.Tree, k.reads)
		if err != nil {
			return nil, err
		}
		if sum == k.sum {
			c.mu.Lock()
			c.recent.Get(k) // does nothing if the entry was evicted
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
	if c.owners[k.owner]+k.cost > c.bytes/ownerShare {
		c.shrink(k.owner, c.bytes/ownerShare-k.cost)
	}
	for c.used+k.cost > c.bytes {
		oldest, _, _ := c.recent.GetOldest()
		c.drop(oldest)
	}
	c.kept[k.place] = append(c.kept[k.place], k)
	c.recent.Add(k, struct{}{})
	c.used += k.cost
	c.owners[k.owner] += k.cost
}

// shrink removes the least recently used entries of an owner until the rest costs at most limit; the caller holds the
// lock.
func (c *Cache) shrink(owner string, limit int64) {
	for _, k := range c.recent.Keys() {
		if k.owner == owner && c.owners[owner] > limit {
			c.drop(k)
		}
	}
}

// drop removes an entry; the caller holds the lock.
func (c *Cache) drop(k *keep) {
	c.recent.Remove(k)
	c.kept[k.place] = slices.DeleteFunc(slices.Clone(c.kept[k.place]), func(other *keep) bool { return other == k })
	if len(c.kept[k.place]) == 0 {
		delete(c.kept, k.place)
	}
	c.used -= k.cost
	if c.owners[k.owner] -= k.cost; c.owners[k.owner] <= 0 {
		delete(c.owners, k.owner)
	}
}

// costOf estimates the memory of a build.
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

// sizeOfValue counts texts, and a small constant for every value.
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
