package child

import (
	"runtime"
	"sync"
)

// thread is a thread of the system that starts processes. A child is killed when the thread that started
// it ends, and Go ends threads as it likes; this one stays.
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
		// Not ended while locked, which would end the thread too: somebody else may still use it.
		runtime.UnlockOSThread()
	}()
	return t
}

// run calls f on the thread and returns what it does.
func (t *thread) run(f func() error) error {
	result := make(chan error, 1)
	t.calls <- func() { result <- f() }
	return <-result
}

// stop lets go of the thread. Nothing may be run any more.
func (t *thread) stop() { t.once.Do(func() { close(t.calls) }) }
