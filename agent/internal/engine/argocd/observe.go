package argocd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// Sync states of Argo CD.
const (
	argoSynced    = "Synced"
	argoOutOfSync = "OutOfSync"
	argoUnknown   = "Unknown"
)

// current reports whether Argo CD has compared exactly the desired source with the cluster. The status of an Application
// does not say for which generation it is, but it repeats what was compared.
func (t *target) current(app *application) bool {
	return compares(app, t.work)
}

func compares(app *application, d *engine.Desired) bool {
	s := app.status.Sync
	destination, _ := app.spec["destination"].(map[string]any)
	return app.annotation(annotationRefresh) == "" && s.Revision == d.State.Commit &&
		sameSpec(s.ComparedTo.Source, sourceOf(*d)) && sameSpec(s.ComparedTo.Destination, destination)
}

// attempt is the last operation on the desired source.
type attempt struct {
	running, failed bool
	succeeded       bool
	message         string
	results         map[string]string // messages of failed objects, by name
	pruning         bool
	partial         bool // it was a sync of some objects that the engine has requested
	healing         bool // it was a sync of some objects by which Argo CD corrects drift
}

func (t *target) attempt(app *application) attempt {
	state := app.status.OperationState
	if state == nil {
		return attempt{running: app.op != nil}
	}
	a := attempt{message: state.Message, pruning: state.Operation.Sync != nil && state.Operation.Sync.Prune, results: map[string]string{}}
	if some := state.Operation.Sync != nil && len(state.Operation.Sync.Resources) > 0; some && !a.pruning {
		a.healing = state.Operation.InitiatedBy.Automated
		a.partial = !a.healing
	}
	source, _ := state.SyncResult["source"].(map[string]any)
	revision, _ := state.SyncResult["revision"].(string)
	if revision != t.work.State.Commit || !sameSpec(source, sourceOf(*t.work)) {
		return attempt{running: app.busy()} // of an earlier desired state
	}
	// A failed attempt that Argo CD repeats is Running with the time of its end.
	waits := app.retries()
	a.running = app.busy() && !waits
	a.failed = waits || !app.busy() && state.Phase != phaseSucceeded
	a.succeeded = !app.busy() && state.Phase == phaseSucceeded && t.compared(app)
	results, _ := state.SyncResult["resources"].([]any)
	for _, r := range results {
		var result struct {
			resourceStatus
			Message   string `json:"message"`
			HookPhase string `json:"hookPhase"`
		}
		decode(r, &result)
		if result.Status == "SyncFailed" || result.HookPhase == "Failed" || result.HookPhase == "Error" {
			a.results[result.ref().String()] = result.Message
		}
	}
	return a
}

// compareGrace is how long Argo CD may take to compare after a sync. A comparison that may be older than the end of the
// sync shows objects as they were before.
const compareGrace = 10 * time.Second

// compared reports whether the objects in the status are those after the last sync. The times of Argo CD have seconds only,
// so that equal times say nothing.
func (t *target) compared(app *application) bool {
	state := app.status.OperationState
	if state.FinishedAt == nil || app.status.Sync.Status == argoSynced || t.synced == t.work.State.Version {
		return true
	}
	if at := app.status.ReconciledAt; at != nil && at.After(state.FinishedAt.Time) {
		return true
	}
	until := state.FinishedAt.Add(compareGrace)
	if !time.Now().Before(until) {
		return true
	}
	t.at(until)
	return false
}

// observe mirrors the status of an Application that is written as desired, and takes the next step that it needs.
func (t *target) observe(ctx context.Context, app *application) outcome {
	t.resyncWritten()
	if t.asked(app) && app.annotation(annotationRefresh) != "" {
		return outcome{status: syncing(fleet.ReasonArgoCDNotReconciled, "Argo CD has not compared the revision with the cluster again yet")}
	}
	if why, since := conditions(app); !why.IsZero() {
		status := failed(t.explain(why))
		if why.Reason == fleet.ReasonArgoCDSpecRefused && time.Since(since) < compareGrace {
			status = syncing(fleet.ReasonArgoCDNotReconciled, "Argo CD may not have seen the AppProject yet: "+why.Message)
			if t.syncDue.IsZero() {
				t.syncDue = time.Now().Add(t.engine.timing.retryFirst)
			}
		}
		return outcome{status: t.refreshLater(ctx, app, status)}
	}
	if !t.current(app) || app.status.Sync.Status == argoUnknown || app.status.Sync.Status == "" {
		return outcome{status: syncing(fleet.ReasonArgoCDNotReconciled, "Argo CD has not compared the revision with the cluster yet")}
	}
	if t.asked(app) {
		if err := t.syncOnce(ctx, app); err != nil {
			return t.writeFailed(err)
		}
		return outcome{status: syncing(fleet.ReasonApplying, "Argo CD has not synced the revision again yet")}
	}
	last := t.attempt(app)
	objects, unsettled := t.desiredObjects(app, last, t.holders(ctx, app, last))
	if last.failed && unsettled == 0 && (last.healing || last.pruning && !slices.ContainsFunc(app.objects(), func(r resourceStatus) bool { return r.RequiresPruning })) {
		last = attempt{succeeded: true} // what it should correct or delete is as it should be
	}
	t.driftEvents(objects, t.selfHealed(app))
	status := t.summarize(app, last, objects, unsettled)
	left, err := t.prune(ctx, app, last, len(objects), unsettled)
	if err != nil {
		return t.writeFailed(err)
	}
	status.Objects = append(objects, left...)
	t.summarizeLeft(&status, left)
	waits := unsettled > 0 && len(app.shared()) > 0 || slices.ContainsFunc(left, handedOver)
	if !t.waitsForOthers.Swap(waits) && waits {
		t.wake.Set() // the others may have changed before it waited for them
	}
	if unsettled > 0 {
		if err := t.settle(ctx, app, last); err != nil {
			return t.writeFailed(err)
		}
	}
	return outcome{status: status}
}

// settle requests the sync that objects of the source need and that Argo CD does not start by itself.
func (t *target) settle(ctx context.Context, app *application, last attempt) error {
	requested, err := t.takeOver(ctx, app, last)
	if err != nil || requested {
		return err
	}
	switch {
	case app.busy():
	case last.partial && last.succeeded:
		return t.syncAll(ctx, app)
	case last.failed && t.retryDue():
		return t.syncAll(ctx, app)
	}
	return nil
}

// conditions returns the error of an Application, and since when it has it; zero when there is none.
func conditions(app *application) (why fleet.Cause, since time.Time) {
	reasons := map[string]fleet.Reason{
		"InvalidSpecError": fleet.ReasonArgoCDSpecRefused, "ComparisonError": fleet.ReasonArgoCDComparisonFailed, "UnknownError": fleet.ReasonArgoCDComparisonFailed,
	}
	for _, c := range app.status.Conditions {
		if reason, ok := reasons[c.Type]; ok {
			return fleet.Cause{Reason: reason, Message: c.Message}, c.LastTransitionTime.Time
		}
	}
	return fleet.Cause{}, time.Time{}
}

// explain adds that Argo CD has no credential for the repository to a failed comparison.
func (t *target) explain(why fleet.Cause) fleet.Cause {
	if why.Reason != fleet.ReasonArgoCDComparisonFailed {
		return why
	}
	switch t.work.Source.Withheld {
	case fleet.CredentialNotEnabled:
		return fleet.Cause{Reason: fleet.ReasonCredentialNotDelivered, Message: "the credential of the repository is not delivered to this agent: " +
			"set deliverGitCredentials, and apply the manifest of the agent again, or add the credential to Argo CD; " + why.Message}
	case fleet.CredentialOfOtherTenant:
		return fleet.Cause{Reason: fleet.ReasonCredentialNotDelivered, Message: "the credential of the repository belongs to another tenant than the agent: " +
			"add a credential to Argo CD; " + why.Message}
	}
	return why
}

// refreshLater has Argo CD compare again after a failed comparison. It does so by itself only after minutes, and not at all
// when its timer is off.
func (t *target) refreshLater(ctx context.Context, app *application, status engine.Status) engine.Status {
	if app.annotation(annotationRefresh) != "" || app.busy() {
		return status
	}
	if now := time.Now(); t.syncDue.IsZero() {
		t.syncDue = now.Add(t.syncs.NextJittered(t.engine.timing.syncFirst, t.engine.timing.syncMax))
	} else if !now.Before(t.syncDue) {
		t.syncDue = time.Time{}
		// A normal refresh would return the failure that Argo CD has cached. After an error, the next pass tries it again.
		if t.annotate(ctx, app, map[string]string{annotationRefresh: "hard"}) != nil {
			t.at(now.Add(t.engine.timing.syncFirst))
		}
		return status
	}
	t.at(t.syncDue)
	return status
}

// desiredObjects describes the objects of the source. unsettled counts those that are not as desired. holders says which of them
// Argo CD tracks for other Applications.
func (t *target) desiredObjects(app *application, last attempt, holders map[string]fleet.Cause) (out []fleet.ObjectStatus, unsettled int) {
	mode, kinds := t.work.State.Policy.Drift.OrDefault(), t.engine.config().kinds
	for _, r := range app.objects() {
		if r.RequiresPruning {
			continue
		}
		o := fleet.ObjectStatus{ObjectRef: r.ref(), Sync: fleet.SyncSyncing, Reason: fleet.ReasonApplying}
		o.Health, o.Message = objectHealth(app, r)
		failure, failedNow := last.results[o.String()]
		switch {
		case r.Status == argoSynced:
			o.Sync, o.Reason = fleet.SyncSynced, healthReason(o.Health)
		case last.failed && failedNow:
			o.Sync, o.Reason, o.Message = fleet.SyncFailed, fleet.ReasonApplyFailed, failure
		case last.failed && !holders[r.Kind+"/"+r.Name].IsZero():
			holder := holders[r.Kind+"/"+r.Name]
			o.Sync, o.Reason, o.Message = fleet.SyncFailed, holder.Reason, holder.Message
		case r.Status == argoUnknown:
			o.Sync, o.Reason, o.Message = fleet.SyncFailed, fleet.ReasonOutsideScope, "the AppProject of the tenant does not allow this object"
			if why := kinds.Refusal(o.ObjectRef); why != "" {
				o.Reason, o.Message = fleet.ReasonKindNotAllowed, why
			}
		case t.work.State.Policy.DryRun:
			o.Sync, o.Reason, o.Message = fleet.SyncOutOfSync, fleet.ReasonDryRun, "differs from the source"
		case last.succeeded && mode == fleet.DriftIgnore:
			o.Sync, o.Reason = fleet.SyncSynced, healthReason(o.Health)
		case last.succeeded:
			o.Sync, o.Reason, o.Message = fleet.SyncOutOfSync, fleet.ReasonDrifted, "differs from the source"
		}
		if o.Sync != fleet.SyncSynced {
			unsettled++
		}
		out = append(out, o)
	}
	return out, unsettled
}

// driftEvents reports the objects that had drifted and that Argo CD has corrected. healed are the objects of a sync by which it
// has corrected drift, which can be shorter than the time between two passes.
func (t *target) driftEvents(objects []fleet.ObjectStatus, healed map[syncResource]bool) {
	corrects := t.synced == t.work.State.Version && t.work.State.Policy.Drift.OrDefault() == fleet.DriftCorrect
	for _, o := range objects {
		name := o.String()
		differs := corrects && o.Sync == fleet.SyncSyncing
		if o.Reason == fleet.ReasonDrifted || differs || healed[syncResource{Group: o.Group, Kind: o.Kind, Name: o.Name}] {
			t.drifted[name] = true
		}
		if o.Sync == fleet.SyncSynced && t.drifted[name] {
			delete(t.drifted, name)
			t.objectEvent(fleet.EventNormal, fleet.ReasonDriftHealed, name, "differed from the source; Argo CD has corrected it")
		}
	}
}

// selfHealed returns the objects of a sync that Argo CD has started by itself after the version was Synced, once for each. Such
// a sync names the objects that had drifted, without their namespaces.
func (t *target) selfHealed(app *application) map[syncResource]bool {
	state := app.status.OperationState
	if state == nil || !state.Operation.InitiatedBy.Automated || state.Operation.Sync == nil || len(state.Operation.Sync.Resources) == 0 {
		return nil
	}
	out := map[syncResource]bool{}
	for _, r := range state.Operation.Sync.Resources {
		r.Namespace = ""
		out[r] = true
	}
	heal := fmt.Sprint(state.StartedAt.Unix(), state.Operation.Sync.Resources) // the times of Argo CD have seconds only
	if known := t.lastHeal == heal; known {
		return nil
	}
	t.lastHeal = heal
	if t.synced != t.work.State.Version {
		return nil
	}
	return out
}

// objectHealth returns the health of an object. Argo CD stores it in the Application only if controller.resource.health.persist
// is set; otherwise the health of the Application is all that is known.
func objectHealth(app *application, r resourceStatus) (fleet.Health, string) {
	if r.Health != nil && r.Health.Status != "" {
		return healthOf(r.Health.Status), r.Health.Message
	}
	health := healthOf(app.status.Health.Status)
	if health == fleet.HealthCurrent {
		return health, ""
	}
	return health, "health of the whole Application: " + cmp.Or(app.status.Health.Status, argoUnknown) + "; Argo CD does not store the health of each object"
}

func healthOf(word string) fleet.Health {
	switch word {
	case "Healthy":
		return fleet.HealthCurrent
	case "Progressing", "Suspended":
		return fleet.HealthInProgress
	case "Degraded":
		return fleet.HealthFailed
	case "Missing":
		return fleet.HealthNotFound
	}
	return fleet.HealthUnknown
}

func healthReason(h fleet.Health) fleet.Reason {
	switch h {
	case fleet.HealthCurrent:
		return fleet.ReasonSynced
	case fleet.HealthInProgress:
		return fleet.ReasonProgressing
	case fleet.HealthNotFound:
		return fleet.ReasonNotFound
	case fleet.HealthFailed:
		return fleet.ReasonHealthCheckFailed
	}
	return fleet.ReasonHealthUnknown
}

// summarize derives the state of the target from the Application and the objects of the source.
func (t *target) summarize(app *application, last attempt, objects []fleet.ObjectStatus, unsettled int) engine.Status {
	out := engine.Status{Observed: fleet.Observed{Sync: fleet.SyncSynced, Health: healthOf(app.status.Health.Status)}}
	o := &out.Observed
	for _, object := range objects {
		if object.Sync == fleet.SyncSynced {
			o.Health = fleet.Worst(o.Health, object.Health)
		}
	}
	o.Reason = healthReason(o.Health)
	var drifted []string
	for _, object := range objects {
		if object.Sync == fleet.SyncOutOfSync {
			drifted = append(drifted, object.String())
		}
	}
	switch {
	case last.failed && (unsettled > 0 || !last.pruning):
		o.Sync, o.Reason, o.Message = fleet.SyncFailed, fleet.ReasonArgoCDSyncFailed, heldByOthers(objects)+last.message
	case last.failed:
		o.Sync, o.Reason, o.Message = fleet.SyncFailed, fleet.ReasonPruneFailed, last.message
	case last.running:
		o.Sync, o.Reason, o.Message = fleet.SyncSyncing, fleet.ReasonApplying, last.message
	case len(drifted) > 0 && len(drifted) == unsettled:
		o.Sync, o.Reason = fleet.SyncOutOfSync, fleet.ReasonDrifted
		if t.work.State.Policy.DryRun {
			o.Reason = fleet.ReasonDryRun
		}
		o.Message = listed(drifted) + " differ from the source"
	case unsettled > 0:
		o.Sync, o.Reason = fleet.SyncSyncing, fleet.ReasonApplying
	}
	return out
}

// summarizeLeft adds the objects that have left the source.
func (t *target) summarizeLeft(status *engine.Status, left []fleet.ObjectStatus) {
	o := &status.Observed
	var held, kept []string
	var waiting fleet.Cause
	var why string
	pruning := false
	for _, object := range left {
		switch object.Sync {
		case fleet.SyncHeld:
			if held = append(held, object.String()); why == "" {
				why = object.String() + " " + object.Message
			}
		case fleet.SyncSyncing:
			if object.Reason == fleet.ReasonPruning {
				pruning = true
			} else {
				waiting = fleet.Cause{Reason: object.Reason, Message: object.String() + " " + object.Message}
			}
		default:
			kept = append(kept, object.String())
		}
	}
	switch {
	case o.Sync != fleet.SyncSynced:
	case pruning:
		o.Sync, o.Reason = fleet.SyncSyncing, fleet.ReasonPruning
	case len(held) > 0:
		o.Sync, o.Reason, o.Message = fleet.SyncOutOfSync, fleet.ReasonPruneHeld, why
		if len(held) > 1 {
			o.Message = fmt.Sprintf("%d deletions are held: %s; %s", len(held), listed(held), why)
		}
	case !waiting.IsZero():
		o.Sync, o.Reason, o.Message = fleet.SyncSyncing, waiting.Reason, waiting.Message
	case len(kept) > 0:
		o.Message = "kept: " + listed(kept)
	}
}

// handedOver reports whether an object waits for another deployment.
func handedOver(o fleet.ObjectStatus) bool {
	return o.Reason == fleet.ReasonHandOverPending || o.Reason == fleet.ReasonPruneBlocked
}

func names(objects []fleet.ObjectStatus) (out []string) {
	for _, o := range objects {
		out = append(out, o.String())
	}
	return out
}

// listed joins names, and shortens a long list.
func listed(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
