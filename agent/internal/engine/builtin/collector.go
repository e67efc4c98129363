package builtin

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// collectFrom is how many objects have to have been worked on: a collection costs more than a few of them leave.
	collectFrom = 500
	// collectAfter is how long it has to be quiet then.
	collectAfter = 2 * time.Second
)

// collector gives memory back to the system when it is quiet after much has arrived or was applied: bundles,
// answers and sightings leave more garbage than there is to remember, and a program that is idle would keep
// the room for it.
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
	runtime.GC() // what pools hold survives one collection: the buffers of a large inventory, for one
	debug.FreeOSMemory()
}
