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
	// parent is the repository that this one is a submodule of, "" for one that is read for itself.
	parent string
	dir    string

	// Under the manager's lock.
	users   int // calls under way, and upkeep
	used    time.Time
	touched time.Time // when the notes were last told of a use

	writer      chan struct{} // holds one token: who has it may change the repository
	ready       bool          // the repository exists and is tidy; under writer
	maintaining bool          // upkeep is on its way; under writer
	maxPacks    int           // beyond which upkeep is due
	room        room          // how large the repository may become; under writer
	refused     *exceeded     // nil until it was looked for; under writer

	knownMu sync.Mutex
	known   map[string]string // full ref by revision
	unread  string            // what the log was last told of why it cannot be read

	// partial says that contents of files are fetched when they are needed.
	partial atomic.Bool

	// grown notes what the mirror takes while it is fetched into, and returns how large it may become.
	grown func(size int64) room

	grants *grants
	cat    *catFile
	trees  *treeCache
	// suspect says that something could not be read that must be there.
	suspect atomic.Bool
}

func newMirror(cfg *Config, g *git, all *readers, n notes, dir string) *mirror {
	trees := newTreeCache(maxCachedEntries)
	r := &mirror{
		cfg: cfg, git: g, owner: n.Owner, url: n.URL, parent: n.Parent, dir: dir,
		writer: make(chan struct{}, 1), maxPacks: defaultMaxPacks,
		known:  map[string]string{},
		grants: newGrants(dir),
		cat:    newCatFile(all, g, dir, trees.Clear),
		trees:  trees,
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

// prepareLocked makes the repository if there is none, and clears away what a process that was
// killed has left.
func (r *mirror) prepareLocked(ctx context.Context) error {
	if r.ready {
		return nil
	}
	if !r.exists() {
		if err := os.RemoveAll(r.dir); err != nil {
			return fmt.Errorf("clearing the mirror of %s: %w", r.url, err)
		}
		if _, err := r.git.run(ctx, "", "init", "--quiet", "--bare", "--template=", "--initial-branch=none", "--", r.dir); err != nil {
			return fmt.Errorf("making the mirror of %s: %w", r.url, err)
		}
		err := errors.Join(r.stampCollected(), r.stampPartial())
		if err == nil {
			err = notes{Owner: r.owner, URL: r.url, Parent: r.parent}.write(r.dir) // last: see exists
		}
		if err != nil {
			return fmt.Errorf("making the mirror of %s: %w", r.url, err)
		}
	}
	if err := removeLeftovers(r.dir); err != nil {
		return fmt.Errorf("tidying the mirror of %s: %w", r.url, err)
	}
	r.ready = true
	return nil
}

// exists reports whether the repository is there and whole: without its notes, which are written last, an attempt to
// make it was cut short. git itself leaves half a repository when it is killed.
func (r *mirror) exists() bool {
	_, err := os.Stat(filepath.Join(r.dir, notesFile))
	return err == nil
}

// removeLeftovers deletes the locks and temporary files of killed processes. Only the holder of
// the writer's token runs anything that makes them.
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

// discardLocked removes the repository. One that is half deleted, by a process that was killed, is
// never taken for whole.
func (r *mirror) discardLocked() error {
	r.ready = false
	r.suspect.Store(false)
	r.cat.close()
	r.grants.clear()
	gone := r.dir + goneSuffix
	err := os.RemoveAll(gone)
	if err == nil {
		err = os.Rename(r.dir, gone)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.RemoveAll(gone)
	}
	if err != nil {
		return fmt.Errorf("discarding the mirror of %s: %w", r.url, err)
	}
	return nil
}
