package reposync

import (
	"sync"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxClusters bounds what is remembered of clusters: each may have fleet.MaxCapabilities, and a fleet has few
// kinds of them.
const maxClusters = 64

// clusters are capabilities by hash, which means the same for ever, of those that were looked up. It is safe for
// concurrent use, and ready as it is.
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

// put remembers one more; when there are too many, any other goes and is looked up again.
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
