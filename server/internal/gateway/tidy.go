package gateway

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	tidyEvery = 15 * time.Second
	// tidyAfter is how much has to have been done: a collection costs more than a little of it leaves.
	tidyAfter = 100
)

// tidy gives memory back to the system when it is quiet after many agents have come, or much was sent to
// them and told by them. That leaves more garbage than connections take, and a program that is idle
// would keep the room for it.
func (g *Gateway) tidy(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var seen, done int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		worked := g.worked.Load()
		if worked == seen && worked-done >= tidyAfter {
			debug.FreeOSMemory()
			done = worked
		}
		seen = worked
	}
}
