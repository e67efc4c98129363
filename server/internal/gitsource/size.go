package gitsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

const sizeCheckInterval = 250 * time.Millisecond

var errTooLarge = errors.New("the repository is too large")

// sizeText formats a limit, which usually is a round number.
func sizeText(bytes int64) string {
	switch {
	case bytes >= 1<<30 && bytes%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// watchSize calls check repeatedly, and cancels the returned context with the first error of check. The caller
// calls stop, which waits for the goroutine to end.
func watchSize(ctx context.Context, every time.Duration, check func() error) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-ticker.C:
				if err := check(); err != nil {
					cancel(err)
				}
			}
		}
	}()
	return watched, func() {
		cancel(context.Canceled)
		<-done
	}
}

// folderSize returns the total size of the files below a folder. It ignores files that vanish in the meantime,
// like temporary files of git.
func folderSize(dir string) int64 {
	var size int64
	// The function returns no errors, so neither does the walk.
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}
