package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wait"
)

// resolve looks up the kinds in use, each once.
func (t *target) resolve() {
	moved := false
	for _, o := range t.order {
		if o.kind.resolved || t.objects[o.key()] != o || o.leaving == nil && o.phase != phaseResolve || o.leaving != nil && o.phase == phaseRemoving {
			continue
		}
		gvk := kube.GVK(o.ref)
		if m, ok := t.engine.client.Mapper.Cached(gvk); ok {
			moved = t.assignMapping(o, m) || moved
			continue
		}
		// The kind of a leaving object is looked up when it is removed; it is watched only if its kind is in use anyway.
		// An object that waits for others may wait for its own definition.
		if o.leaving != nil || t.cache.lookups[gvk.String()] || t.waitsFor(o) != nil {
			continue
		}
		t.cache.lookups[gvk.String()] = true
		t.start(func(ctx context.Context) func() {
			_, err := t.engine.client.Mapper.Find(ctx, gvk)
			return func() {
				delete(t.cache.lookups, gvk.String())
				if err != nil && ctx.Err() == nil {
					t.unresolved(gvk, err)
				}
			}
		})
	}
	if moved {
		t.sort()
	}
}

// kindTries is how many times a kind that comes with the bundle is looked up before it counts as a failure: an API
// server needs a moment to serve a new kind.
const kindTries = 6

// unresolved fails every object of a kind that was not found.
func (t *target) unresolved(gvk schema.GroupVersionKind, err error) {
	comes := errors.Is(err, kube.ErrUnknownKind) && t.defines(gvk.GroupKind())
	for _, o := range t.order {
		switch {
		case o.leaving != nil || o.kind.resolved || o.phase != phaseResolve || kube.GVK(o.ref) != gvk || t.waitsFor(o) != nil:
		case comes && t.isDryRun():
			t.dryRunDone(o, kube.ApplyResult{}, nil)
		case comes && o.retry.backoff.Attempts() < kindTries:
			t.transition(o, phaseFailed)
			o.retry.attempted, o.kind.unknown, o.kind.expected = true, true, true
			o.retry.due = time.Now().Add(t.pause(o, err))
		default:
			t.failed(o, err)
		}
	}
}

// defines reports whether a kind comes with the bundle.
func (t *target) defines(kind schema.GroupKind) bool {
	return slices.ContainsFunc(t.order, func(o *object) bool {
		if o.leaving != nil || o.ref.Kind != "CustomResourceDefinition" {
			return false
		}
		group, name, ok := o.spec.manifest.Object().Defines()
		return ok && group == kind.Group && name == kind.Kind
	})
}

// assignMapping sets the mapping of an object, corrects its namespace and starts to watch it. It reports whether the
// name of the object has changed.
func (t *target) assignMapping(o *object, m kube.Mapping) (moved bool) {
	ref := o.ref
	if !m.Namespaced {
		ref.Namespace = ""
	}
	if ref != o.ref {
		if !t.relocate(o, ref) {
			t.failed(o, &kube.Refusal{Cause: fleet.Cause{Reason: fleet.ReasonDuplicateObject, Message: fmt.Sprintf("%s is defined twice", ref)}})
			return false
		}
		moved = true
	}
	o.kind.mapping = m
	if o.leaving == nil {
		if why := t.refuse(ref, m); !why.IsZero() {
			t.failed(o, &kube.Refusal{Cause: why})
			return moved
		}
		t.transition(o, o.firstPhase())
	}
	o.kind.resolved, o.kind.unknown = true, false
	o.watch = t.engine.watchers.objects.Add(m, o.ref, t)
	o.mustRead = o.watch.Reason != watch.Pending
	t.scheduleReread(o)
	return moved
}

// relocate changes the name of an object. It returns false when another desired object has that name.
func (t *target) relocate(o *object, ref fleet.ObjectRef) bool {
	key := inventory.KeyOf(ref)
	if there := t.objects[key]; there != nil && there != o {
		if there.leaving == nil || there.busy() {
			return false
		}
		o.record.listed, o.record.applied, o.record.live, o.record.uid = there.record.listed, there.record.applied, there.record.live, there.record.uid
		o.record.keepAnnotation, o.record.finished, o.record.fields = there.record.keepAnnotation, there.record.finished, there.record.fields
		t.unresolve(there)
	}
	delete(t.objects, o.key())
	o.ref = ref
	t.objects[key] = o
	return true
}

// failed records that an attempt failed, and when to try again.
func (t *target) failed(o *object, err error) {
	if t.leaveExisting(o, err) {
		return
	}
	if o.retry.missingNamespace = kube.MissingNamespace(err); o.retry.missingNamespace != "" {
		t.awaitsNamespaces = true
		t.recreateNamespace(o.retry.missingNamespace)
	}
	t.transition(o, phaseFailed)
	o.retry.attempted = true
	o.kind.unknown = errors.Is(err, kube.ErrUnknownKind)
	o.retry.due = time.Now().Add(t.pause(o, err))
	o.live.known = false // it may have changed since
	t.suspendClaim(o, err)
	general := fleet.ReasonApplyFailed
	if t.isDryRun() {
		general = fleet.ReasonDryRunFailed
	}
	failure := fleet.Cause{Reason: kube.ReasonOf(err, general), Message: t.describe(o, err)}
	if failure != o.retry.failure {
		o.retry.failure = failure
		t.event(fleet.EventWarning, general, o, failure.Message)
	}
}

// forbiddenTries is how many times a forbidden apply is tried before the claim is suspended: a new Role takes a moment
// to become effective.
const forbiddenTries = 3

// suspendClaim suspends the claim to an object that this target may not have, so that it does not keep others from
// removing it.
func (t *target) suspendClaim(o *object, err error) {
	var refused *kube.Refusal
	var by *kube.OwnedError
	switch {
	case errors.As(err, &by):
		t.engine.claims.suspend(o.key(), t.id, by.Target)
	case errors.As(err, &refused), apierrors.IsForbidden(err) && o.retry.backoff.Attempts() >= forbiddenTries:
		t.engine.claims.suspend(o.key(), t.id, "")
	}
}

// pause returns how long to wait before the next attempt.
func (t *target) pause(o *object, err error) time.Duration {
	timing := t.engine.timing
	switch {
	case apierrors.IsForbidden(err):
		return o.retry.backoff.NextJittered(timing.retryFirst, timing.forbiddenMax)
	case o.kind.unknown && o.kind.expected:
		// The API server needs a moment to serve a new kind.
		return o.retry.backoff.NextJittered(timing.kindFirst, timing.retryMax)
	}
	return o.retry.backoff.NextJittered(timing.retryFirst, timing.retryMax)
}

func (t *target) describe(o *object, err error) string {
	if errors.Is(err, kube.ErrUnknownKind) {
		return fmt.Sprintf("the cluster does not know the kind %s (%s); install its CustomResourceDefinition or add it to the source",
			o.ref.Kind, kube.GVK(o.ref).GroupVersion())
	}
	return err.Error()
}

// retryKinds makes objects of unknown kinds of a group due; "" is any group.
func (t *target) retryKinds(group string) {
	for _, o := range t.order {
		if o.leaving == nil && o.kind.unknown && (group == "" || o.ref.Group == group) {
			o.retry.due, o.retry.backoff, o.kind.expected = time.Time{}, wait.Backoff{}, group != ""
		}
	}
}

// retryAll makes everything that failed due now, and checks again what the agent may touch.
func (t *target) retryAll() {
	t.inv.due = time.Time{}
	for _, o := range t.order {
		if o.live.recheck = o.busy(); !o.live.recheck {
			t.allowed(o)
		}
		if o.phase == phaseFailed || o.phase == phaseLeaving {
			o.retry.due, o.retry.backoff = time.Time{}, wait.Backoff{}
		}
	}
}

// retryWaiting makes due what waits for the claims of others.
func (t *target) retryWaiting() {
	for _, o := range t.order {
		if o.phase == phaseKept && o.leaving.waits && o.occupiedAt(t.now).IsZero() {
			o.retry.due, o.retry.backoff = time.Time{}, wait.Backoff{}
		}
	}
}

// allowed reports whether a desired object may still be touched. If not, it fails.
func (t *target) allowed(o *object) bool {
	if o.leaving != nil || !o.kind.resolved {
		return true
	}
	why := t.refuse(o.ref, o.kind.mapping)
	if why.IsZero() {
		return true
	}
	t.unresolve(o)
	t.failed(o, &kube.Refusal{Cause: why})
	return false
}
