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

// What a commit does not touch is not written when it is pushed, so that a deployment alone does not say up to which
// commit it was evaluated. The repository does, for each revision in use and all its deployments at once: one write
// for a push that moved it, and none for a poll that found nothing new.

// evaluatedAt remembers at which commit deployments were evaluated, with all that follows from it committed.
func (w *worker) evaluatedAt(outcomes ...outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range outcomes {
		w.evaluated[o.deployment.ID] = o.commit
	}
}

// evaluatedSoFar returns at which commits the deployments were evaluated until now.
func (w *worker) evaluatedSoFar() map[fleet.DeploymentID]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.evaluated)
}

// exceptEvaluated writes that deployments were not evaluated at the newest commit of their revisions, whichever that is.
func (w *worker) exceptEvaluated(ctx context.Context, deployments []fleet.Deployment) error {
	except := map[string][]fleet.DeploymentID{}
	for _, d := range deployments {
		except[d.Source.Revision] = append(except[d.Source.Revision], d.ID)
	}
	return w.svc.store.Update(ctx, func(tx store.Tx) error {
		for _, revision := range slices.Sorted(maps.Keys(except)) {
			if err := tx.Repositories().ExceptEvaluated(ctx, w.tenant, w.id, revision, except[revision]); err != nil {
				return err
			}
		}
		return nil
	})
}

// recordEvaluated writes up to which commits the deployments were evaluated, where that is news. A deployment that is
// still with a pass, or could not be evaluated, is an exception until it was.
func (w *worker) recordEvaluated(ctx context.Context, todo work, refs map[string]gitsource.Ref) error {
	var news []store.EvaluatedRef
	for revision, ref := range refs {
		if ref.Err != nil || !todo.due.check && !todo.due.concerns(revision) {
			continue
		}
		now := store.EvaluatedRef{Revision: revision, Commit: ref.Commit, Except: w.notEvaluated(todo, revision, ref.Commit)}
		if was, err := w.recordedRef(ctx, revision); err != nil {
			return err
		} else if was.Commit != now.Commit || !slices.Equal(was.Except, now.Except) {
			news = append(news, now)
		}
	}
	return w.writeEvaluated(ctx, news, todo.ownRevisions())
}

// catchUp takes exceptions back, of deployments that a pass which was left behind has evaluated by now.
func (w *worker) catchUp(ctx context.Context) error {
	var news []store.EvaluatedRef
	inUse := make([]string, 0, len(w.recorded))
	for revision, r := range w.recorded {
		inUse = append(inUse, revision)
		w.mu.Lock()
		left := slices.DeleteFunc(slices.Clone(r.Except), func(id fleet.DeploymentID) bool { return w.evaluated[id] == r.Commit })
		w.mu.Unlock()
		if len(left) != len(r.Except) {
			news = append(news, store.EvaluatedRef{Revision: revision, Commit: r.Commit, Except: left})
		}
	}
	return w.writeEvaluated(ctx, news, inUse)
}

func (w *worker) writeEvaluated(ctx context.Context, news []store.EvaluatedRef, inUse []string) error {
	if len(news) == 0 {
		return nil
	}
	err := w.svc.store.Update(ctx, func(tx store.Tx) error {
		return tx.Repositories().SetEvaluated(ctx, w.tenant, w.id, news, inUse)
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil // the repository is gone
	}
	if err == nil {
		for _, r := range news {
			w.recorded[r.Revision] = r
		}
	}
	return err
}

// recordedRef is what is stored of a revision; whoever looked before may have written it.
func (w *worker) recordedRef(ctx context.Context, revision string) (store.EvaluatedRef, error) {
	if r, ok := w.recorded[revision]; ok {
		return r, nil
	}
	var r store.EvaluatedRef
	err := w.svc.store.View(ctx, func(tx store.Tx) (err error) {
		r, err = tx.Repositories().Evaluated(ctx, w.tenant, w.id, revision)
		return err
	})
	if err == nil {
		w.recorded[revision] = r
	}
	return r, err
}

func (w *worker) notEvaluated(todo work, revision, commit string) []fleet.DeploymentID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []fleet.DeploymentID
	for _, d := range todo.deployments {
		if d.Revision == revision && w.evaluated[d.ID] != commit {
			out = append(out, d.ID)
		}
	}
	slices.Sort(out)
	return out
}

// ownRevisions are those that deployments follow.
func (t work) ownRevisions() []string {
	var out []string
	for _, d := range t.deployments {
		out = append(out, d.Revision)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// EvaluatedCommit is up to which commit of its revision d was evaluated; "" when it never was.
func EvaluatedCommit(ctx context.Context, tx store.Tx, d fleet.Deployment) (string, error) {
	if d.PendingSpec != 0 || (d.Rendered.Commit == "" && d.SourceError == "") {
		return "", nil // as it is now, it was not
	}
	ref, err := tx.Repositories().Evaluated(ctx, d.TenantID, d.RepositoryID, d.Source.Revision)
	if err != nil || ref.Commit == "" || slices.Contains(ref.Except, d.ID) {
		return d.Rendered.Commit, err
	}
	return ref.Commit, nil
}

// checkedFlush is how often the time of a look at a repository is stored though nothing is new. Until then
// the replica that looks knows it alone.
const checkedFlush = time.Hour

// markChecked remembers when the remote was asked, and reports whether that is to be stored.
func (w *worker) markChecked(at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkedAt = at
	return at.Sub(w.repo.CheckedAt) >= checkedFlush
}

// CheckedAt is when this replica last asked the remote of a repository; zero when it does not look at it.
func (s *Manager) CheckedAt(id fleet.RepositoryID) time.Time {
	s.mu.Lock()
	w := s.workers[id]
	s.mu.Unlock()
	if w == nil {
		return time.Time{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checkedAt
}
