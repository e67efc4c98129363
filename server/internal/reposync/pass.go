package reposync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// pass evaluates some deployments of a repository. A slow one is left running when the worker is needed
// elsewhere: an endless render delays only its own deployment. A deployment belongs to one pass at a time; a
// later pass skips it, and the worker wakes for it again when it is free.
type pass struct {
	due wakeup
	// passed means that some deployment could not be evaluated together with the others: objects that others
	// lose may have moved there.
	skipped         bool
	afterUnfinished bool // the previous pass is still running
	// configs is how often files of agents had been read at the start, if the pass evaluates everything that a
	// commit on the default branch affects; otherwise -1.
	configs int
	done    chan struct{}
	failure error // once done
}

func newPass(due wakeup) *pass { return &pass{due: due, done: make(chan struct{}), configs: -1} }

// startPass starts a pass, and waits for it until the worker is needed elsewhere: it is woken, a poll is due,
// or it has more work, see hurry. left means that the pass continues.
func (w *worker) startPass(ctx context.Context, r *pass, hurry bool, work func() error) (left bool) {
	w.passes.Go(func() {
		defer close(r.done)
		defer w.freeAll(r)
		r.failure = work()
	})
	if !w.lasts(r, hurry) {
		return false
	}
	w.passes.Go(func() {
		<-r.done
		select {
		case w.left <- r:
		case <-ctx.Done():
		}
	})
	return true
}

// lasts reports whether the worker is needed elsewhere before a pass is done.
func (w *worker) lasts(r *pass, hurry bool) bool {
	patience := time.NewTimer(groupTimeout)
	defer patience.Stop()
	select {
	case <-r.done:
		return false
	case <-patience.C:
	}
	if hurry {
		return true
	}
	poll := time.NewTimer(w.svc.cfg.PollInterval)
	defer poll.Stop()
	select {
	case <-r.done:
		return false
	case <-w.signal:
		w.poke() // the reason is still pending
	case <-poll.C:
		w.wake(wakeup{check: true})
	}
	return true
}

// passFailure returns why a pass has failed, and records it for the repository if that cannot be read,
// including its submodules.
func (w *worker) passFailure(ctx context.Context, r *pass) error {
	var remote *gitsource.RemoteError
	if errors.As(r.failure, &remote) {
		return errors.Join(r.failure, w.note(ctx, remote))
	}
	return r.failure
}

// claimAll claims the requested deployments that no other pass has, and reads them: another pass may have
// changed them until now.
func (w *worker) claimAll(ctx context.Context, r *pass, todo work, refs map[string]gitsource.Ref) ([]fleet.Deployment, error) {
	why := todo.due
	why.check = true
	asked := map[fleet.DeploymentID]bool{}
	for _, d := range todo.deployments {
		_, resolved := refs[d.Revision]
		wanted := resolved && (todo.due.check || todo.due.concerns(d.Revision) || todo.due.added[d.ID] || todo.syncs(d))
		switch {
		case w.elsewhere(r, d.ID, why):
			r.skipped = true
		case wanted:
			w.claim(r, d.ID, why)
			asked[d.ID] = true
		}
	}
	pending := w.claimPending(r, todo, refs, asked)
	if len(asked) == 0 {
		return nil, nil
	}
	var all []fleet.Deployment
	err := w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		if todo.due.onlyAdded() {
			all, err = tx.Deployments().OfRepositoryByID(ctx, w.tenant, w.id, slices.Collect(maps.Keys(asked)))
			all = slices.DeleteFunc(all, func(d fleet.Deployment) bool { return !isNew(d) })
			return err
		}
		if all, err = tx.Deployments().OfRepository(ctx, w.tenant, w.id); err != nil {
			return err
		}
		guests, err := w.elsewhereInForce(ctx, tx, pending)
		all = append(all, guests...)
		return err
	})
	return slices.DeleteFunc(all, func(d fleet.Deployment) bool {
		_, resolved := refs[d.Source.Revision]
		return !asked[d.ID] || !resolved && !pending[d.ID] // edited concurrently, which wakes the worker
	}), err
}

// claim claims a deployment for a pass, unless another has it: then the worker wakes when it is free.
func (w *worker) claim(r *pass, id fleet.DeploymentID, why wakeup) bool {
	if w.elsewhere(r, id, why) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[id] = r
	return true
}

// elsewhere reports whether another pass has a deployment. Then the worker wakes for that reason when it is
// free.
func (w *worker) elsewhere(r *pass, id fleet.DeploymentID, why wakeup) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	with := w.busy[id]
	if with == nil || with == r {
		return false
	}
	w.owed[id] = w.owed[id].merge(why)
	return true
}

// postpone calls f when all deployments of other passes are free.
func (w *worker) postpone(r *pass, why wakeup) {
	w.mu.Lock()
	waits := false
	for id, with := range w.busy {
		if with != r {
			w.owed[id], waits = w.owed[id].merge(why), true
		}
	}
	w.mu.Unlock()
	if !waits {
		w.wake(why)
	}
}

// free releases deployments of a pass.
func (w *worker) free(r *pass, ids ...fleet.DeploymentID) {
	w.mu.Lock()
	var due wakeup
	woken := false
	for _, id := range ids {
		if w.busy[id] != r {
			continue
		}
		delete(w.busy, id)
		if why, ok := w.owed[id]; ok {
			due, woken = due.merge(why), true
			delete(w.owed, id)
		}
	}
	w.mu.Unlock()
	if woken {
		w.wake(due)
	}
}

// freeAll releases all remaining deployments of a pass.
func (w *worker) freeAll(r *pass) {
	w.mu.Lock()
	var ids []fleet.DeploymentID
	for id, with := range w.busy {
		if with == r {
			ids = append(ids, id)
		}
	}
	w.mu.Unlock()
	w.free(r, ids...)
}
