package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/fairlimit"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/pause"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Git is what control needs from a source of commits.
type Git interface {
	// CheckURL returns the form of url that is stored, or why it is refused.
	CheckURL(url string) (string, error)
	Fetch(ctx context.Context, a gitsource.Access, revisions []string) (map[string]gitsource.Ref, error)
	Tree(ctx context.Context, a gitsource.Access, commit string) (filetree.Tree, error)
}

// forgetter is a Git that can let go of what it holds of repositories that nobody uses any more.
type forgetter interface {
	Forget(ctx context.Context, age time.Duration, keep func(owner, url string) bool) (int, error)
}

// tenantAware is a Git that is stricter when tenants share the server.
type tenantAware interface{ SetShared(shared bool) }

// countTenants tells Git whether tenants share the server.
func (s *sources) countTenants(ctx context.Context) error {
	git, ok := s.svc.git.(tenantAware)
	if !ok {
		return nil
	}
	var tenants []fleet.Tenant
	err := s.svc.store.View(ctx, func(tx store.Tx) (err error) {
		tenants, err = tx.Tenants().List(ctx, store.Page{Limit: 2})
		return err
	})
	if err != nil {
		return fmt.Errorf("counting tenants: %w", err)
	}
	git.SetShared(len(tenants) > 1)
	return nil
}

// sources keeps one worker per repository that is in use, on the replica that leads it, and wakes it
// when there is something to look at. A repository that hangs or fails holds up no other, and a
// tenant no other tenant (invariant 12).
type sources struct {
	svc     *Service
	renders renders // over all repositories: they cost CPU, not waiting

	mu      sync.Mutex
	workers map[fleet.RepositoryID]*worker
	start   func(*worker) // nil before run
}

// renders are the places for renders, which tenants share. What a render fetches on its way has its turn
// from Git, where nobody waits for one of these.
type renders struct{ *fairlimit.Limiter }

func (r renders) take(ctx context.Context, tenant fleet.TenantID) (release func(), err error) {
	return r.Acquire(ctx, string(tenant))
}

const (
	// tendEvery is how often it is looked whether repositories are still in use and runs have timed
	// out: neither has an event of its own.
	tendEvery = time.Minute
	// forgetAfter is how long a mirror is kept that nobody uses: who deletes and creates anew should not
	// have to fetch anew.
	forgetAfter = 10 * time.Minute
	// followRetry keeps a store that fails from being asked without pause.
	followRetry = time.Second
)

func newSources(svc *Service) *sources {
	n := svc.cfg.RendersAtOnce
	return &sources{
		svc: svc,
		// A render is bounded in time, so that one tenant may have all but one place.
		renders: renders{fairlimit.New(fairlimit.Config{Usual: n, Share: n - 1, Most: n + 1})},
		workers: map[fleet.RepositoryID]*worker{},
	}
}

// run keeps the workers of all repositories in use going until ctx ends.
func (s *sources) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	s.start = func(w *worker) {
		ctx, cancel := context.WithCancel(ctx)
		w.stop = cancel
		g.Go(func() error {
			defer cancel()
			s.svc.member.Lead(ctx, "repository/"+string(w.id), w.run)
			return nil
		})
	}
	s.mu.Unlock()
	g.Go(func() error {
		s.reseal(ctx)
		s.tend(ctx)
		return nil
	})
	g.Go(func() error {
		for {
			err := s.follow(ctx)
			if ctx.Err() != nil {
				return nil
			}
			s.svc.cfg.Log.Error("following changes broke off, looking at everything anew", obs.KeyError, err)
			if errors.Is(err, changefeed.ErrRewound) {
				s.dropAll()
			}
			pause.For(ctx, followRetry)
		}
	})
	return g.Wait()
}

func (s *sources) reseal(ctx context.Context) {
	if n, err := s.svc.ResealCredentials(ctx); err != nil && ctx.Err() == nil {
		s.svc.cfg.Log.Error("sealing credentials under the newest key", obs.KeyError, err)
	} else if n > 0 {
		s.svc.cfg.Log.Info("sealed credentials under the newest key", "credentials", n)
	}
}

func (s *sources) tend(ctx context.Context) {
	for pause.For(ctx, tendEvery) {
		if err := s.svc.planner.ExpireRuns(ctx); err != nil && ctx.Err() == nil {
			s.svc.cfg.Log.Error("ending sync runs", obs.KeyError, err)
		}
		if err := s.sweep(ctx); err != nil && ctx.Err() == nil {
			s.svc.cfg.Log.Error("looking for repositories that are no longer used", obs.KeyError, err)
		}
	}
}

// follow wakes every worker, then follows the feed for what concerns them.
func (s *sources) follow(ctx context.Context) error {
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
	err = s.svc.FollowChanges(ctx, func(batch []store.Change) {
		if err := s.told(ctx, batch); err != nil {
			cancel(fmt.Errorf("reading what changed: %w", err))
		}
	})
	return cmp.Or(err, context.Cause(ctx))
}

func (s *sources) inUse(ctx context.Context) ([]fleet.Repository, error) {
	var repos []fleet.Repository
	err := s.svc.store.View(ctx, func(tx store.Tx) (err error) {
		repos, err = tx.Repositories().ListAllTenants(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the repositories in use: %w", err)
	}
	return repos, nil
}

// wake wakes the worker of repo, and starts it when it is new.
func (s *sources) wake(repo fleet.Repository, why wakeup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[repo.ID]
	if !ok {
		w = newWorker(s.svc, repo)
		s.workers[repo.ID] = w
		s.start(w)
	}
	w.wake(why)
}

// sweep stops the workers of repositories that no deployment uses any more, and lets go of what was
// fetched for them.
func (s *sources) sweep(ctx context.Context) error {
	// A worker that is woken after this may be needed again: its wakeups are counted.
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

// dropAll stops every worker: what they remember is of a database that went back. Those that are needed are
// started anew.
func (s *sources) dropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, w := range s.workers {
		delete(s.workers, id)
		w.stop()
	}
}

func (s *sources) drop(id fleet.RepositoryID, wakeups int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[id]; w != nil && w.wakeups() == wakeups {
		delete(s.workers, id)
		w.stop()
	}
}

// forget lets go of the mirrors of all but these repositories.
func (s *sources) forget(ctx context.Context, repos []fleet.Repository) error {
	git, ok := s.svc.git.(forgetter)
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
		s.svc.cfg.Log.Info("deleted the mirrors of repositories that are no longer used", "mirrors", n)
	}
	return err
}
