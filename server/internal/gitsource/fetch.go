package gitsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Fetch brings the commits that the revisions name now, so that Tree can read them. A revision is a
// branch, a tag, a full ref, a full commit (for which the remote is not asked), or "" for the default
// branch. The answer has one entry for each revision; one that names nothing has Err set. An empty
// repository fails with ErrEmpty, one that cannot be read with [*RemoteError]. What was rewritten at the remote is followed. A credential that
// was not used before is tried even when everything is there already. Calls of one owner for one
// repository take turns.
func (m *Manager) Fetch(ctx context.Context, access Access, revisions []string) (map[string]Ref, error) {
	r, err := m.use(access)
	if err != nil {
		return nil, err
	}
	defer m.end(r.mirror)
	via, err := m.route(r.access)
	if err != nil {
		return nil, err
	}
	if err := r.lock(ctx); err != nil {
		return nil, err
	}
	defer r.unlock()
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	refs, err := r.mendingLocked(ctx, func() (map[string]Ref, error) { return r.watchedLocked(ctx, via, revisions) })
	if err == nil {
		err = r.proveLocked(ctx, via)
	}
	if err != nil {
		// git may have been killed: look for its leftovers next time.
		r.ready = false
		return nil, err
	}
	m.maintainLater(r.mirror)
	return refs, nil
}

// mendingLocked fetches, and once more into an empty mirror when what is there is damaged or mostly
// garbage.
func (r *mirror) mendingLocked(ctx context.Context, fetch func() (map[string]Ref, error)) (map[string]Ref, error) {
	if time.Now().Before(r.tooLargeUntil) {
		return nil, r.tooLarge()
	}
	fresh := !r.exists()
	refs, err := fetch()
	if err == nil && r.suspect.Load() {
		err = errCorrupt // readers met what git fetch did not look at
	}
	bloated := false
	if errors.Is(err, errTooLarge) && !fresh {
		if err := removeLeftovers(r.dir); err != nil {
			return nil, fmt.Errorf("tidying the mirror of %s: %w", r.url, err)
		}
		bloated = folderSize(r.dir) > r.cfg.MaxMirrorBytes/2
	}
	if errors.Is(err, errCorrupt) || bloated {
		r.cfg.Log.WarnContext(ctx, "making a damaged or bloated mirror anew", "url", r.url, "error", err)
		if err := r.discardLocked(); err != nil {
			return nil, err
		}
		fresh = true
		refs, err = fetch()
	}
	if errors.Is(err, errTooLarge) {
		r.tooLargeUntil = time.Now().Add(tooLargeFor)
		if fresh {
			err = errors.Join(err, r.discardLocked())
		}
	}
	return refs, err
}

// watchedLocked is fetchLocked within the limit of size.
func (r *mirror) watchedLocked(ctx context.Context, via *route, revisions []string) (map[string]Ref, error) {
	watched, stop := watchSize(ctx, r.dir, r.cfg.MaxMirrorBytes, sizeCheckEvery)
	refs, err := r.fetchLocked(watched, via, revisions)
	stop()
	if err == nil && folderSize(r.dir) > r.cfg.MaxMirrorBytes {
		err = r.tooLarge()
	}
	return refs, err
}

// proveLocked notes that the reader may have what was fetched, and asks the remote whether it is so
// when nothing else needed asking.
func (u *use) proveLocked(ctx context.Context, via *route) error {
	if !via.asked && !u.grants.has(u.reader) {
		if _, err := u.lsRemote(ctx, via, []string{head}); err != nil {
			return err
		}
	}
	return u.grants.add(u.reader)
}

// fetchLocked fetches once when it is known what the revisions name, and finds that out first
// where it is not.
func (r *mirror) fetchLocked(ctx context.Context, via *route, revisions []string) (map[string]Ref, error) {
	if err := r.prepareLocked(ctx); err != nil {
		return nil, err
	}
	out := make(map[string]Ref, len(revisions))
	var ask []string
	for _, revision := range revisions {
		if _, known := r.refOf(revision); !known && !isCommit(revision) {
			ask = append(ask, revision)
		}
	}
	if err := r.lookUpLocked(ctx, via, out, ask); err != nil {
		return nil, err
	}
	err := r.fetchKnownLocked(ctx, via, out, revisions)
	if !isMissing(err) {
		return out, err
	}
	// Something is gone: find out what, and bring the rest.
	clear(out)
	named := slices.DeleteFunc(slices.Clone(revisions), isCommit)
	if err := r.lookUpLocked(ctx, via, out, named); err != nil {
		return nil, err
	}
	for _, revision := range revisions {
		if out[revision].Err != nil || out[revision].Commit != "" {
			continue
		}
		err := r.fetchKnownLocked(ctx, via, out, []string{revision})
		if isMissing(err) {
			out[revision] = Ref{Err: &RefNotFoundError{Revision: revision}}
		} else if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lookUpLocked puts those of the revisions that name nothing into out, and learns what the others
// name.
func (r *mirror) lookUpLocked(ctx context.Context, via *route, out map[string]Ref, revisions []string) error {
	if len(revisions) == 0 {
		return nil
	}
	listed, err := r.list(ctx, via, revisions)
	if err != nil {
		return err
	}
	for revision, ref := range listed {
		if ref.Err == nil {
			continue
		}
		out[revision] = ref
		for _, name := range candidates(revision) {
			if err := r.dropRefLocked(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// dropRefLocked lets go of what a ref held that is gone at the remote.
func (r *mirror) dropRefLocked(ctx context.Context, name string) error {
	local := localRef(name)
	if _, err := r.cat.info(ctx, local); errors.Is(err, errNoObject) {
		return nil
	}
	if _, err := r.git.run(ctx, r.dir, "update-ref", "--no-deref", "-d", local); err != nil {
		return fmt.Errorf("dropping a ref from the mirror of %s: %w", r.url, err)
	}
	return nil
}

// fetchKnownLocked fetches the revisions that are not in out yet, by one run of git, and puts them
// there.
func (r *mirror) fetchKnownLocked(ctx context.Context, via *route, out map[string]Ref, revisions []string) error {
	names := map[string]string{} // remote name by revision
	specs := map[string]bool{}
	for _, revision := range revisions {
		if out[revision].Err != nil {
			continue
		}
		if isCommit(revision) {
			if _, err := r.cat.info(ctx, revision+"^{commit}"); err == nil {
				out[revision] = Ref{Commit: revision}
				continue
			}
			names[revision] = revision
		} else if names[revision], _ = r.refOf(revision); names[revision] == "" {
			return fmt.Errorf("reading %s: %q was not looked up", r.url, revision)
		}
		specs["+"+names[revision]+":"+localRef(names[revision])] = true
	}
	if len(specs) == 0 {
		return nil
	}
	_, err := r.ask(ctx, via, r.dir, func(url string) []string {
		args := append(slices.Clone(fetchArgs), "--end-of-options", url)
		return append(args, slices.Sorted(maps.Keys(specs))...)
	})
	if err != nil {
		return err
	}
	for revision, name := range names {
		ref, err := r.resolve(ctx, revision, name)
		if err != nil {
			return err
		}
		out[revision] = ref
	}
	return nil
}

// fetchArgs leave out all that git does beside fetching.
var fetchArgs = []string{
	"fetch", "--quiet", "--no-tags", "--no-auto-maintenance", "--no-write-fetch-head",
	"--no-show-forced-updates", "--no-recurse-submodules", "--no-write-commit-graph",
}

func (r *mirror) resolve(ctx context.Context, revision, name string) (Ref, error) {
	commit, err := r.cat.info(ctx, localRef(name)+"^{commit}")
	switch {
	case errors.Is(err, errNoObject) && (name == head || strings.HasPrefix(name, heads)):
		return Ref{}, fmt.Errorf("reading %s: %w: %s is not readable", r.url, errCorrupt, name)
	case errors.Is(err, errNoObject):
		// A tag may name a tree or a file.
		return Ref{Err: &RefNotFoundError{Revision: revision}}, nil
	case err != nil:
		return Ref{}, err
	case isCommit(revision):
		return Ref{Commit: commit.id}, nil
	}
	return Ref{Name: name, Commit: commit.id}, nil
}
