package gateway

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/lru"
)

// bundleCacheBytes limits the compressed bytes in the cache. After a commit every agent needs the same few
// bundles within seconds, so the cache evicts the least recently used ones.
const bundleCacheBytes = 64 << 20

// bundleCache shares the bytes of a bundle between agents, so that the store is read once.
type bundleCache struct {
	read   func(ctx context.Context, tenant fleet.TenantID, digest string) (fleet.Bundle, error)
	flight singleflight.Group
	recent *lru.Cache[bundleKey, []byte]
}

// The tenant is part of the key: the knowledge of a digest gives no access.
type bundleKey struct {
	tenant fleet.TenantID
	digest string
}

func newBundleCache(read func(context.Context, fleet.TenantID, string) (fleet.Bundle, error)) *bundleCache {
	return &bundleCache{
		read:   read,
		recent: lru.New[bundleKey](bundleCacheBytes, func(content []byte) int { return len(content) }),
	}
}

// get returns the compressed bytes. The caller must not change them.
func (c *bundleCache) get(ctx context.Context, tenant fleet.TenantID, digest string) ([]byte, error) {
	key := bundleKey{tenant, digest}
	if content, ok := c.recent.Get(key); ok {
		return content, nil
	}
	// Many sessions wait for one read, so it must not end with the session that started it.
	ch := c.flight.DoChan(string(tenant)+"/"+digest, func() (any, error) {
		if content, ok := c.recent.Get(key); ok {
			return content, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		b, err := c.read(ctx, tenant, digest)
		if err != nil {
			return nil, err
		}
		if len(b.Content) <= bundleCacheBytes/2 { // a larger one would evict too many others
			c.recent.Put(key, b.Content)
		}
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
