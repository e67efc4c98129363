package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/fairlimit"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

const (
	// resolvedFor is how long a resolved revision counts as the newest. If something is missing there, the
	// remote is read again, so the cache never causes a refusal.
	resolvedFor = 10 * time.Second
	// maxResolved limits the cache.
	maxResolved = 1000
	// checksAtOnce limits the fetches for checks, and checksShare those of one tenant beyond its first.
	checksAtOnce = 8
	checksShare  = 4
)

// sourceChecks checks sources before they are stored. Many concurrent deployments of one revision need one
// fetch: calls during it, and for a few seconds after it, share its result and only check their folder. It is
// safe for concurrent use.
type sourceChecks struct {
	git     Git
	limits  render.Limits
	now     func() time.Time
	bound   time.Duration
	limiter *fairlimit.Limiter

	mu       sync.Mutex
	resolved map[resolvedKey]*resolution
}

// resolvedKey identifies a revision for one reader: tenants and credentials share nothing.
type resolvedKey struct {
	owner, url, credential, revision string
	submodules                       bool
}

type resolution struct {
	done   chan struct{} // closed when the rest is set
	at     time.Time
	commit string
	err    error
}

func newSourceChecks(git Git, cfg Config) *sourceChecks {
	return &sourceChecks{
		git: git, limits: cfg.RenderLimits, now: cfg.Now, bound: cfg.CheckTimeout, resolved: map[resolvedKey]*resolution{},
		limiter: fairlimit.New(fairlimit.Config{Usual: checksAtOnce, Share: checksShare, Most: 2 * checksAtOnce}),
	}
}

// check returns an InvalidError for a definite error in the source of d.
func (c *sourceChecks) check(ctx context.Context, access gitsource.Access, d fleet.Deployment) error {
	shared, err := c.checkOnce(ctx, access, d, false)
	var invalid *fleet.InvalidError
	if shared && errors.As(err, &invalid) && ctx.Err() == nil {
		// The shared fetch may be older than the push of this request.
		_, err = c.checkOnce(ctx, access, d, true)
	}
	return err
}

func (c *sourceChecks) checkOnce(ctx context.Context, access gitsource.Access, d fleet.Deployment, again bool) (shared bool, err error) {
	commit, shared, err := c.resolve(ctx, access, d.Source.Revision, again)
	if err == nil {
		err = c.checkFolder(ctx, access, commit, d)
	}
	return shared, definite(err)
}

// resolve returns the newest commit of a revision, and whether the result is shared. With again it is not.
func (c *sourceChecks) resolve(ctx context.Context, access gitsource.Access, revision string, again bool) (commit string, shared bool, err error) {
	key := resolvedKey{owner: access.Owner, url: access.URL, revision: revision, submodules: access.Submodules}
	if access.Credential != nil {
		key.credential = access.Credential.Fingerprint
	}
	c.mu.Lock()
	r, shared := c.resolved[key]
	if !shared || again || c.expired(r) {
		shared = false
		r = &resolution{done: make(chan struct{}), at: c.now()}
		c.tidyLocked()
		c.resolved[key] = r
		// Others may still wait if the first caller disconnects.
		go c.fetch(context.WithoutCancel(ctx), key, r, access)
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return r.commit, shared, r.err
	case <-ctx.Done():
		return "", shared, ctx.Err()
	}
}

// expired reports whether a resolution is done and too old.
func (c *sourceChecks) expired(r *resolution) bool {
	select {
	case <-r.done:
		return c.now().Sub(r.at) > resolvedFor
	default:
		return false
	}
}

func (c *sourceChecks) tidyLocked() {
	if len(c.resolved) < maxResolved {
		return
	}
	maps.DeleteFunc(c.resolved, func(_ resolvedKey, r *resolution) bool { return c.expired(r) })
	for key := range c.resolved { // all are fresh: remove any
		if len(c.resolved) < maxResolved {
			return
		}
		delete(c.resolved, key)
	}
}

func (c *sourceChecks) fetch(ctx context.Context, key resolvedKey, r *resolution, access gitsource.Access) {
	ctx, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()
	r.commit, r.err = c.fetchOne(ctx, access, key.revision)
	if r.err != nil { // a fixed error must not fail again
		c.mu.Lock()
		if c.resolved[key] == r {
			delete(c.resolved, key)
		}
		c.mu.Unlock()
	}
	close(r.done)
}

func (c *sourceChecks) fetchOne(ctx context.Context, access gitsource.Access, revision string) (string, error) {
	release, err := c.limiter.Acquire(ctx, access.Owner)
	if err != nil {
		return "", err
	}
	defer release()
	refs, err := c.git.Fetch(ctx, access, []string{revision})
	if err != nil {
		return "", err
	}
	return refs[revision].Commit, refs[revision].Err
}

// checkFolder searches for something to deploy in the folder of d at a commit, without reading files.
func (c *sourceChecks) checkFolder(ctx context.Context, access gitsource.Access, commit string, d fleet.Deployment) error {
	if variesByPath(d.Source) {
		return nil
	}
	tree, err := c.git.Tree(ctx, access, commit)
	if err != nil {
		return err
	}
	if _, err := tree.ID(ctx, d.Source.Path); errors.Is(err, fs.ErrNotExist) {
		return fleet.Invalid("source.path", "there is no folder %q at commit %.12s", d.Source.Path, commit)
	}
	kind := d.Source.Kind
	if kind == fleet.SourceDetected {
		if kind, err = render.Detect(ctx, tree, d.Source.Path, d.Source.Globs); err != nil {
			return wrongPath(d, err)
		}
	}
	if kind != fleet.SourcePlain {
		return nil // the build finds out the rest
	}
	return c.findManifests(ctx, tree, commit, d)
}

func (c *sourceChecks) findManifests(ctx context.Context, tree filetree.Tree, commit string, d fleet.Deployment) error {
	files, err := render.Files(ctx, tree, d.Source.Path, d.Source.Globs, c.limits)
	if err != nil {
		return wrongPath(d, err)
	}
	if len(files) == 0 && !d.Policy.AllowEmpty {
		return wrongPath(d, &render.Error{Path: d.Source.Path, Problem: fmt.Sprintf("no file there is a manifest at commit %.12s", commit)})
	}
	return nil
}
