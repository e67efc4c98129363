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

// A push writes only the deployments that it affects, so a deployment alone does not show the commit at which
// it was last evaluated. The repository stores it for each revision in use and all its deployments: one write
// for a push, and none for a poll without changes.

// evaluatedAt remembers the commit at which deployments were evaluated and committed.
func (w *worker) evaluatedAt(outcomes ...outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range outcomes {
		w.evaluated[o.deployment.ID] = o.commit
	}
}

// evaluatedSoFar returns the commits at which the deployments were evaluated.
func (w *worker) evaluatedSoFar() map[fleet.DeploymentID]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.evaluated)
}

// exceptEvaluated records that deployments were not evaluated at the newest commit of their revisions.
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

// recordEvaluated records the commits at which the deployments were evaluated, if they are new. A deployment of
// a running pass, or one that could not be evaluated, is an exception until then.
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

// catchUp removes exceptions of deployments that a pass has evaluated in the meantime.
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

// recordedRef returns the stored state of a revision; another worker may have written it.
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

// ownRevisions returns the revisions of deployments.
func (t work) ownRevisions() []string {
	var out []string
	for _, d := range t.deployments {
		out = append(out, d.Revision)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// EvaluatedCommit returns the newest evaluated commit of the revision of d, or "".
func EvaluatedCommit(ctx context.Context, tx store.Tx, d fleet.Deployment) (string, error) {
	if d.PendingSpecRevision != 0 || (d.Rendered.Commit == "" && d.SourceError == "") {
		return "", nil // the current spec was not
	}
	ref, err := tx.Repositories().Evaluated(ctx, d.TenantID, d.RepositoryID, d.Source.Revision)
	if err != nil || ref.Commit == "" || slices.Contains(ref.Except, d.ID) {
		return d.Rendered.Commit, err
	}
	return ref.Commit, nil
}

// checkedFlush is how often the time of a check is stored without changes. Until then only this replica knows
// it.
const checkedFlush = time.Hour

// markChecked remembers the time of a check, and reports whether to store it.
func (w *worker) markChecked(at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkedAt = at
	return at.Sub(w.repo.CheckedAt) >= checkedFlush
}

// CheckedAt returns when this replica last read the remote of a repository; zero if another replica does.
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
