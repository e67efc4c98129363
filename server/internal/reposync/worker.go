package reposync

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// worker turns the commits of one repository into desired states:
//
//	asleep ──wake: push, edit, sync run, poll fallback──▶ resolve refs ─▶ evaluate ─▶ commit ─▶ start runs
//	   ▲                                                      │ error: retry with backoff            │
//	   └──────────────────────────────────────────────────────┴──────────────────────────────────────┘
//
// Evaluating and what follows is a pass, which may outlast its wakeup, see pass. A worker runs on one replica at a time.
// Its memory only saves work: a worker that starts again, here or on another replica, comes to the same result.
type worker struct {
	svc    *Manager
	id     fleet.RepositoryID
	tenant fleet.TenantID
	stop   context.CancelFunc // set before run
	signal wait.Signal

	workerShared
	workerOwned

	plainRenders *plainRenders
	passes       sync.WaitGroup
	left         chan *pass // that were left behind and are done
}

// workerShared is what passes share with the goroutine of run.
type workerShared struct {
	mu      sync.Mutex
	pending wakeup
	woken   int
	repo    fleet.Repository             // from the last read
	known   map[fleet.DeploymentID]int64 // Spec of each deployment as it was last looked at
	seen    map[unitKey]evaluation
	busy    map[fleet.DeploymentID]*pass
	configs int                           // how often files of agents were read
	owed    map[fleet.DeploymentID]wakeup // wakeups for deployments of other passes, when they are free
	// evaluated is the commit at which each deployment was last evaluated.
	evaluated map[fleet.DeploymentID]string
	checkedAt time.Time // when the remote was last read
}

// workerOwned belongs to the goroutine of run.
type workerOwned struct {
	log      *slog.Logger
	named    bool // the log has the tenant
	failures int
	// configured identifies the files of agents that were last applied, or found invalid.
	configured map[fleet.AgentID]string
	problem    *string                       // as last recorded; nil before the first read
	recorded   map[string]store.EvaluatedRef // by revision, as stored
}

func newWorker(svc *Manager, repo fleet.Repository) *worker {
	return &worker{
		svc: svc, id: repo.ID, tenant: repo.TenantID, signal: wait.NewSignal(), left: make(chan *pass), plainRenders: newPlainRenders(),
		workerShared: workerShared{repo: repo, known: map[fleet.DeploymentID]int64{}},
		workerOwned:  workerOwned{log: svc.cfg.Log.With(obs.KeyRepository, repo.URL)},
	}
}

func (w *worker) wake(why wakeup) {
	w.mu.Lock()
	w.pending = w.pending.merge(why)
	w.woken++
	w.mu.Unlock()
	w.poke()
}

// poke wakes the worker for its pending wakeups.
func (w *worker) poke() {
	w.signal.Set()
}

func (w *worker) wakeups() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.woken
}

// knows reports whether the current deployment was evaluated.
func (w *worker) knows(d fleet.Deployment) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	spec, ok := w.known[d.ID]
	return ok && spec == d.SpecRevision
}

func (w *worker) spec() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.repo.SpecRevision
}

func (w *worker) takePending() wakeup {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.pending
	w.pending = wakeup{}
	return due
}

// run works while this replica leads the repository. Earlier work of other replicas is unknown, so it starts by
// evaluating everything.
func (w *worker) run(ctx context.Context) {
	w.seen, w.failures, w.problem = map[unitKey]evaluation{}, 0, nil
	w.busy, w.owed = map[fleet.DeploymentID]*pass{}, map[fleet.DeploymentID]wakeup{}
	w.configured = map[fleet.AgentID]string{}
	w.evaluated, w.recorded = map[fleet.DeploymentID]string{}, map[string]store.EvaluatedRef{}
	w.wake(wakeup{check: true, rewound: true, allRuns: true})
	// The fallback for lost webhooks, and retries. Pushes do not delay it: the next lost webhook may be of
	// another branch.
	timer := time.NewTimer(w.pause())
	defer timer.Stop()
	defer w.passes.Wait()
	for {
		poll := false
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		case <-timer.C:
			poll = true
		case r := <-w.left:
			// A success says nothing about the current state of the repository.
			if err := errors.Join(w.passFailure(ctx, r), w.catchUp(ctx)); err != nil && ctx.Err() == nil {
				timer.Reset(w.failed(r.due, err))
			}
			continue
		}
		due := w.takePending()
		due.check = due.check || poll
		left, err := w.runOnce(ctx, due)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			timer.Reset(w.failed(due, err))
		case due.check:
			if !left {
				w.failures = 0
			}
			timer.Reset(w.pause())
		}
	}
}

// failed schedules a retry.
func (w *worker) failed(due wakeup, err error) time.Duration {
	w.failures++
	w.log.Warn("reading a repository", obs.KeyError, err, "failures", w.failures)
	w.requeue(due)
	return w.pause()
}

// requeue keeps the wakeup of a failed run for the retry, without waking immediately.
func (w *worker) requeue(due wakeup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due.check = true
	w.pending = w.pending.merge(due)
}

// longestPause is the maximum pause for an unreadable repository, in poll intervals. A push still wakes it.
const longestPause = 4

// pause returns the poll interval with jitter, or a growing one after a failure, which starts shorter and
// becomes longer.
func (w *worker) pause() time.Duration {
	pause := w.svc.cfg.PollInterval
	if w.failures > 0 {
		pause = min(longestPause*pause, time.Second<<min(w.failures-1, 10))
	}
	return time.Duration(float64(pause) * (0.9 + 0.2*rand.Float64()))
}

// work is the work of a worker at one wakeup.
type work struct {
	due         wakeup
	access      gitsource.Access
	deployments []store.DeploymentBrief
	pending     []fleet.PendingSpec // whose source is in the repository
	configs     []fleet.AgentConfig // of agents whose configuration is in the repository
	runs        []fleet.SyncRun     // first in line, pending, and needing Git
}

// idle reports whether the repository is unused.
func (t work) idle() bool {
	return len(t.deployments) == 0 && len(t.pending) == 0 && len(t.configs) == 0
}

// runOnce evaluates the repository once. left means that a part of it continues.
func (w *worker) runOnce(ctx context.Context, due wakeup) (left bool, err error) {
	todo, err := w.read(ctx, due)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil // the repository is deleted; Sweep stops this worker
	}
	if err != nil || todo.idle() {
		return false, err
	}
	revisions := todo.revisions()
	if len(revisions) == 0 {
		return false, nil
	}
	refs, err := w.resolve(ctx, todo, revisions)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		if noted := w.note(ctx, err); noted != nil {
			return false, noted
		}
		return false, errors.Join(err, w.delayRuns(ctx, todo, err), w.delayPending(ctx, todo, err))
	}
	if todo.looksForConfigs() {
		w.mu.Lock()
		w.configs++
		w.mu.Unlock()
	}
	applied, failed := w.configure(ctx, todo, refs)
	if applied {
		if err := w.afterConfigure(ctx, &todo, refs); err != nil {
			return false, errors.Join(failed, err)
		}
	}
	r := newPass(due)
	if due.check || due.concerns("") {
		r.configs = w.configs
	}
	left, err = w.evaluatePass(ctx, r, todo, refs)
	if err == nil {
		err = w.recordEvaluated(ctx, todo, refs)
	}
	failed = errors.Join(failed, err)
	if len(todo.runs) == 0 {
		return left, failed
	}
	runs := newPass(wakeup{runs: due.runs, allRuns: due.allRuns})
	runs.afterUnfinished = left
	runs.skipped = left || err != nil || r.skipped
	more := w.startPass(ctx, runs, false, func() error { return w.startRuns(ctx, runs, todo, refs) })
	if !more {
		failed = errors.Join(failed, w.passFailure(ctx, runs))
	}
	return left || more, failed
}

// evaluatePass starts the pass that evaluates deployments.
func (w *worker) evaluatePass(ctx context.Context, r *pass, todo work, refs map[string]gitsource.Ref) (left bool, err error) {
	deployments, err := w.claimAll(ctx, r, todo, refs)
	if err != nil {
		w.freeAll(r)
		return false, err
	}
	if w.startPass(ctx, r, len(todo.runs) > 0, func() error { return w.evaluateAll(ctx, r, deployments, todo.access, refs) }) {
		return true, nil
	}
	if err := w.passFailure(ctx, r); err != nil {
		return false, err
	}
	return false, w.note(ctx, nil)
}

// read reads the work in one snapshot. Deployments are read completely after Git was read: they may have
// changed until then.
func (w *worker) read(ctx context.Context, due wakeup) (work, error) {
	todo := work{due: due}
	var repo fleet.Repository
	err := w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		if err := w.nameTenant(ctx, tx); err != nil {
			return err
		}
		if repo, err = tx.Repositories().Get(ctx, w.tenant, w.id); err != nil {
			return err
		}
		if due.onlyAdded() {
			todo.deployments, err = w.readAdded(ctx, tx, due)
			return err
		}
		if todo.deployments, err = tx.Deployments().BriefsOfRepository(ctx, w.tenant, w.id); err != nil {
			return err
		}
		if todo.pending, err = tx.PendingSpecs().OfRepository(ctx, w.tenant, w.id); err != nil {
			return err
		}
		if todo.configs, err = tx.AgentConfigs().OfRepository(ctx, w.tenant, w.id); err != nil {
			return err
		}
		todo.runs, err = w.pendingRuns(ctx, tx, todo)
		return err
	})
	if err != nil {
		return work{}, err
	}
	w.remember(repo, todo)
	if todo.idle() {
		return todo, nil
	}
	access, err := w.svc.control.Access(ctx, repo)
	if err != nil { // a credential that cannot be decrypted is like a refused one for users
		return work{}, errors.Join(err, w.note(ctx, err), w.delayPending(ctx, todo, err))
	}
	todo.access = access
	return todo, nil
}

// readAdded reads the new deployments of the wakeup, independent of the size of the repository.
func (w *worker) readAdded(ctx context.Context, tx store.Tx, due wakeup) ([]store.DeploymentBrief, error) {
	added, err := tx.Deployments().OfRepositoryByID(ctx, w.tenant, w.id, slices.Sorted(maps.Keys(due.added)))
	out := make([]store.DeploymentBrief, 0, len(added))
	for _, d := range added {
		// A deployment that was evaluated since then has objects that it may lose by a newer commit.
		if isNew(d) {
			out = append(out, store.DeploymentBrief{ID: d.ID, Revision: d.Source.Revision})
		}
	}
	return out, err
}

func (w *worker) remember(repo fleet.Repository, todo work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repo = repo
	if todo.due.onlyAdded() {
		return
	}
	left := make(map[fleet.DeploymentID]bool, len(todo.deployments)+len(todo.pending))
	for _, d := range todo.deployments {
		left[d.ID] = true
	}
	for _, p := range todo.pending {
		left[p.DeploymentID] = true
	}
	maps.DeleteFunc(w.known, func(id fleet.DeploymentID, _ int64) bool { return !left[id] })
	maps.DeleteFunc(w.evaluated, func(id fleet.DeploymentID, _ string) bool { return !left[id] })
	maps.DeleteFunc(w.seen, func(key unitKey, _ evaluation) bool { return !left[key.deployment] })
}

// markEvaluatedSpec remembers that the current deployment was evaluated: only an edit causes another
// evaluation.
func (w *worker) markEvaluatedSpec(d fleet.Deployment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[d.ID] = d.SpecRevision
}

// nameTenant adds the tenant to the logger.
func (w *worker) nameTenant(ctx context.Context, tx store.Tx) error {
	if w.named {
		return nil
	}
	t, err := tx.Tenants().Get(ctx, w.tenant)
	if err != nil {
		return err
	}
	w.named, w.log = true, w.log.With(obs.KeyTenant, t.Name)
	return nil
}
