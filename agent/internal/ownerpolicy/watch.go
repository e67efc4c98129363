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

// Load reads the policy from a file. A file that does not exist restricts nothing. An empty file is an error.
func Load(file string) (Policy, error) {
	p, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Policy{}, nil
	}
	return p, err
}

// read is Load, but fails with [fs.ErrNotExist] when the file does not exist.
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
		// The file is probably just being written.
		err = errors.New("the file is empty: write {} to lift all restrictions")
	}
	if err != nil {
		return Policy{}, fmt.Errorf("reading the policy of the cluster's owner in %s: %w", file, err)
	}
	return p, nil
}

// rereadInterval is how often the file is read without an event, for machines that have run out of file watches.
const rereadInterval = 30 * time.Second

// Watch calls changed when the policy in file changes, until ctx ends. When the file is not valid, Watch logs an error and
// the last policy stays in force. The same applies when the file is deleted: a mistake, or a user who may delete the
// ConfigMap, must not lift the restrictions. Watch watches the folder, because the kubelet updates a mounted ConfigMap by
// replacing a symbolic link.
func Watch(ctx context.Context, file string, last Policy, changed func(Policy), log *slog.Logger) {
	events, stop := watchFolder(file, log)
	defer stop()
	tick := time.NewTicker(rereadInterval)
	defer tick.Stop()
	problem := ""
	for {
		// The first read is after the start of the watch, so that no change is missed.
		next, err := read(file)
		if errors.Is(err, fs.ErrNotExist) && reflect.DeepEqual(last, Policy{}) {
			next, err = last, nil // there was no file at the start either
		}
		switch {
		case err != nil && err.Error() != problem:
			problem = err.Error()
			log.Error("the policy of the cluster's owner is not valid; the last policy stays in force", obs.Err(err))
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
		case <-events:
		case <-tick.C:
		}
	}
}

// watchFolder returns the events of the folder of file.
func watchFolder(file string, log *slog.Logger) (events <-chan fsnotify.Event, stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		err = watcher.Add(filepath.Dir(file))
	}
	if err != nil {
		log.Warn("the policy of the cluster's owner cannot be watched: changes take effect later", obs.Err(err), "within", rereadInterval.String())
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
		_ = watcher.Close() // closes both channels
		drained.Wait()
	}
}
