// Package lru caches values up to a total cost, for example in bytes, and evicts the least recently used ones.
//
// It adds the cost to [github.com/hashicorp/golang-lru/v2/simplelru], which counts entries. A cache of a fixed number of
// entries needs no more than that library.
package lru

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache holds values up to a total cost. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	limit int
	cost  func(V) int

	mu      sync.Mutex
	total   int
	entries *simplelru.LRU[K, V]
}

// New returns a cache whose values cost at most limit together. The cost of a value must not change.
func New[K comparable, V any](limit int, cost func(V) int) *Cache[K, V] {
	c := &Cache[K, V]{limit: limit, cost: cost}
	// The library fails only for a size below 1.
	c.entries, _ = simplelru.NewLRU(math.MaxInt, func(_ K, v V) { c.total -= cost(v) })
	return c
}

// Get returns the value of key and makes it the most recently used one.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Get(key)
}

// Put adds a value and evicts others until the total is within the limit. It keeps the new value even if that alone
// exceeds the limit. It ignores a key that the cache has.
func (c *Cache[K, V]) Put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries.Contains(key) {
		return
	}
	c.entries.Add(key, value)
	c.total += c.cost(value)
	for c.total > c.limit && c.entries.Len() > 1 {
		c.entries.RemoveOldest()
	}
}

// Clear removes all values.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Purge()
}
