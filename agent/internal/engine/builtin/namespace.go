package builtin

import (
	"errors"
	"strconv"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wait"
)

// The policy createNamespace adds the Namespace of a deployment to its objects, as if it were in the source: it is applied
// first, labelled and listed in the inventory. As a protected kind it is held when it leaves, and released with the
// deployment. If it exists already and is not ours, it is left alone, which is no failure.

// AnnotationCreateNamespace marks a Namespace that exists because of the policy of a deployment.
const AnnotationCreateNamespace = "kedge.dev/create-namespace"

// withNamespace adds the Namespace of a deployment whose policy is createNamespace. An empty bundle stays empty, so that
// it is noticed.
func withNamespace(d engine.Desired) engine.Desired {
	if !d.State.Policy.CreateNamespace || d.State.Namespace == "" || d.Objects == nil || len(d.Objects.Objects()) == 0 {
		return d
	}
	ref := fleet.ObjectRef{Version: "v1", Kind: "Namespace", Name: d.State.Namespace}
	wave := 0
	for _, o := range d.Objects.Objects() {
		if o.Ref.Group == "" && o.Ref.Kind == ref.Kind && o.Ref.Name == ref.Name {
			return d // the source has it
		}
		if w, err := o.Wave(); err == nil {
			wave = min(wave, w)
		}
	}
	annotations := map[string]any{AnnotationCreateNamespace: "true"}
	if wave != 0 {
		annotations[manifest.AnnotationWave] = strconv.Itoa(wave) // its contents must not come before it
	}
	object := manifest.Object{Ref: ref, Source: "policy createNamespace", Content: map[string]any{
		"apiVersion": "v1", "kind": ref.Kind, "metadata": map[string]any{"name": ref.Name, "annotations": annotations},
	}}
	set, err := manifest.NewSet(append(d.Objects.Objects(), object), d.State.Namespace)
	if err != nil {
		return d // its objects are refused for the same reason
	}
	d.Objects = set
	return d
}

// isOptional reports whether an object is a Namespace of the policy createNamespace.
func isOptional(m manifest.Object) bool {
	metadata, _ := m.Content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return kube.IsNamespace(m.Ref) && annotations[AnnotationCreateNamespace] == "true"
}

// leaveExisting leaves an optional object alone that belongs to somebody else. It reports whether that is so.
func (t *target) leaveExisting(o *object, err error) bool {
	var refused *kube.Refusal
	if !o.spec.optional || !errors.As(err, &refused) {
		return false
	}
	why := fleet.Cause{Reason: fleet.ReasonExistsAlready, Message: "exists already and is not managed by this deployment"}
	if !o.kind.resolved { // this agent must not touch it
		why = fleet.Cause{Reason: refused.Cause.Reason, Message: "is not created: " + refused.Cause.Message}
	}
	t.inv.dirty = t.inv.dirty || o.record.listed
	t.transition(o, phaseInPlace)
	o.retry.attempted, o.record.listed, o.live.known, o.record.uid, o.record.applied = true, false, false, "", ""
	o.retry.failure, o.retry.backoff, o.retry.due = fleet.Cause{}, wait.Backoff{}, time.Time{}
	o.health.status, o.health.cause, o.health.unreadySince = fleet.HealthCurrent, why, time.Time{}
	o.endDiagnosis()
	t.engine.claims.suspend(o.key(), t.id, "")
	return true
}

// awaitNamespaces watches the namespaces that objects of the target failed for.
func (t *target) awaitNamespaces() {
	if !t.awaitsNamespaces {
		return
	}
	names := map[string]bool{}
	for _, o := range t.order {
		if o.phase == phaseFailed && o.retry.missingNamespace != "" {
			names[o.retry.missingNamespace] = true
		}
	}
	t.awaitsNamespaces = len(names) > 0
	t.engine.watchers.namespaces.Want(t, names)
}

// retryNamespace makes objects due that failed because a namespace was missing.
func (t *target) retryNamespace(name string) {
	for _, o := range t.order {
		if o.phase == phaseFailed && o.retry.missingNamespace == name {
			o.retry.due, o.retry.backoff = t.now, wait.Backoff{}
		}
	}
}

// recreateNamespace applies an optional Namespace that belonged to somebody else and is gone.
func (t *target) recreateNamespace(name string) {
	for _, o := range t.order {
		if o.spec.optional && o.ref.Name == name && o.phase == phaseInPlace && o.health.cause.Reason == fleet.ReasonExistsAlready {
			t.transition(o, phaseApply)
			o.health.cause = fleet.Cause{}
		}
	}
}
