package gitsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

const (
	sizeCheckEvery = 250 * time.Millisecond
	// tooLargeFor is how long a repository is not asked for that was too large: each attempt costs as
	// much traffic as the limit allows.
	tooLargeFor = 10 * time.Minute
)

var errTooLarge = errors.New("the repository is too large")

// tooLarge is the error for users.
func (r *mirror) tooLarge() error {
	return &RemoteError{
		URL: r.url, Problem: fmt.Sprintf("the repository is larger than %s, the limit of this server", sizeText(r.cfg.MaxMirrorBytes)),
		cause: errTooLarge,
	}
}

// sizeText writes a limit, which is mostly a round number.
func sizeText(bytes int64) string {
	switch {
	case bytes >= 1<<30 && bytes%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// watchSize ends the context that it returns, for errTooLarge, when the folder has grown beyond
// limit. The caller calls stop, which waits for the watch to end.
func watchSize(ctx context.Context, dir string, limit int64, every time.Duration) (watched context.Context, stop func()) {
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
				if folderSize(dir) > limit {
					cancel(errTooLarge)
				}
			}
		}
	}()
	return watched, func() {
		cancel(context.Canceled)
		<-done
	}
}

// folderSize adds up the files below a folder. What vanishes meanwhile, as temporary files of git
// do, does not count.
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
