package builtin

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// collectFrom is how many objects have to be processed: a collection is too expensive for a few.
	collectFrom = 500
	// collectAfter is how long the engine has to be quiet then.
	collectAfter = 2 * time.Second
)

// collector returns memory to the system when the engine is quiet after much work: bundles, results and observations
// leave more garbage than the engine keeps, and an idle program would not return it.
type collector struct {
	mu    sync.Mutex
	done  int
	timer *time.Timer
}

// count counts objects.
func (t *collector) count(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += n
	switch {
	case t.done < collectFrom:
	case t.timer == nil:
		t.timer = time.AfterFunc(collectAfter, t.collect)
	default:
		t.timer.Reset(collectAfter)
	}
}

func (t *collector) collect() {
	t.mu.Lock()
	t.done, t.timer = 0, nil
	t.mu.Unlock()
	runtime.GC() // pools survive one collection, and have the buffers of a large inventory
	debug.FreeOSMemory()
}
