package gitsource

import (
	"context"
	"errors"
	"fmt"
)

// fetchOrRecreateLocked fetches. If the mirror is damaged or mostly garbage, it recreates the mirror and fetches
// again.
func (r *mirror) fetchOrRecreateLocked(ctx context.Context, fetch func() (map[string]Ref, error)) (map[string]Ref, error) {
	if err := r.rejectedLocked(); err != nil {
		return nil, err
	}
	isNew := !r.exists()
	refs, err := fetch()
	if err == nil && r.suspect.Load() {
		err = errCorrupt // readers found damage that git fetch did not check
	}
	oversized := false
	if errors.Is(err, errTooLarge) && !isNew {
		if err := removeLeftovers(r.dir); err != nil {
			return nil, fmt.Errorf("cleaning up the mirror of %s: %w", r.url, err)
		}
		oversized = folderSize(r.dir) > r.cfg.MaxMirrorBytes/2
	}
	if errors.Is(err, errCorrupt) || oversized {
		r.cfg.Log.WarnContext(ctx, "recreating a damaged or oversized mirror", "url", r.url, "error", err)
		if err := r.discardLocked(); err != nil {
			return nil, err
		}
		isNew = true
		refs, err = fetch()
	}
	if err == nil {
		r.clearRejectionLocked()
		return refs, nil
	}
	var remote *RemoteError
	if errors.Is(err, errMemory) && !errors.As(err, &remote) { // of a reader process
		err = r.memoryError(ReaderMemory(r.git.memory))
	}
	// Every commit can refer to other submodules: keep no mirror of one that cannot be fetched.
	if rejection := r.rejectExceededLocked(ctx, err); isNew && (rejection || r.parent != "") {
		err = errors.Join(err, r.discardLocked())
	}
	return refs, err
}

// fetchLimitedLocked is fetchLocked with a size limit. If the first fetch of a repository becomes large, it
// starts again without the contents of files.
func (r *mirror) fetchLimitedLocked(ctx context.Context, via *route, revisions []string) (map[string]Ref, error) {
	largest := r.sizeLimit.bytes
	limit := largest
	if !r.partial.Load() && !hasPacks(r.dir) {
		limit = min(limit, r.cfg.MaxWholeBytes)
	}
	refs, err := r.withSizeLimitLocked(ctx, limit, func(ctx context.Context) (map[string]Ref, error) { return r.fetchLocked(ctx, via, revisions) })
	if limit == largest || !errors.Is(err, errTooLarge) {
		return refs, err
	}
	r.cfg.Log.InfoContext(ctx, "a repository is large, fetching the contents of files on demand", "url", r.url)
	if err := r.discardLocked(); err != nil {
		return nil, err
	}
	r.partial.Store(true)
	return r.withSizeLimitLocked(ctx, largest, func(ctx context.Context) (map[string]Ref, error) { return r.fetchLocked(ctx, via, revisions) })
}

// withSizeLimitLocked cancels do when the mirror grows beyond limit.
func (r *mirror) withSizeLimitLocked(ctx context.Context, limit int64, do func(context.Context) (map[string]Ref, error)) (map[string]Ref, error) {
	watched, stop := watchSize(ctx, sizeCheckInterval, func() error { return r.checkSize(limit) })
	refs, err := do(watched)
	stop()
	rejection := context.Cause(watched)
	if err == nil {
		rejection = r.checkSize(limit)
	}
	// The canceled operation may report the limit in its own words, or not at all.
	if errors.Is(rejection, errTooLarge) {
		err = r.sizeError(rejection)
	}
	return refs, err
}
