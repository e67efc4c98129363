package gateway

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// bundleCacheBytes bounds the compressed bytes that are kept. One commit needs its few bundles for
// every agent within seconds, so least-recently-used is the right order.
const bundleCacheBytes = 64 << 20

// bundleCache gives the same bytes to every agent without asking the store for each.
type bundleCache struct {
	read   func(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error)
	flight singleflight.Group

	mu      sync.Mutex
	entries map[bundleKey]*list.Element
	recent  list.List // of bundleEntry, newest first
	bytes   int
}

// The tenant is part of the key: a digest is no permission.
type bundleKey struct {
	tenant fleet.TenantID
	digest string
}

type bundleEntry struct {
	key     bundleKey
	content []byte
}

func newBundleCache(read func(context.Context, fleet.TenantID, string) (fleet.Bundle, error)) *bundleCache {
	return &bundleCache{read: read, entries: map[bundleKey]*list.Element{}}
}

// get returns the compressed bytes; the caller must not change them.
func (c *bundleCache) get(ctx context.Context, tenant fleet.TenantID, digest string) ([]byte, error) {
	key := bundleKey{tenant, digest}
	if content, ok := c.lookup(key); ok {
		return content, nil
	}
	// Many sessions wait for one read, so it must not end with the session that came first.
	ch := c.flight.DoChan(string(tenant)+"/"+digest, func() (any, error) {
		if content, ok := c.lookup(key); ok {
			return content, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		b, err := c.read(ctx, tenant, digest)
		if err != nil {
			return nil, err
		}
		c.keep(key, b.Content)
		return b.Content, nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case res := <-ch:
		if res.Err != nil {
			return nil, res.Err
		}
		return res.Val.([]byte), nil
	}
}

func (c *bundleCache) lookup(key bundleKey) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.entries[key]
	if !ok {
		return nil, false
	}
	c.recent.MoveToFront(el)
	return el.Value.(bundleEntry).content, true
}

func (c *bundleCache) keep(key bundleKey, content []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok || len(content) > bundleCacheBytes/2 {
		return
	}
	c.entries[key] = c.recent.PushFront(bundleEntry{key, content})
	c.bytes += len(content)
	for c.bytes > bundleCacheBytes {
		oldest := c.recent.Back()
		entry := c.recent.Remove(oldest).(bundleEntry)
		delete(c.entries, entry.key)
		c.bytes -= len(entry.content)
	}
}
