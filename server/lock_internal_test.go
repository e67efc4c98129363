package server

import (
	"os/exec"
	"sync"
	"testing"
)

// A directory can be locked again at once, also while child processes start, which have copies of open files for a moment.
func TestDirectoryIsLockedAgain(t *testing.T) {
	t.Parallel()
	var children sync.WaitGroup
	defer children.Wait()
	stop := make(chan struct{})
	defer close(stop)
	for range 4 {
		children.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.CommandContext(t.Context(), "true").Run()
				}
			}
		})
	}
	dir := t.TempDir()
	for range 300 {
		unlock, err := lockDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
}
