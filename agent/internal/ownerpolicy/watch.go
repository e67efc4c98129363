package ownerpolicy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/kedge-dev/kedge/internal/obs"
)

// Load reads the policy of a file; a file that does not exist forbids nothing, one that is empty is refused.
func Load(file string) (Policy, error) {
	p, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Policy{}, nil
	}
	return p, err
}

// read is Load that tells of a file that does not exist: [fs.ErrNotExist].
func read(file string) (Policy, error) {
	f, err := os.Open(file)
	if err != nil {
		return Policy{}, fmt.Errorf("reading the policy of the cluster's owner: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return Policy{}, fmt.Errorf("reading the policy of the cluster's owner: %w", err)
	}
	p, err := Parse(text)
	if err == nil && len(bytes.TrimSpace(text)) == 0 {
		// More often a file that is just being written than one that means to allow everything.
		err = errors.New("it is empty: write {} to forbid nothing")
	}
	if err != nil {
		return Policy{}, fmt.Errorf("reading the policy of the cluster's owner in %s: %w", file, err)
	}
	return p, nil
}

// reread is how often the file is read although nothing was heard of it: where a machine has no watches
// left to give, the owner of the cluster is heeded all the same.
const reread = 30 * time.Second

// Watch calls changed with the policy of file whenever it has become another one, until ctx ends. A file
// that cannot be read as a policy changes nothing: what was allowed before goes on to be, and is logged.
// Nor does one that has disappeared: a mistake, or whoever may delete a ConfigMap, must not lift what the
// owner has forbidden. The folder is watched, since a mounted ConfigMap is replaced by a link.
func Watch(ctx context.Context, file string, last Policy, changed func(Policy), log *slog.Logger) {
	heard, stop := listen(file, log)
	defer stop()
	tick := time.NewTicker(reread)
	defer tick.Stop()
	problem := ""
	for {
		// Read once after the watch has begun: it may have changed before.
		next, err := read(file)
		if errors.Is(err, fs.ErrNotExist) && reflect.DeepEqual(last, Policy{}) {
			next, err = last, nil // nothing was forbidden, and nothing is
		}
		switch {
		case err != nil && err.Error() != problem:
			problem = err.Error()
			log.Error("the policy of the cluster's owner is not usable; the one before stays in force", obs.Err(err))
		case err == nil && !reflect.DeepEqual(next, last):
			last = next
			log.Info("the policy of the cluster's owner has changed", "file", file)
			changed(next)
		}
		if err == nil {
			problem = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-heard:
		case <-tick.C:
		}
	}
}

// listen tells when something happens in the folder of file.
func listen(file string, log *slog.Logger) (heard <-chan fsnotify.Event, stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watcher.Add(filepath.Dir(file))
	}
	if err != nil {
		log.Warn("changes of the policy of the cluster's owner are noticed later", obs.Err(err), "within", reread.String())
	}
	if watcher == nil {
		return nil, func() {}
	}
	var drained sync.WaitGroup
	drained.Go(func() {
		for err := range watcher.Errors {
			log.Warn("watching the policy of the cluster's owner", obs.Err(err))
		}
	})
	return watcher.Events, func() {
		_ = watcher.Close() // and with it both channels
		drained.Wait()
	}
}
