package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Where drift is not corrected, an object that deviates stays as it is until a new version of the target begins, which
// applies it. To report which fields deviate, a dry run asks the API server what an apply would change, once for each
// change.

// configure sets what policy and manifest say about drift and about the fields to ignore.
func (t *target) configure(o *object, m manifest.Object) {
	mode, err := m.Drift()
	if err != nil {
		t.work.invalid = cmp.Or(t.work.invalid, fleet.Cause{Reason: fleet.ReasonBundleInvalid, Message: fmt.Sprintf("%s: %v", o.ref, err)})
	}
	o.spec.drift = cmp.Or(mode, t.work.desired.State.Policy.Drift).OrDefault()
	rules := fieldset.RulesFor(t.work.desired.State.Policy.Ignore, o.ref)
	if !reflect.DeepEqual(rules, o.spec.ignore) {
		// The record of its fields was made with other rules.
		o.spec.ignore, o.drift.deviates = rules, o.drift.deviates || o.phase == phaseInPlace
	}
}

// renewed reports whether the inventory is of another version than the desired one.
func (t *target) renewed() bool { return t.inv.inventory.Version() != t.work.desired.State.Version }

// restoredByVersion reports whether an object deviates and is restored by the new version.
func (t *target) restoredByVersion(o *object) bool { return o.drift.deviates && t.renewed() }

// leavesDrift reports whether an object that deviates stays as it is.
func (t *target) leavesDrift(o *object) bool {
	return t.isDryRun() || o.spec.drift != fleet.DriftCorrect && !o.drift.renewed
}

// leaveAlone leaves an object that deviates as it is, and starts a comparison if the drift is to be reported.
func (t *target) leaveAlone(o *object, live *unstructured.Unstructured) {
	switch {
	case o.spec.drift == fleet.DriftIgnore && !t.isDryRun():
		t.transition(o, phaseInPlace)
		o.retry.attempted, o.drift.deviates = true, true
	case o.phase == phaseInPlace && o.drift.compared == o.driftHash(live):
		// It was compared already: another field has changed.
	default:
		t.transition(o, phaseCompare)
	}
}

// driftHash is a hash over the applied fields of a live object, whoever owns them now.
func (o *object) driftHash(live *unstructured.Unstructured) string {
	fields, err := fieldset.Parse(o.live.fields)
	if err != nil {
		return ""
	}
	left, _ := fields.Without(live.Object, o.spec.ignore.Strip(live.Object))
	return string(live.GetUID()) + "/" + left.Projection(live.Object)
}

// startCompares asks the API server by dry runs what applies would change.
func (t *target) startCompares() {
	for _, o := range t.order {
		if t.inflight >= t.maxInflight() {
			return
		}
		if o.phase != phaseCompare {
			continue
		}
		job := t.job(o)
		job.DryRun, job.Known = true, false
		// A changed field that was applied before is drift, not a conflict.
		job.Force = job.Force || o.record.applied == o.spec.hash && !t.isDryRun()
		t.transition(o, phaseComparing)
		t.start(func(ctx context.Context) func() {
			out, err := t.work.client.Apply(ctx, job)
			return func() { t.compared(o, out, err) }
		})
	}
}

// compared handles the result of a comparison.
func (t *target) compared(o *object, out kube.ApplyResult, err error) {
	t.transition(o, phaseCompare)
	var refused *kube.Refusal
	switch {
	case t.work.ctx.Err() != nil:
		// A newer version has arrived, which compares it again.
	case t.isDryRun():
		t.dryRunDone(o, out, err)
	case errors.As(err, &refused):
		t.failed(o, err)
	case err != nil && out.Before == nil && !apierrors.IsNotFound(err):
		t.failed(o, err) // it could not even be read
	default:
		t.reportDrift(o, out, err)
	}
	t.evaluateLater(o)
}

// reportDrift reports how an object deviates, once for each change.
func (t *target) reportDrift(o *object, out kube.ApplyResult, err error) {
	t.transition(o, phaseInPlace)
	o.retry.attempted, o.retry.failure, o.live.known = true, fleet.Cause{}, false
	before := out.Before
	if before == nil {
		o.health.status, o.health.cause = fleet.HealthNotFound, wasDeleted()
		t.reportDeviation(o, "deleted", "was deleted")
		return
	}
	o.update(before)
	if err != nil {
		// The object was changed, but the change is not known: a webhook may not support dry runs.
		t.reportDeviation(o, o.driftHash(before), changedBy("was changed", fieldset.ChangedBy(before, nil))+"; in what cannot be told: "+err.Error())
		return
	}
	o.live.fields = t.sharedFields(fieldset.RawOwnFields(out.Live))
	ours, _ := fieldset.OwnFields(out.Live).Without(out.Live.Object, o.spec.ignore.Strip(out.Live.Object))
	paths := ours.Differing(before.Object, out.Live.Object, 5)
	if len(paths) == 0 {
		// Somebody has restored it, or owns fields without having changed them.
		t.confirm(o, before)
		o.drift.compared = o.driftHash(before)
		return
	}
	t.reportDeviation(o, o.driftHash(before), changedBy("changed in the cluster: "+strings.Join(paths, ", "), fieldset.ChangedBy(before, paths)))
}

func (t *target) reportDeviation(o *object, sighting, message string) {
	news := !o.drift.deviates || o.drift.compared != sighting
	o.drift.deviates, o.drift.compared = true, sighting
	if o.spec.drift == fleet.DriftIgnore {
		return
	}
	o.drift.reported = fleet.Cause{Reason: fleet.ReasonDrifted, Message: message}
	if news {
		t.event(fleet.EventWarning, fleet.ReasonDrifted, o, message)
	}
}

func changedBy(message, who string) string {
	if who == "" {
		return message
	}
	return fmt.Sprintf("%s; by %q", message, who)
}
