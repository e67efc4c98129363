package gitsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Fetch brings the commits that the revisions name now, so that Tree can read them. A revision is a
// branch, a tag, a full ref, a full commit (for which the remote is not asked), "" for the default
// branch, or "semver:" and a range of versions for the tag with the highest one. Where the access names
// signers, what is not signed by one of them has an Err of type [*SignatureError]. The answer has one entry for each revision; one that names nothing has Err set. An empty
// repository fails with ErrEmpty, one that cannot be read with [*RemoteError]. What was rewritten at the remote is followed. A credential that
// was not used before is tried even when everything is there already. Calls of one owner for one
// repository take turns.
func (m *Manager) Fetch(ctx context.Context, access Access, revisions []string) (map[string]Ref, error) {
	r, err := m.use(access)
	if err != nil {
		return nil, err
	}
	defer m.end(r.mirror)
	who, err := parseSigners(access.Signers)
	if err != nil {
		return nil, err
	}
	via, err := m.route(r)
	if err != nil {
		return nil, err
	}
	if err := r.lock(ctx); err != nil {
		return nil, err
	}
	defer r.unlock()
	if err := m.makeRoom(ctx, r.mirror); err != nil {
		return nil, err
	}
	defer m.weigh(r.mirror)
	ctx, cancel := via.within(ctx)
	defer cancel()
	refs, err := r.mendingLocked(ctx, func() (map[string]Ref, error) { return r.watchedLocked(ctx, via, revisions) })
	if err == nil {
		err = r.proveLocked(ctx, via)
	}
	if err == nil && who != nil {
		err = r.checkRefs(ctx, who, refs)
	}
	if err != nil {
		// git may have been killed: look for its leftovers next time.
		r.ready = false
		return nil, err
	}
	m.maintainLater(r.mirror)
	return refs, nil
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
	if err := r.rangesLocked(ctx, via, out, revisions); err != nil {
		return nil, err
	}
	var ask []string
	for _, revision := range revisions {
		if _, known := r.refOf(revision); !known && !isCommit(revision) && !isRange(revision) {
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
	if err := r.rangesLocked(ctx, via, out, revisions); err != nil {
		return nil, err
	}
	named := slices.DeleteFunc(slices.Clone(revisions), func(revision string) bool { return isCommit(revision) || isRange(revision) })
	if err := r.lookUpLocked(ctx, via, out, named); err != nil {
		return nil, err
	}
	for _, revision := range revisions {
		if out[revision].Err != nil || out[revision].Commit != "" {
			continue
		}
		err := r.fetchKnownLocked(ctx, via, out, []string{revision})
		if errors.Is(err, errUnadvertised) {
			if err = r.deepenLocked(ctx, via); err == nil {
				err = r.fetchKnownLocked(ctx, via, out, []string{revision})
			}
		}
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

// fetchKnownLocked fetches the revisions that are not in out yet, and puts them there: by one run of
// git for those that were fetched before, and one for those that were not.
func (r *mirror) fetchKnownLocked(ctx context.Context, via *route, out map[string]Ref, revisions []string) error {
	names := map[string]string{} // remote name by revision
	again, first := map[string]bool{}, map[string]bool{}
	for _, revision := range revisions {
		if out[revision].Err != nil || out[revision].Commit != "" {
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
		specs := again
		if _, err := r.cat.info(ctx, localRef(names[revision])); errors.Is(err, errNoObject) {
			specs = first
		} else if err != nil {
			return err
		}
		specs["+"+names[revision]+":"+localRef(names[revision])] = true
	}
	if err := r.fetchSpecs(ctx, via, again); err != nil {
		return err
	}
	// Of what is new only the commit itself: histories are long, and nobody reads them.
	if err := r.fetchSpecs(ctx, via, first, "--depth=1"); err != nil {
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

// fetchSpecs runs git fetch once.
func (r *mirror) fetchSpecs(ctx context.Context, via *route, specs map[string]bool, options ...string) error {
	if len(specs) == 0 {
		return nil
	}
	_, err := r.askFetch(ctx, via, nil, append(options, "--end-of-options"), slices.Sorted(maps.Keys(specs)))
	return err
}

// deepenLocked fetches the histories of all branches, once, from a server that gives an older commit no
// other way.
func (r *mirror) deepenLocked(ctx context.Context, via *route) error {
	if _, err := os.Stat(filepath.Join(r.dir, "shallow")); err != nil {
		return nil // there is no more to have
	}
	// Locks of an attempt that was killed.
	if err := os.RemoveAll(filepath.Join(r.dir, filepath.FromSlash(deepRefs))); err != nil {
		return fmt.Errorf("tidying the mirror of %s: %w", r.url, err)
	}
	r.cfg.Log.InfoContext(ctx, "a server gives no commits by name: its histories are fetched", "url", r.url)
	return r.fetchSpecs(ctx, via, map[string]bool{"+" + heads + "*:" + deepRefs + "*": true}, "--unshallow")
}

// deepRefs keeps histories that were fetched for an older commit.
const deepRefs = "refs/kedge-deep/"

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
