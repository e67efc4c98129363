package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// worker turns the commits of one repository into desired states:
//
//	asleep ──wake: push, new deployment, poll backstop──▶ resolve refs ─▶ evaluate deployments ─▶ commit
//	   ▲                                                      │ error: retry by backoff              │
//	   └──────────────────────────────────────────────────────┴──────────────────────────────────────┘
//
// What it remembers only saves work: a worker that starts anew comes to the same result.
type worker struct {
	svc  *Service
	repo fleet.Repository
	log  *slog.Logger

	mu      sync.Mutex
	pending wakeup
	known   map[fleet.DeploymentID]bool
	signal  chan struct{}

	// Owned by the goroutine of run.
	tenant   string // its name, for the log; "" before the first look
	seen     map[fleet.DeploymentID]verdict
	failures int
	problem  *string // as it was last recorded; nil before the first look
}

func newWorker(svc *Service, repo fleet.Repository) *worker {
	return &worker{
		svc: svc, repo: repo, log: svc.cfg.Log.With(obs.KeyRepository, repo.URL),
		known: map[fleet.DeploymentID]bool{}, signal: make(chan struct{}, 1),
		seen: map[fleet.DeploymentID]verdict{},
	}
}

func (w *worker) wake(why wakeup) {
	w.mu.Lock()
	w.pending = w.pending.merge(why)
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default: // one is waiting already, and takes this reason along
	}
}

func (w *worker) knows(id fleet.DeploymentID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[id]
}

func (w *worker) take() wakeup {
	w.mu.Lock()
	defer w.mu.Unlock()
	due := w.pending
	w.pending = wakeup{}
	return due
}

func (w *worker) run(ctx context.Context) {
	// The backstop for lost webhooks, and retries. Pushes do not put it off: the next lost webhook may
	// be of another branch.
	// Whoever starts a worker wakes it.
	timer := time.NewTimer(w.pause())
	defer timer.Stop()
	for {
		poll := false
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		case <-timer.C:
			poll = true
		}
		due := w.take()
		due.check = due.check || poll
		err := w.runOnce(ctx, due)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.failures++
			w.log.Warn("reading a repository", obs.KeyError, err, "failures", w.failures)
			w.requeue(due)
			timer.Reset(w.pause())
		case due.check:
			w.failures = 0
			timer.Reset(w.pause())
		}
	}
}

// requeue keeps why a failed run was made, for the retry, without waking it at once.
func (w *worker) requeue(due wakeup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due.check = true
	w.pending = w.pending.merge(due)
}

// pause is the poll interval with jitter, or a growing, shorter one after a failure.
func (w *worker) pause() time.Duration {
	pause := w.svc.cfg.PollInterval
	if w.failures > 0 {
		pause = min(pause, time.Second<<min(w.failures-1, 10))
	}
	return time.Duration(float64(pause) * (0.9 + 0.2*rand.Float64()))
}

// runOnce looks at the repository once.
func (w *worker) runOnce(ctx context.Context, due wakeup) error {
	deployments, err := w.deployments(ctx)
	if err != nil || len(deployments) == 0 {
		return err
	}
	refs, err := w.resolve(ctx, deployments, due)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if noted := w.note(ctx, err); noted != nil {
		return noted
	}
	if err != nil {
		return err
	}
	return w.evaluateAll(ctx, deployments, refs, due)
}

func (w *worker) deployments(ctx context.Context) ([]fleet.Deployment, error) {
	var out []fleet.Deployment
	err := w.svc.store.View(ctx, func(tx store.Tx) error {
		if err := w.nameTenant(ctx, tx); err != nil {
			return err
		}
		deployments, err := tx.Deployments().OfRepository(ctx, w.repo.TenantID, w.repo.ID)
		for _, d := range deployments {
			if d.DeletedAt.IsZero() {
				out = append(out, d)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.known)
	for _, d := range out {
		w.known[d.ID] = true
	}
	maps.DeleteFunc(w.seen, func(id fleet.DeploymentID, _ verdict) bool { return !w.known[id] })
	return out, nil
}

// nameTenant makes the log name the tenant as every other line does.
func (w *worker) nameTenant(ctx context.Context, tx store.Tx) error {
	if w.tenant != "" {
		return nil
	}
	t, err := tenantByID(ctx, tx, w.repo.TenantID)
	if err != nil {
		return err
	}
	w.tenant, w.log = t.Name, w.log.With(obs.KeyTenant, t.Name)
	return nil
}

// resolve makes the newest commits of the revisions in use available, with one fetch for all: after
// a push only of those that it may have moved. A fetch that finds nothing new costs no more than
// asking first, and the remote lists only the refs in question.
func (w *worker) resolve(ctx context.Context, deployments []fleet.Deployment, due wakeup) (map[string]gitsource.Ref, error) {
	var revisions []string
	distinct := map[string]bool{}
	for _, d := range deployments {
		if rev := d.Source.Revision; !distinct[rev] {
			distinct[rev] = true
			if due.check || due.concerns(rev) {
				revisions = append(revisions, rev)
			}
		}
	}
	if len(revisions) == 0 {
		return nil, nil
	}
	release, err := take(ctx, w.svc.sources.fetches)
	if err != nil {
		return nil, err
	}
	defer release()
	refs, err := w.svc.git.Fetch(ctx, w.repo.URL, revisions)
	if errors.Is(err, gitsource.ErrEmpty) && !slices.ContainsFunc(deployments, wasRendered) {
		return nil, nil // nothing there yet: wait quietly
	}
	return refs, err
}

func wasRendered(d fleet.Deployment) bool { return d.Rendered.Commit != "" }

// note records on the repository whether it could be read, when that changed.
func (w *worker) note(ctx context.Context, problem error) error {
	message := ""
	if problem != nil {
		message = problem.Error()
	}
	if w.problem != nil && *w.problem == message {
		return nil
	}
	err := w.svc.store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Repositories().SetChecked(ctx, w.repo.TenantID, w.repo.ID, w.svc.cfg.Now(), message); err != nil {
			return err
		}
		if message == "" && (w.problem == nil || *w.problem == "") {
			return nil
		}
		event := fleet.Event{TenantID: w.repo.TenantID, Type: fleet.EventNormal, Reason: "RepositoryReadable", Message: w.repo.URL + " can be read again"}
		if message != "" {
			event.Type, event.Reason, event.Message = fleet.EventWarning, "RepositoryUnreadable", fmt.Sprintf("%s: %s", w.repo.URL, message)
		}
		return w.svc.tell(ctx, tx, event)
	})
	if err == nil {
		w.problem = &message
	}
	return err
}
