package child

import (
	"runtime"
	"sync"
)

// thread is a system thread that starts processes. A child is killed when the thread that started it ends, and
// Go may end threads at any time; this one stays.
type thread struct {
	calls chan func()
	once  sync.Once
}

func newThread() *thread {
	t := &thread{calls: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for call := range t.calls {
			call()
		}
		// The goroutine unlocks the thread before it ends, because otherwise the thread would end too.
		runtime.UnlockOSThread()
	}()
	return t
}

// run calls f on the thread and returns its result.
func (t *thread) run(f func() error) error {
	result := make(chan error, 1)
	t.calls <- func() { result <- f() }
	return <-result
}

// stop releases the thread. run must not be called afterwards.
func (t *thread) stop() { t.once.Do(func() { close(t.calls) }) }
