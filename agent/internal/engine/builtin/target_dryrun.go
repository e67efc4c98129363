package builtin

import (
	"cmp"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wait"
)

// isDryRun reports whether the target only reports what would change. Deleting or detaching a deployment is carried out
// even so: no later version could do it.
func (t *target) isDryRun() bool {
	return t.work.desired.State.Policy.DryRun && t.work.whole
}

// dryRun asks the API server for every object what an apply would change, without waiting for steps or waves. It writes
// neither objects nor the inventory. Objects that are in place are not compared until a watch reports a change.
func (t *target) dryRun() {
	t.retryFailed(t.now)
	t.resolve()
	s := t.progress()
	t.engine.watchers.definitions.Want(t, s.unknown)
	for _, o := range t.order {
		if o.leaving == nil && o.kind.resolved && (o.phase == phaseApply || o.phase == phaseVerify) {
			t.transition(o, phaseCompare)
		}
	}
	t.startCompares()
	if s.unattempted == 0 && s.waiting == 0 {
		t.dryRunPrune(s)
	}
}

// dryRunDone handles the result of the dry run of one object.
func (t *target) dryRunDone(o *object, out kube.ApplyResult, err error) {
	if err != nil && !t.namespaceComes(o, err) {
		t.failed(o, err)
		return
	}
	o.retry.attempted, o.retry.failure, o.retry.backoff = true, fleet.Cause{}, wait.Backoff{}
	o.drift.compared, o.preview = "", fleet.Cause{}
	if out.Before == nil && t.restsFinished(o, phaseCompared) {
		return
	}
	t.transition(o, phaseCompared)
	if out.Before == nil {
		o.health.status, o.health.cause = fleet.HealthNotFound, fleet.Cause{}
		o.preview = preview("would be created")
		return
	}
	o.update(out.Before)
	o.drift.compared = authoredHash(out.Before)
	switch {
	case out.Replaced != "":
		o.preview = preview("would be deleted and created again: " + out.Replaced + " cannot be changed")
	case out.Live != nil:
		if changes := fieldset.Diff(out.Before, out.Live); len(changes) > 0 {
			o.preview = preview("would be changed: " + strings.Join(changes, ", "))
		}
	}
}

func preview(message string) fleet.Cause {
	return fleet.Cause{Reason: fleet.ReasonDryRun, Message: message}
}

// namespaceComes reports whether an object cannot be tried because its Namespace comes with the bundle.
func (t *target) namespaceComes(o *object, err error) bool {
	host := t.objects[inventory.Key{Kind: "Namespace", Name: o.ref.Namespace}]
	return apierrors.IsNotFound(err) && host != nil && host.leaving == nil
}

// authoredHash is a hash over the authored fields of an object.
func authoredHash(live *unstructured.Unstructured) string {
	return manifest.Object{Content: fieldset.Authored(live)}.Hash()
}

// compareAgain compares an object again if it has changed since.
func (t *target) compareAgain(o *object, live *unstructured.Unstructured) {
	if o.drift.compared != authoredHash(live) {
		t.transition(o, phaseCompare)
	}
}

// dryRunPrune reports what would happen to the objects that are not desired any more.
func (t *target) dryRunPrune(s progress) {
	gone, plan := t.plan(s)
	for _, o := range t.order {
		if o.leaving != nil && !o.deletable() {
			t.transition(o, phaseKept)
			o.preview, o.leaving.cause = fleet.Cause{}, o.undeletable()
		}
	}
	for _, o := range gone {
		t.transition(o, phaseKept)
		o.preview = fleet.Cause{}
		o.leaving.cause = cmp.Or(plan.Decide(o.ref, o.record.hold).Cause, t.engine.namespaceInUse(o.ref, t.id))
		if o.leaving.cause.IsZero() {
			o.preview = preview("would be deleted")
		}
	}
}

// dryRunSummary summarizes what would change.
func (t *target) dryRunSummary(n tally) string {
	return fmt.Sprintf("preview only: %d of %d objects would change; %s", n.changed, len(t.order), n.change.Message)
}
