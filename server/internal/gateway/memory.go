package gateway

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	releaseInterval = 15 * time.Second
	// releaseThreshold is the activity after which a collection is worth its cost.
	releaseThreshold = 100
)

// releaseMemory returns memory to the operating system when the gateway is idle after a lot of activity.
// Connecting agents, sent states and received statuses leave more garbage than the connections need, and an idle
// process would keep that memory.
func (g *Gateway) releaseMemory(ctx context.Context) {
	tick := time.NewTicker(releaseInterval)
	defer tick.Stop()
	var last, released int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := g.activity.Load()
		if now == last && now-released >= releaseThreshold {
			debug.FreeOSMemory()
			released = now
		}
		last = now
	}
}
