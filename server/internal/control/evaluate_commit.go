package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// recorded is the source error of d as far as the source has to do with it.
func recorded(d fleet.Deployment) string {
	if strings.HasPrefix(d.SourceError, refusedPrefix) {
		return ""
	}
	return d.SourceError
}

// summary is what is wrong with the source, for the deployment as a whole.
func (o outcome) summary() string {
	if o.problem != "" {
		return o.problem
	}
	for _, p := range o.parts {
		if p.verdict.problem == "" {
			continue
		}
		if p.agent == "" {
			return p.verdict.problem
		}
		return fmt.Sprintf("for agent %q: %s", p.agent, p.verdict.problem)
	}
	return ""
}

// needed reports whether anything would be written.
func (o outcome) needed() bool {
	return !o.deployment.EditedAt.IsZero() || o.summary() != recorded(o.deployment) || slices.ContainsFunc(o.parts, func(p part) bool {
		return p.packed != nil || (p.agent != "" && p.verdict.problem != p.unit.problem)
	})
}

// usable reports whether there is anything that targets can be given.
func (o outcome) usable() bool {
	return o.problem == "" && (len(o.parts) == 0 || slices.ContainsFunc(o.parts, func(p part) bool { return p.verdict.problem == "" }))
}

func (o outcome) bytes() int {
	n := 0
	for _, p := range o.parts {
		if p.packed != nil {
			n += len(p.packed.content)
		}
	}
	return n
}

// commit writes what one commit means for several deployments in one transaction, so that their
// targets change together.
func (w *worker) commit(ctx context.Context, changed []outcome, due wakeup) error {
	if len(changed) == 0 {
		return nil
	}
	err := w.svc.store.Update(ctx, func(tx store.Tx) error {
		st := w.svc.newSettler(tx)
		st.resolved = true
		for _, o := range changed {
			if err := w.commitOne(ctx, tx, st, o); err != nil {
				return fmt.Errorf("recording a revision of deployment %q: %w", o.deployment.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if due.pushed && w.svc.cfg.Observe != nil {
		w.svc.cfg.Observe(w.svc.cfg.Now().Sub(due.at))
	}
	for _, o := range changed {
		w.keepVerdicts(o)
	}
	return nil
}

func (w *worker) commitOne(ctx context.Context, tx store.Tx, st *settler, o outcome) error {
	d, ok, err := w.current(ctx, tx, o.deployment)
	if err != nil || !ok || w.overtaken(d, o.deployment) {
		return err
	}
	whole, err := w.commitParts(ctx, tx, st, &d, o)
	if err != nil {
		return err
	}
	if err := w.commitProblem(ctx, tx, &d, o); err != nil {
		return err
	}
	if err := st.takeEdit(ctx, &d, whole); err != nil {
		return err
	}
	if !whole {
		return nil // what runs is not touched; not even what is ahead of the server
	}
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	return st.settle(ctx, d, targets)
}

// current reads a deployment anew, and reports whether what was found out still applies: it was
// neither deleted nor edited meanwhile. An edit wakes the worker again.
func (w *worker) current(ctx context.Context, tx store.Tx, was fleet.Deployment) (fleet.Deployment, bool, error) {
	d, err := tx.Deployments().Get(ctx, was.TenantID, was.ID)
	if errors.Is(err, store.ErrNotFound) {
		return fleet.Deployment{}, false, nil
	}
	same := err == nil && d.DeletedAt.IsZero() && d.RepositoryID == w.id && sameSource(d.Source, was.Source) &&
		d.Namespace == was.Namespace && d.Policy.AllowEmpty == was.Policy.AllowEmpty
	return d, same, err
}

// overtaken reports whether another replica has recorded a revision since a deployment was read: it may
// have read the repository further than this one, which then looks again.
func (w *worker) overtaken(d, was fleet.Deployment) bool {
	now, then := d.Rendered, was.Rendered
	if now.Commit == then.Commit && now.Key == then.Key && now.Digest == then.Digest {
		return false
	}
	w.wake(wakeup{check: true})
	return true
}

// commitParts records what was rendered. It reports whether there is anything that targets can be
// given.
func (w *worker) commitParts(ctx context.Context, tx store.Tx, st *settler, d *fleet.Deployment, o outcome) (whole bool, err error) {
	var rendered, objects int
	bundles := map[string]string{}
	broken := map[string]bool{}
	for _, p := range o.parts {
		if err := w.putBundle(ctx, tx, d.TenantID, p.packed); err != nil {
			return false, err
		}
		digest := p.digest
		if p.verdict.problem != "" {
			broken[p.variant], digest = true, p.was.Digest
		}
		if digest != "" {
			bundles[p.variant] = digest
		}
		if p.packed != nil {
			rendered, objects = rendered+1, objects+p.packed.objects
		}
		if err := w.commitVariant(ctx, tx, *d, o, p); err != nil {
			return false, err
		}
	}
	st.broken[d.ID] = broken
	if err := w.dropVariants(ctx, tx, *d, o); err != nil {
		return false, err
	}
	if rendered > 0 {
		if err := w.commitRendered(ctx, tx, d, o, bundles, objects); err != nil {
			return false, err
		}
	}
	return o.usable(), nil
}

func (w *worker) putBundle(ctx context.Context, tx store.Tx, tenant fleet.TenantID, p *packed) error {
	if p == nil {
		return nil
	}
	return tx.Bundles().Put(ctx, fleet.Bundle{
		TenantID: tenant, Digest: p.digest, Content: p.content, Size: p.size, Objects: p.objects, CreatedAt: w.svc.cfg.Now(),
	})
}

// commitVariant records a variant when anything of it is new.
func (w *worker) commitVariant(ctx context.Context, tx store.Tx, d fleet.Deployment, o outcome, p part) error {
	if p.agent == "" || (p.packed == nil && p.verdict.problem == p.unit.problem) {
		return nil
	}
	v := fleet.Variant{Name: p.variant, Rendered: p.was, Error: p.verdict.problem}
	if p.packed != nil {
		v.Rendered = fleet.Rendered{Commit: o.commit, Key: p.key, Digest: p.digest, At: w.svc.cfg.Now()}
	}
	return tx.Deployments().PutVariant(ctx, d.TenantID, d.ID, v)
}

// dropVariants forgets the variants that no agent has any more. A deployment that has a digest of
// its own has none.
func (w *worker) dropVariants(ctx context.Context, tx store.Tx, d fleet.Deployment, o outcome) error {
	if o.problem != "" || (!d.Source.Templated() && d.Rendered.Digest != "") {
		return nil
	}
	var names []string
	for _, p := range o.parts {
		if p.agent != "" {
			names = append(names, p.variant)
		}
	}
	return tx.Deployments().KeepVariants(ctx, d.TenantID, d.ID, names)
}

func (w *worker) commitRendered(ctx context.Context, tx store.Tx, d *fleet.Deployment, o outcome, bundles map[string]string, objects int) error {
	was := d.Rendered
	d.Rendered = fleet.Rendered{Commit: o.commit, At: w.svc.cfg.Now()}
	if !d.Source.Templated() {
		d.Rendered.Key, d.Rendered.Digest = o.parts[0].key, o.parts[0].digest
	}
	if err := tx.Deployments().SetRendered(ctx, d.TenantID, d.ID, d.Rendered); err != nil {
		return err
	}
	d.SourceError = ""
	if _, err := w.svc.keep(ctx, tx, *d, o.commit, bundles); err != nil {
		return err
	}
	if d.Rendered.Digest != "" && d.Rendered.Digest == was.Digest {
		return nil
	}
	w.log.Info("a revision was rendered", obs.KeyDeployment, d.Name, obs.KeyCommit, o.commit, "objects", objects, "variants", len(o.parts))
	return w.svc.tell(ctx, tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventNormal, Reason: "RevisionRendered", Deployment: d.Name,
		Message: fmt.Sprintf("commit %.12s: %s", o.commit, counted(objects, "object")),
	})
}

// commitProblem records what is wrong with the source, or that nothing is any more.
func (w *worker) commitProblem(ctx context.Context, tx store.Tx, d *fleet.Deployment, o outcome) error {
	problem := o.summary()
	if recorded(*d) == problem {
		return nil
	}
	if err := tx.Deployments().SetSourceError(ctx, d.TenantID, d.ID, problem, w.svc.cfg.Now()); err != nil {
		return err
	}
	d.SourceError = problem
	if problem == "" {
		return nil
	}
	w.log.Info("a revision cannot be used", obs.KeyDeployment, d.Name, obs.KeyCommit, o.commit, obs.KeyUserError, true, obs.KeyReason, problem)
	return w.svc.tell(ctx, tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventWarning, Reason: "RenderFailed", Deployment: d.Name, Message: problem,
	})
}
