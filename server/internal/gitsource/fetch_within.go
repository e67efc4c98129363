package gitsource

import (
	"context"
	"errors"
	"fmt"
)

// mendingLocked fetches, and once more into an empty mirror when what is there is damaged or mostly
// garbage.
func (r *mirror) mendingLocked(ctx context.Context, fetch func() (map[string]Ref, error)) (map[string]Ref, error) {
	if err := r.refusedLocked(); err != nil {
		return nil, err
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
	if err == nil {
		r.admitLocked()
		return refs, nil
	}
	var remote *RemoteError
	if errors.Is(err, errMemory) && !errors.As(err, &remote) { // a reader's
		err = r.needsMemory(ReaderMemory(r.git.memory))
	}
	// Every commit can name other submodules: of those that cannot be fetched nothing is kept.
	if exceeded := r.exceededLocked(ctx, err); fresh && (exceeded || r.parent != "") {
		err = errors.Join(err, r.discardLocked())
	}
	return refs, err
}

// watchedLocked is fetchLocked within the limit of size. The first fetch of a repository whose files
// are many begins anew, without their contents.
func (r *mirror) watchedLocked(ctx context.Context, via *route, revisions []string) (map[string]Ref, error) {
	most := r.room.bytes
	limit := most
	if !r.partial.Load() && !hasPacks(r.dir) {
		limit = min(limit, r.cfg.MaxWholeBytes)
	}
	refs, err := r.withinLocked(ctx, limit, func(ctx context.Context) (map[string]Ref, error) { return r.fetchLocked(ctx, via, revisions) })
	if limit == most || !errors.Is(err, errTooLarge) {
		return refs, err
	}
	r.cfg.Log.InfoContext(ctx, "a repository is large: its files are fetched as they are needed", "url", r.url)
	if err := r.discardLocked(); err != nil {
		return nil, err
	}
	r.partial.Store(true)
	return r.withinLocked(ctx, most, func(ctx context.Context) (map[string]Ref, error) { return r.fetchLocked(ctx, via, revisions) })
}

// withinLocked ends what makes the mirror grow beyond limit.
func (r *mirror) withinLocked(ctx context.Context, limit int64, do func(context.Context) (map[string]Ref, error)) (map[string]Ref, error) {
	watched, stop := watchSize(ctx, sizeCheckEvery, func() error { return r.checkSize(limit) })
	refs, err := do(watched)
	stop()
	exceeded := context.Cause(watched)
	if err == nil {
		exceeded = r.checkSize(limit)
	}
	// Whatever was under way when that was noticed, or did not even begin, may say so in its own words.
	if errors.Is(exceeded, errTooLarge) {
		err = r.tooLarge(exceeded)
	}
	return refs, err
}
