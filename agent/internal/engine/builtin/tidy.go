package builtin

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// tidyFrom is how many objects have to have been worked on: a collection costs more than a few of them leave.
	tidyFrom = 500
	// tidyAfter is how long it has to be quiet then.
	tidyAfter = 2 * time.Second
)

// tidiness gives memory back to the system when it is quiet after much has arrived or was applied: bundles,
// answers and sightings leave more garbage than there is to remember, and a program that is idle would keep
// the room for it.
type tidiness struct {
	mu    sync.Mutex
	done  int
	timer *time.Timer
}

// worked counts objects.
func (t *tidiness) worked(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done += n
	switch {
	case t.done < tidyFrom:
	case t.timer == nil:
		t.timer = time.AfterFunc(tidyAfter, t.tidy)
	default:
		t.timer.Reset(tidyAfter)
	}
}

func (t *tidiness) tidy() {
	t.mu.Lock()
	t.done, t.timer = 0, nil
	t.mu.Unlock()
	runtime.GC() // what pools hold survives one collection: the buffers of a large inventory, for one
	debug.FreeOSMemory()
}
