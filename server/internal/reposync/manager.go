package reposync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// forgetter is a Git that can delete the mirrors of unused repositories.
type forgetter interface {
	Forget(ctx context.Context, age time.Duration, keep func(owner, url string) bool) (int, error)
}

// tenantAware is a Git that is stricter with several tenants.
type tenantAware interface{ SetShared(shared bool) }

// countTenants informs Git whether there are several tenants.
func (s *Manager) countTenants(ctx context.Context) error {
	git, ok := s.git.(tenantAware)
	if !ok {
		return nil
	}
	var tenants []fleet.Tenant
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		tenants, err = tx.Tenants().List(ctx, store.Page{Limit: 2})
		return err
	})
	if err != nil {
		return fmt.Errorf("counting tenants: %w", err)
	}
	git.SetShared(len(tenants) > 1)
	return nil
}

// Manager runs one worker per repository in use, on the replica that leads it, and wakes it. A repository that
// hangs or fails delays no other, and a tenant no other tenant (invariant 12).
type Manager struct {
	cfg          Config
	store        store.Store
	git          Git
	feed         Feed
	leader       Leader
	planner      *rollout.Planner
	placer       *placement.Placer
	control      Control
	renders      Limiter
	builder      render.Builder // nil when there is none
	capabilities clusters       // of clusters that were looked up

	mu      sync.Mutex
	workers map[fleet.RepositoryID]*worker
	start   func(*worker) // nil before run
}

const (
	// tendEvery is how often the manager checks for unused repositories and for expired runs: neither has an
	// event.
	tendEvery = time.Minute
	// forgetAfter is how long an unused mirror is kept: deleting and creating a deployment should not need
	// another fetch.
	forgetAfter = 10 * time.Minute
	// followRetry is the pause after a failure of the store.
	followRetry = time.Second
)

// Config configures the manager. Zero fields have defaults.
type Config struct {
	// PollInterval is the fallback for lost webhooks; default 30 s.
	PollInterval time.Duration
	// RendersAtOnce limits how many deployments of a repository are evaluated concurrently; default 4.
	RendersAtOnce int
	// RenderLimits default to render.DefaultLimits().
	RenderLimits render.Limits
	// Builder renders Kustomize and Helm; without one they are refused. Equal inputs are built once.
	Builder render.Builder
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
	// Observe is called with the time from a push until its targets are committed; may be nil.
	Observe func(pushToCommitted time.Duration)
}

// Deps are the dependencies. All are required.
type Deps struct {
	Store   store.Store
	Git     Git
	Feed    Feed
	Leader  Leader
	Planner *rollout.Planner
	Placer  *placement.Placer
	Control Control
	Renders Limiter
}

// Git is a source of commits.
type Git interface {
	Fetch(ctx context.Context, a gitsource.Access, revisions []string) (map[string]gitsource.Ref, error)
	Tree(ctx context.Context, a gitsource.Access, commit string) (filetree.Tree, error)
}

// Feed is the change feed of the store.
type Feed interface {
	FollowAll(ctx context.Context, fn func([]store.Change)) error
}

// Leader runs work on one replica at a time.
type Leader interface {
	Lead(ctx context.Context, name string, run func(ctx context.Context))
}

// Limiter shares the concurrent renders of all repositories between tenants: they cost CPU, not waiting.
type Limiter interface {
	Acquire(ctx context.Context, tenant string) (release func(), err error)
}

// Control has the decisions of control that a worker needs.
type Control interface {
	// Access returns how a repository is read, with its current credential.
	Access(ctx context.Context, repo fleet.Repository) (gitsource.Access, error)
	// ApplyConfig applies the declarations of the file of an agent, or records why not.
	ApplyConfig(ctx context.Context, read ConfigFile) (ConfigResult, error)
	// CheckSpec fails with a ConflictError, a QuotaError, or an InvalidError if a pending spec must not take
	// effect now. next is d with that spec.
	CheckSpec(ctx context.Context, tx store.Tx, d fleet.Deployment, next *fleet.Deployment) error
}

// New returns a manager; it does no I/O.
func New(cfg Config, deps Deps) *Manager {
	cfg.PollInterval = cmp.Or(cfg.PollInterval, 30*time.Second)
	cfg.RendersAtOnce = cmp.Or(cfg.RendersAtOnce, 4)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.RenderLimits == (render.Limits{}) {
		cfg.RenderLimits = render.DefaultLimits()
	}
	s := &Manager{
		cfg: cfg, store: deps.Store, git: deps.Git, feed: deps.Feed, leader: deps.Leader, planner: deps.Planner, placer: deps.Placer,
		control: deps.Control, renders: deps.Renders, workers: map[fleet.RepositoryID]*worker{},
	}
	if cfg.Builder != nil {
		s.builder = render.NewCache(cfg.Builder, 0)
	}
	return s
}

// tell appends an event with the current time.
func (s *Manager) tell(ctx context.Context, tx store.Tx, e fleet.Event) error {
	e.At = s.cfg.Now()
	return tx.Events().Append(ctx, e)
}

// Run runs the workers of all repositories in use until ctx ends.
func (s *Manager) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	s.start = func(w *worker) {
		ctx, cancel := context.WithCancel(ctx)
		w.stop = cancel
		g.Go(func() error {
			defer cancel()
			s.leader.Lead(ctx, "repository/"+string(w.id), w.run)
			return nil
		})
	}
	s.mu.Unlock()
	g.Go(func() error {
		s.tend(ctx)
		return nil
	})
	g.Go(func() error {
		for {
			err := s.follow(ctx)
			if ctx.Err() != nil {
				return nil
			}
			s.cfg.Log.Error("following changes failed: evaluating everything again", obs.KeyError, err)
			if errors.Is(err, changefeed.ErrRewound) {
				s.dropAll()
			}
			wait.For(ctx, followRetry)
		}
	})
	return g.Wait()
}

func (s *Manager) tend(ctx context.Context) {
	for wait.For(ctx, tendEvery) {
		if err := s.planner.ExpireRuns(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("ending sync runs", obs.KeyError, err)
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Error("searching for unused repositories", obs.KeyError, err)
		}
	}
}

// follow wakes every worker, then follows the feed for relevant changes.
func (s *Manager) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := s.countTenants(ctx); err != nil {
		return err
	}
	repos, err := s.inUse(ctx)
	if err != nil {
		return err
	}
	for _, repo := range repos {
		s.wake(repo, wakeup{check: true, rewound: true, allRuns: true})
	}
	err = s.feed.FollowAll(ctx, func(batch []store.Change) {
		if err := s.wakeConcerned(ctx, batch); err != nil {
			cancel(fmt.Errorf("reading changes: %w", err))
		}
	})
	return cmp.Or(err, context.Cause(ctx))
}

func (s *Manager) inUse(ctx context.Context) ([]fleet.Repository, error) {
	var repos []fleet.Repository
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		repos, err = tx.Repositories().ListAllTenants(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the repositories in use: %w", err)
	}
	return repos, nil
}

// wake wakes the worker of repo, and starts it if it is new.
func (s *Manager) wake(repo fleet.Repository, why wakeup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[repo.ID]
	if !ok {
		w = newWorker(s, repo)
		s.workers[repo.ID] = w
		s.start(w)
	}
	w.wake(why)
}

// WorkerCount returns the number of workers.
func (s *Manager) WorkerCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// Sweep stops the workers of repositories that no deployment uses any more, and deletes their mirrors.
func (s *Manager) Sweep(ctx context.Context) error {
	// A worker that wakes after this may be needed again: its wakeups are counted.
	before := map[fleet.RepositoryID]int{}
	s.mu.Lock()
	for id, w := range s.workers {
		before[id] = w.wakeups()
	}
	s.mu.Unlock()
	repos, err := s.inUse(ctx)
	if err != nil {
		return err
	}
	for _, repo := range repos {
		delete(before, repo.ID)
	}
	for id, wakeups := range before {
		s.drop(id, wakeups)
	}
	return s.forget(ctx, repos)
}

// dropAll stops every worker: they remember a database that was restored. Needed ones are started again.
func (s *Manager) dropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, w := range s.workers {
		delete(s.workers, id)
		w.stop()
	}
}

func (s *Manager) drop(id fleet.RepositoryID, wakeups int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[id]; w != nil && w.wakeups() == wakeups {
		delete(s.workers, id)
		w.stop()
	}
}

// forget deletes the mirrors of all other repositories.
func (s *Manager) forget(ctx context.Context, repos []fleet.Repository) error {
	git, ok := s.git.(forgetter)
	if !ok {
		return nil
	}
	type mirror struct{ owner, url string }
	used := make(map[mirror]bool, len(repos))
	for _, repo := range repos {
		used[mirror{string(repo.TenantID), repo.URL}] = true
	}
	n, err := git.Forget(ctx, forgetAfter, func(owner, url string) bool { return used[mirror{owner, url}] })
	if n > 0 {
		s.cfg.Log.Info("deleted the mirrors of unused repositories", "mirrors", n)
	}
	return err
}
