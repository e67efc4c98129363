package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// sources keeps one worker per repository that is in use and wakes it when there is something to
// look at. A repository that hangs or fails holds up no other (invariant 12).
type sources struct {
	svc     *Service
	render  chan struct{} // bounds renders at once over all repositories: they cost CPU, not waiting
	fetches chan struct{} // bounds git processes at once; wide, so that hosts that hang hold up no others

	mu      sync.Mutex
	workers map[fleet.RepositoryID]*worker
	start   func(*worker) // nil before run
}

func newSources(svc *Service) *sources {
	const rendersAtOnce, fetchesAtOnce = 4, 64
	return &sources{
		svc: svc, render: make(chan struct{}, rendersAtOnce), fetches: make(chan struct{}, fetchesAtOnce),
		workers: map[fleet.RepositoryID]*worker{},
	}
}

// run keeps the workers of all repositories in use going until ctx ends.
func (s *sources) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	s.start = func(w *worker) { g.Go(func() error { w.run(ctx); return nil }) }
	s.mu.Unlock()
	g.Go(func() error {
		for {
			err := s.follow(ctx)
			if ctx.Err() != nil {
				return nil
			}
			s.svc.cfg.Log.Error("following changes broke off, looking at everything anew", obs.KeyError, err)
			select {
			case <-ctx.Done():
			case <-time.After(followRetry):
			}
		}
	})
	return g.Wait()
}

// followRetry keeps a store that fails from being asked without pause.
const followRetry = time.Second

// follow wakes every worker, then follows the feed for deployments that are new.
func (s *sources) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var repos []fleet.Repository
	err := s.svc.store.View(ctx, func(tx store.Tx) (err error) {
		repos, err = tx.Repositories().ListAllTenants(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("listing the repositories in use: %w", err)
	}
	for _, repo := range repos {
		s.worker(repo).wake(wakeup{check: true, rewound: true})
	}
	err = s.svc.FollowChanges(ctx, func(batch []store.Change) {
		for _, c := range batch {
			if c.Kind != store.ChangeDeployment {
				continue
			}
			if err := s.deploymentChanged(ctx, c); err != nil {
				cancel(fmt.Errorf("reading changed deployment %s: %w", c.DeploymentID, err))
			}
		}
	})
	return cmp.Or(err, context.Cause(ctx))
}

// worker returns the worker of repo and starts it when it is new.
func (s *sources) worker(repo fleet.Repository) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[repo.ID]
	if !ok {
		w = newWorker(s.svc, repo)
		s.workers[repo.ID] = w
		s.start(w)
	}
	return w
}

// deploymentChanged wakes the worker of a deployment that it has not looked at yet.
func (s *sources) deploymentChanged(ctx context.Context, c store.Change) error {
	var repo fleet.Repository
	err := s.svc.store.View(ctx, func(tx store.Tx) error {
		d, err := tx.Deployments().Get(ctx, c.TenantID, c.DeploymentID)
		if err != nil {
			return err
		}
		repo, err = tx.Repositories().Get(ctx, c.TenantID, d.RepositoryID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	if w := s.worker(repo); !w.knows(c.DeploymentID) {
		w.wake(wakeup{check: true})
	}
	return nil
}

// push wakes the worker of a repository because a ref may have moved.
func (s *sources) push(id fleet.RepositoryID, ref string, at time.Time) {
	s.wake(id, wakeup{pushed: true, refs: map[string]bool{ref: true}, at: at})
}

func (s *sources) wake(id fleet.RepositoryID, why wakeup) {
	s.mu.Lock()
	w := s.workers[id]
	s.mu.Unlock()
	if w != nil { // else no deployment uses it
		w.wake(why)
	}
}

// take waits for a place and returns how to give it back.
func take(ctx context.Context, places chan struct{}) (release func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wakeup says why a worker is woken. Several merge into one.
type wakeup struct {
	check   bool            // look at the remote and at every deployment
	rewound bool            // look for targets that are ahead of us
	pushed  bool            // refs may have moved: fetch without asking first
	refs    map[string]bool // which; "" is any
	at      time.Time       // of the oldest push
}

func (w wakeup) merge(o wakeup) wakeup {
	w.check, w.rewound, w.pushed = w.check || o.check, w.rewound || o.rewound, w.pushed || o.pushed
	if len(o.refs) > 0 {
		refs := maps.Clone(w.refs)
		if refs == nil {
			refs = map[string]bool{}
		}
		maps.Copy(refs, o.refs)
		w.refs = refs
	}
	if w.at.IsZero() || (!o.at.IsZero() && o.at.Before(w.at)) {
		w.at = o.at
	}
	return w
}

// concerns reports whether a push of these refs may have moved revision.
func (w wakeup) concerns(revision string) bool {
	return revision == "" || w.refs[""] || w.refs[revision] || w.refs["refs/heads/"+revision] || w.refs["refs/tags/"+revision]
}
