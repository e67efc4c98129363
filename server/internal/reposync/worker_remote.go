package reposync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// resolve fetches the newest commits of the revisions in use, with one fetch for all: after a push only of
// those that it may have moved. A fetch without changes costs no more than a check, and the remote lists only
// the requested refs.
func (w *worker) resolve(ctx context.Context, todo work, revisions []string) (map[string]gitsource.Ref, error) {
	refs, err := w.svc.git.Fetch(ctx, todo.access, revisions)
	used := len(todo.pending) > 0 || slices.ContainsFunc(todo.deployments, func(d store.DeploymentBrief) bool { return d.Rendered }) || slices.ContainsFunc(todo.configs, wasConfigured)
	if errors.Is(err, gitsource.ErrEmpty) && len(todo.runs) == 0 && !used {
		return nil, nil // an empty repository: wait
	}
	return refs, err
}

// revisions returns the revisions to resolve, without duplicates.
func (t work) revisions() []string {
	var out []string
	distinct := map[string]bool{}
	add := func(revision string) {
		if !distinct[revision] {
			distinct[revision] = true
			out = append(out, revision)
		}
	}
	own := map[fleet.DeploymentID]string{}
	for _, d := range t.deployments {
		own[d.ID] = d.Revision
		if t.due.check || t.due.concerns(d.Revision) || t.due.added[d.ID] {
			add(d.Revision)
		}
	}
	for _, p := range t.pending {
		if t.asksFor(p) {
			add(p.Source.Revision)
		}
	}
	if t.looksForConfigs() {
		add("") // files of agents are on the default branch
	}
	for _, run := range t.runs {
		add(cmp.Or(run.Revision, own[run.DeploymentID]))
	}
	return out
}

// asksFor reports whether a pending spec must be evaluated.
func (t work) asksFor(p fleet.PendingSpec) bool {
	return t.due.check || t.due.concerns(p.Source.Revision)
}

// syncs reports whether a run waits to sync a deployment to the newest commit of its own revision: then it must
// be evaluated as after a push.
func (t work) syncs(d store.DeploymentBrief) bool {
	return slices.ContainsFunc(t.runs, func(run fleet.SyncRun) bool {
		return run.DeploymentID == d.ID && (run.Revision == "" || run.Revision == d.Revision)
	})
}

// note records on the repository whether it could be read, if that changed.
func (w *worker) note(ctx context.Context, problem error) error {
	message, reason := "", fleet.Reason("")
	if problem != nil {
		message = problem.Error()
	}
	var remote *gitsource.RemoteError
	if errors.As(problem, &remote) {
		reason = remote.Reason
	}
	flush := w.markChecked(w.svc.cfg.Now())
	if w.problem != nil && *w.problem == message && !flush {
		return nil
	}
	w.mu.Lock()
	repo := w.repo
	w.mu.Unlock()
	if repo.Error == message && !flush {
		w.problem = &message // as recorded by an earlier worker
		return nil
	}
	err := w.svc.store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Repositories().SetChecked(ctx, w.tenant, w.id, w.svc.cfg.Now(), message, reason); err != nil {
			return err
		}
		if message == repo.Error {
			return nil // the first check, or one whose time is stored
		}
		event := fleet.Event{TenantID: w.tenant, Type: fleet.EventNormal, Reason: fleet.ReasonRepositoryReadable, Message: repo.URL + " can be read again"}
		if message != "" {
			event.Type, event.Reason, event.Message = fleet.EventWarning, fleet.ReasonRepositoryUnreadable, fmt.Sprintf("%s: %s", repo.URL, message)
		}
		return w.svc.tell(ctx, tx, event)
	})
	if err == nil {
		w.problem = &message
	}
	return err
}
