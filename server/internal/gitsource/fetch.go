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

// Fetch fetches the current commits of the revisions, so that Tree can read them. A revision is a branch, a tag,
// a full ref, a full commit id (which needs no request if the mirror has it), "" for the default branch, or
// "semver:" and a range of versions for the tag with the highest one.
//
// The result has one entry per revision. A revision that does not exist has Err set. If the access has signers, a
// revision that none of them signed has an Err of type [*SignatureError]. Fetch returns ErrEmpty for an empty
// repository, and [*RemoteError] for one that it cannot read. It follows rewritten history. It verifies a new
// credential even if the mirror has all commits. Calls of one owner for one repository take turns.
func (m *Manager) Fetch(ctx context.Context, access Access, revisions []string) (map[string]Ref, error) {
	r, err := m.acquire(access)
	if err != nil {
		return nil, err
	}
	defer m.release(r.mirror)
	allowed, err := parseSigners(access.Signers)
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
	if err := m.reserveSpace(ctx, r.mirror); err != nil {
		return nil, err
	}
	defer m.updateDiskUsage(r.mirror)
	ctx, cancel := via.withTimeout(ctx)
	defer cancel()
	refs, err := r.fetchOrRecreateLocked(ctx, func() (map[string]Ref, error) { return r.fetchLimitedLocked(ctx, via, revisions) })
	if err == nil {
		err = r.verifyAccessLocked(ctx, via)
	}
	if err == nil && allowed != nil {
		err = r.checkRefs(ctx, allowed, refs)
	}
	if err != nil {
		// git may have been killed: remove its leftovers next time.
		r.ready = false
		return nil, err
	}
	m.startMaintenance(r.mirror)
	return refs, nil
}

// verifyAccessLocked records that the reader has access. It sends a request to the remote if the call has sent
// none yet and there is no record.
func (u *handle) verifyAccessLocked(ctx context.Context, via *route) error {
	if !via.answered && !u.accessRecords.verified(u.reader) {
		if _, err := u.lsRemote(ctx, via, []string{head}); err != nil {
			return err
		}
	}
	return u.accessRecords.add(u.reader)
}

// fetchLocked runs git fetch once if the refs of all revisions are known. Otherwise it lists the remote refs
// first.
func (r *mirror) fetchLocked(ctx context.Context, via *route, revisions []string) (map[string]Ref, error) {
	if err := r.prepareLocked(ctx); err != nil {
		return nil, err
	}
	out := make(map[string]Ref, len(revisions))
	if err := r.resolveRangesLocked(ctx, via, out, revisions); err != nil {
		return nil, err
	}
	var unknown []string
	for _, revision := range revisions {
		if _, known := r.knownRef(revision); !known && !isCommit(revision) && !isRange(revision) {
			unknown = append(unknown, revision)
		}
	}
	if err := r.resolveNamesLocked(ctx, via, out, unknown); err != nil {
		return nil, err
	}
	err := r.fetchKnownLocked(ctx, via, out, revisions)
	if !isMissing(err) {
		return out, err
	}
	// A ref is gone: find out which one, and fetch the rest.
	clear(out)
	if err := r.resolveRangesLocked(ctx, via, out, revisions); err != nil {
		return nil, err
	}
	named := slices.DeleteFunc(slices.Clone(revisions), func(revision string) bool { return isCommit(revision) || isRange(revision) })
	if err := r.resolveNamesLocked(ctx, via, out, named); err != nil {
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

// resolveNamesLocked lists the remote refs of the revisions and remembers them. It adds the revisions that do not
// exist to out.
func (r *mirror) resolveNamesLocked(ctx context.Context, via *route, out map[string]Ref, revisions []string) error {
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
			if err := r.deleteRefLocked(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteRefLocked deletes the local ref of a remote ref that is gone.
func (r *mirror) deleteRefLocked(ctx context.Context, name string) error {
	local := localRef(name)
	if _, err := r.cat.info(ctx, local); errors.Is(err, errNoObject) {
		return nil
	}
	if _, err := r.git.run(ctx, r.dir, "update-ref", "--no-deref", "-d", local); err != nil {
		return fmt.Errorf("deleting a ref from the mirror of %s: %w", r.url, err)
	}
	return nil
}

// fetchKnownLocked fetches the revisions that are not in out yet and adds them. It runs git once for refs that
// were fetched before, and once for new ones.
func (r *mirror) fetchKnownLocked(ctx context.Context, via *route, out map[string]Ref, revisions []string) error {
	names := map[string]string{} // remote ref or commit by revision
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
		} else if names[revision], _ = r.knownRef(revision); names[revision] == "" {
			return fmt.Errorf("reading %s: the ref of %q is unknown", r.url, revision)
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
	// Of a new ref fetch only the commit itself: histories are long, and nothing reads them.
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
	_, err := r.runFetch(ctx, via, nil, append(options, "--end-of-options"), slices.Sorted(maps.Keys(specs)))
	return err
}

// deepenLocked fetches the histories of all branches, once. Some servers send an older commit only that way.
func (r *mirror) deepenLocked(ctx context.Context, via *route) error {
	if _, err := os.Stat(filepath.Join(r.dir, "shallow")); err != nil {
		return nil // the mirror has the histories
	}
	// Remove the locks of a killed attempt.
	if err := os.RemoveAll(filepath.Join(r.dir, filepath.FromSlash(deepRefs))); err != nil {
		return fmt.Errorf("cleaning up the mirror of %s: %w", r.url, err)
	}
	r.cfg.Log.InfoContext(ctx, "server does not send commits by id, fetching the histories of its branches", "url", r.url)
	return r.fetchSpecs(ctx, via, map[string]bool{"+" + heads + "*:" + deepRefs + "*": true}, "--unshallow")
}

// deepRefs is the namespace of histories that were fetched for an older commit.
const deepRefs = "refs/kedge-deep/"

// fetchArgs disables everything that git does besides fetching.
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
		// A tag may point to a tree or a blob.
		return Ref{Err: &RefNotFoundError{Revision: revision}}, nil
	case err != nil:
		return Ref{}, err
	case isCommit(revision):
		return Ref{Commit: commit.id}, nil
	}
	return Ref{Name: name, Commit: commit.id}, nil
}
