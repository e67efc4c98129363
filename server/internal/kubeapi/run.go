package kubeapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// runControl has the use cases of SyncRuns.
type runControl interface {
	CreateRun(ctx context.Context, p auth.Principal, tenant, deployment string, req control.CreateRun) (fleet.SyncRun, error)
	OwnedRuns(ctx context.Context, p auth.Principal, tenant string) ([]fleet.SyncRun, error)
	TerminateRun(ctx context.Context, p auth.Principal, tenant string, id fleet.RunID, match control.Match) (fleet.SyncRun, error)
}

// runKind processes SyncRuns. Those of one deployment are created in the order of their creation: when one is processed, the
// earlier ones that have no run yet are processed first.
type runKind struct {
	*shared
	mu sync.Mutex // one run is created at a time
	// seen has the resource version in which a resource was first seen. It orders those of the same second.
	seen map[types.UID]uint64
}

func newRunKind(s *shared) *runKind { return &runKind{shared: s, seen: map[types.UID]uint64{}} }

func (k *runKind) object() client.Object { return &v1alpha1.SyncRun{} }

func (k *runKind) actions() actions[*v1alpha1.SyncRun] {
	return actions[*v1alpha1.SyncRun]{apply: k.apply, delete: k.delete, status: func(cr *v1alpha1.SyncRun) any { return cr.Status }}
}

func (k *runKind) reconcile(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
	r := resource{v1alpha1.KindSyncRun, name}
	var cr v1alpha1.SyncRun
	err := k.cached.Get(ctx, name, &cr)
	if apierrors.IsNotFound(err) {
		return 0, k.runGone(ctx, r)
	}
	if err == nil && (accepted(&cr) || !cr.DeletionTimestamp.IsZero()) {
		return handle(ctx, k.shared, r, k.actions())
	}
	if err != nil {
		return 0, err
	}
	if err := k.replaced(ctx, r, &cr); err != nil {
		return 0, err
	}
	return recheck, k.inOrder(ctx, &cr)
}

// runGone forgets a resource that does not exist any more. Others may have waited for it.
func (k *runKind) runGone(ctx context.Context, r resource) error {
	e := k.index.get(r)
	k.mu.Lock()
	delete(k.seen, e.uid)
	k.mu.Unlock()
	if err := k.gone(ctx, r); err != nil {
		return err
	}
	for _, other := range k.index.waitingRuns(e.tenant) {
		k.enqueue(other)
	}
	return nil
}

// inOrder creates the runs of a resource and of those before it, up to the first that has to wait.
func (k *runKind) inOrder(ctx context.Context, cr *v1alpha1.SyncRun) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	earlier, err := k.unaccepted(ctx, cr)
	if err != nil {
		return err
	}
	for i := range earlier {
		next := &earlier[i]
		if err := process(ctx, k.shared, resource{v1alpha1.KindSyncRun, client.ObjectKeyFromObject(next)}, next, k.actions()); err != nil {
			return err
		}
		if next.UID == cr.UID {
			return nil
		}
		if !accepted(next) && !invalid(next) {
			wait := k.actions()
			wait.apply = k.waitFor(next.Name)
			return process(ctx, k.shared, resource{v1alpha1.KindSyncRun, client.ObjectKeyFromObject(cr)}, cr, wait)
		}
	}
	return nil
}

// waitFor lets a resource wait for an earlier one.
func (k *runKind) waitFor(name string) func(ctx context.Context, r resource, cr *v1alpha1.SyncRun) error {
	return func(ctx context.Context, r resource, cr *v1alpha1.SyncRun) error {
		if err := k.ensureFinalizer(ctx, cr); err != nil {
			return err
		}
		tenant, err := k.tenants.of(ctx, cr)
		if err != nil {
			return err
		}
		k.index.put(r, entry{tenant: tenant.ID, uid: cr.UID, waiting: true})
		cr.Status.ObservedGeneration = cr.Generation
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionAccepted, metav1.ConditionFalse,
			fleet.Cause{Reason: fleet.ReasonWaitsForTurn, Message: fmt.Sprintf("SyncRun %q was created earlier and is not accepted yet", name)})
		return nil
	}
}

// accepted reports whether control has, or had, the run of a resource. It is not created a second time.
func accepted(cr *v1alpha1.SyncRun) bool {
	return meta.IsStatusConditionTrue(cr.Status.Conditions, v1alpha1.ConditionAccepted)
}

// invalid reports whether a resource can never have a run: its spec is immutable. Others do not wait for it.
func invalid(cr *v1alpha1.SyncRun) bool {
	c := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Reason == string(fleet.ReasonInvalidSpec)
}

// unaccepted returns the resources for the same deployment that have no run yet, up to cr, in the order of their creation.
func (k *runKind) unaccepted(ctx context.Context, cr *v1alpha1.SyncRun) ([]v1alpha1.SyncRun, error) {
	var all v1alpha1.SyncRunList
	if err := k.cached.List(ctx, &all, client.InNamespace(cr.Namespace)); err != nil {
		return nil, err
	}
	for i := range all.Items {
		k.see(&all.Items[i])
	}
	order := func(a, b v1alpha1.SyncRun) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(k.seen[a.UID], k.seen[b.UID]), cmp.Compare(a.Name, b.Name))
	}
	out := slices.DeleteFunc(all.Items, func(other v1alpha1.SyncRun) bool {
		return other.Spec.GitOpsDeploymentName != cr.Spec.GitOpsDeploymentName || accepted(&other) || !other.DeletionTimestamp.IsZero() || order(other, *cr) > 0
	})
	slices.SortFunc(out, order)
	return out, nil
}

// see remembers when a resource without a run was first seen.
func (k *runKind) see(cr *v1alpha1.SyncRun) {
	if accepted(cr) || !cr.DeletionTimestamp.IsZero() {
		delete(k.seen, cr.UID)
		return
	}
	if _, ok := k.seen[cr.UID]; !ok {
		version, _ := strconv.ParseUint(cr.ResourceVersion, 10, 64) // zero if it is not a number: then names decide
		k.seen[cr.UID] = version
	}
}

func (k *runKind) apply(ctx context.Context, r resource, cr *v1alpha1.SyncRun) error {
	if err := k.ensureFinalizer(ctx, cr); err != nil {
		return err
	}
	tenant, err := k.tenants.of(ctx, cr)
	if err != nil {
		return err
	}
	// Waiting until the subjects are known, so that no change is missed.
	e := entry{tenant: tenant.ID, uid: cr.UID, waiting: true, subjects: k.index.get(r).subjects}
	k.index.put(r, e)
	run, err := k.run(ctx, tenant, principal(tenant, ownerFor(r.kind, cr), cr), cr)
	cause, final := refused(err)
	if err != nil && !final {
		return err
	}
	cr.Status.ObservedGeneration = cr.Generation
	if final {
		set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionAccepted, metav1.ConditionFalse, cause)
		return nil
	}
	e.waiting = false
	if run == nil {
		k.index.put(r, e)
		runLost(cr)
		return nil
	}
	e.subjects = []string{string(run.ID)}
	k.index.put(r, e)
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionAccepted, metav1.ConditionTrue, fleet.Cause{Reason: fleet.ReasonAccepted, Message: fmt.Sprintf("it is run %d of the deployment", run.Seq)})
	runStatus(cr, *run)
	return nil
}

// run returns the run of a resource, and creates it if it never existed. It returns nil for one that was lost with a
// restored database: it is not run again.
func (k *runKind) run(ctx context.Context, tenant fleet.Tenant, p auth.Principal, cr *v1alpha1.SyncRun) (*fleet.SyncRun, error) {
	runs, err := k.control.OwnedRuns(ctx, p, tenant.Name)
	if err != nil {
		return nil, err
	}
	if len(runs) > 0 {
		return &runs[0], nil
	}
	if accepted(cr) {
		return nil, nil
	}
	if err := k.ready(ctx, cr); err != nil {
		return nil, err
	}
	run, err := k.control.CreateRun(ctx, p, tenant.Name, cr.Spec.GitOpsDeploymentName, control.CreateRun{Revision: cr.Spec.RevisionID})
	if errors.Is(err, store.ErrNotFound) {
		return nil, refuse(fleet.ReasonDeploymentNotFound, fmt.Sprintf("there is no GitOpsDeployment %q in namespace %q", cr.Spec.GitOpsDeploymentName, cr.Namespace))
	}
	return &run, err
}

// ready refuses a run while the newest spec of its GitOpsDeployment is not stored.
func (k *runKind) ready(ctx context.Context, cr *v1alpha1.SyncRun) error {
	name := types.NamespacedName{Namespace: cr.Namespace, Name: cr.Spec.GitOpsDeploymentName}
	var d v1alpha1.GitOpsDeployment
	err := k.cached.Get(ctx, name, &d)
	if err != nil {
		return client.IgnoreNotFound(err) // control says whether there is a deployment
	}
	e := k.index.get(resource{v1alpha1.KindGitOpsDeployment, name})
	if e.uid != d.UID || e.applied != versionOf(&d) || e.waiting {
		return refuse(fleet.ReasonSpecPending, fmt.Sprintf("the spec of GitOpsDeployment %q is not stored yet", d.Name))
	}
	return nil
}

// runLost tells that a run that was not done does not exist any more.
func runLost(cr *v1alpha1.SyncRun) {
	done := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionComplete)
	if done != nil && done.Status != metav1.ConditionUnknown {
		return
	}
	cause := fleet.Cause{Reason: fleet.ReasonRunLost, Message: "the server does not have this run any more, probably because its database was restored from a backup: create another SyncRun"}
	cr.Status.Phase, cr.Status.Message = string(fleet.RunFailed), cause.Message
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionComplete, metav1.ConditionFalse, cause)
}

func runStatus(cr *v1alpha1.SyncRun, run fleet.SyncRun) {
	st := &cr.Status
	st.Phase, st.Message, st.Commit = string(run.Phase), run.Message, run.Commit
	st.StartedAt, st.FinishedAt = timeOf(run.StartedAt), timeOf(run.FinishedAt)
	status := metav1.ConditionUnknown
	switch {
	case run.Phase == fleet.RunSucceeded:
		status = metav1.ConditionTrue
	case run.Phase.Done():
		status = metav1.ConditionFalse
	}
	cause := run.Cause()
	cause.Reason = cmp.Or(cause.Reason, fleet.ReasonWaitsForTurn)
	setAt(&st.Conditions, cr.Generation, v1alpha1.ConditionComplete, status, cause, run.FinishedAt)
}

// delete terminates the run if it is not done.
func (k *runKind) delete(ctx context.Context, r resource, cr *v1alpha1.SyncRun) error {
	if !controllerutil.ContainsFinalizer(cr, v1alpha1.ServerFinalizer) {
		return nil
	}
	removed, err := k.definitionDeleted(ctx, r.kind, cr)
	if err != nil {
		return err
	}
	if removed {
		return k.removeFinalizers(ctx, cr, v1alpha1.ServerFinalizer)
	}
	tenant, err := k.tenants.of(ctx, cr)
	if err != nil {
		return err
	}
	p := principal(tenant, ownerFor(r.kind, cr), cr)
	runs, err := k.control.OwnedRuns(ctx, p, tenant.Name)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if run.Phase.Done() {
			continue
		}
		_, err := k.control.TerminateRun(ctx, p, tenant.Name, run.ID, control.Match{})
		if _, final := refused(err); err != nil && !final && !errors.Is(err, store.ErrNotFound) {
			return err // a run that ended meanwhile is refused
		}
	}
	return k.removeFinalizers(ctx, cr, v1alpha1.ServerFinalizer)
}
