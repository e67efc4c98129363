package gateway

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	tidyEvery = 15 * time.Second
	// tidyAfter is how many agents have to have come: a collection costs more than a few of them leave.
	tidyAfter = 100
)

// tidy gives memory back to the system when it is quiet after many agents have come. Their handshakes
// leave more garbage than their connections take, and a program that is idle would keep the room for it.
func (g *Gateway) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var seen, done int
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		g.mu.Lock()
		joined := g.joined
		g.mu.Unlock()
		if joined == seen && joined-done >= tidyAfter {
			debug.FreeOSMemory()
			done = joined
		}
		seen = joined
	}
}
