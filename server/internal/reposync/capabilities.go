package reposync

import (
	"sync"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxClusters limits the cached capabilities: each may have fleet.MaxCapabilities, and a fleet has few
// different ones.
const maxClusters = 64

// clusters caches capabilities by hash, which never change. It is safe for concurrent use; the zero value is
// ready.
type clusters struct {
	mu sync.Mutex
	of map[string]fleet.Capabilities
}

func (c *clusters) get(hash string) (fleet.Capabilities, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.of[hash]
	return known, ok
}

// put adds an entry; if there are too many, it removes any other.
func (c *clusters) put(hash string, known fleet.Capabilities) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]fleet.Capabilities{}
	}
	for other := range c.of {
		if len(c.of) < maxClusters {
			break
		}
		delete(c.of, other)
	}
	c.of[hash] = known
}
