package gitsource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// mirror is one bare repository on disk.
type mirror struct {
	cfg   *Config
	git   *git
	owner string
	url   string
	// parent is the repository that this one is a submodule of. It is "" for a repository of a deployment.
	parent string
	dir    string

	usage usage // guarded by the manager's lock

	// writer is a lock: an element in the channel means that it is locked. It guards the repository and the next four
	// fields.
	writer      chan struct{}
	ready       bool       // the repository exists and has no leftovers of killed processes
	maintaining bool       // maintenance is scheduled
	sizeLimit   sizeLimit  // how large the repository may become
	rejection   *rejection // nil until it is read from the disk

	maxPacks int // the number of packs above which maintenance is due
	remote   remoteState

	// partial means that the contents of files are fetched when they are read.
	partial atomic.Bool
	// reportSize records the size of the mirror during a fetch and returns how large it may become.
	reportSize func(size int64) sizeLimit

	accessRecords *accessRecords
	cat           *catFile
	trees         *treeCache
	// suspect means that an object could not be read that must be there.
	suspect atomic.Bool
}

// usage is how a mirror is used.
type usage struct {
	users   int // calls and maintenance in progress
	used    time.Time
	touched time.Time // when the time of use was last written to the disk
}

// remoteState is what is known about the remote of a mirror.
type remoteState struct {
	mu          sync.Mutex
	refs        map[string]string // full ref names by revision
	lastProblem string            // the logged problem of the last read; "" if it succeeded
}

func newMirror(cfg *Config, g *git, all *readers, n metadata, dir string) *mirror {
	trees := newTreeCache(maxCachedEntries)
	r := &mirror{
		cfg: cfg, git: g, owner: n.Owner, url: n.URL, parent: n.Parent, dir: dir,
		writer: make(chan struct{}, 1), maxPacks: defaultMaxPacks,
		remote:        remoteState{refs: map[string]string{}},
		accessRecords: newAccessRecords(dir),
		cat:           newCatFile(all, g, dir, trees.Clear),
		trees:         trees,
	}
	_, err := os.Stat(filepath.Join(dir, partialFile))
	r.partial.Store(err == nil)
	return r
}

func (r *mirror) lock(ctx context.Context) error {
	select {
	case r.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the mirror of %s: %w", r.url, ctx.Err())
	}
}

func (r *mirror) unlock() { <-r.writer }

// prepareLocked creates the repository if needed and removes the leftovers of killed processes.
func (r *mirror) prepareLocked(ctx context.Context) error {
	if r.ready {
		return nil
	}
	if !r.exists() {
		if err := os.RemoveAll(r.dir); err != nil {
			return fmt.Errorf("deleting the mirror of %s: %w", r.url, err)
		}
		if _, err := r.git.run(ctx, "", "init", "--quiet", "--bare", "--template=", "--initial-branch=none", "--", r.dir); err != nil {
			return fmt.Errorf("creating the mirror of %s: %w", r.url, err)
		}
		err := errors.Join(r.stampCollected(), r.stampPartial())
		if err == nil {
			err = metadata{Owner: r.owner, URL: r.url, Parent: r.parent}.write(r.dir) // last, see exists
		}
		if err != nil {
			return fmt.Errorf("creating the mirror of %s: %w", r.url, err)
		}
	}
	if err := removeLeftovers(r.dir); err != nil {
		return fmt.Errorf("cleaning up the mirror of %s: %w", r.url, err)
	}
	r.ready = true
	return nil
}

// exists reports whether the repository was created completely. Its metadata is written last. git leaves an
// incomplete repository when it is killed.
func (r *mirror) exists() bool {
	_, err := os.Stat(filepath.Join(r.dir, metadataFile))
	return err == nil
}

// removeLeftovers deletes the locks and temporary files of killed processes. Only the holder of the writer lock
// runs processes that create them.
func removeLeftovers(dir string) error {
	for _, folder := range []string{".", "refs/kedge", "objects/pack"} {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := e.Name()
			if strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_") || strings.HasPrefix(name, ".tmp-") {
				if err := os.Remove(filepath.Join(dir, folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
	}
	return nil
}

// discardLocked deletes the repository. It renames the folder first, so that a killed process does not leave an
// incomplete repository.
func (r *mirror) discardLocked() error {
	r.ready = false
	r.suspect.Store(false)
	r.cat.close()
	r.accessRecords.clear()
	deleted := r.dir + deletedSuffix
	err := os.RemoveAll(deleted)
	if err == nil {
		err = os.Rename(r.dir, deleted)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.RemoveAll(deleted)
	}
	if err != nil {
		return fmt.Errorf("deleting the mirror of %s: %w", r.url, err)
	}
	return nil
}
