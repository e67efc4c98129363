package builtin

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/agent/internal/health"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wait"
)

// object is one object of a target: desired, or leaving when it is not desired any more.
type object struct {
	ref      fleet.ObjectRef
	spec     objectSpec
	position manifest.Place // in the order of the bundle
	step     int            // number of position among those of the target
	phase    phase
	// forgotten: the target has dropped it, and it is not removed from the order yet.
	forgotten bool

	kind      kindState
	record    record
	live      liveState
	health    healthState
	retry     retryState
	watch     watch.State
	reread    reread
	unnamed   bool // it does not carry the label of this agent, so no watch reports it
	mustRead  bool // the watch will not report it
	existence existenceCheck
	drift     driftState
	preview   fleet.Cause // what would change, in a dry run; zero when nothing would
	replaced  string      // the immutable field for which it was deleted, to be recreated
	leaving   *removal    // nil while it is desired
}

// objectSpec is what the bundle and the policy say about an object. The manifest is nil while the object is leaving. The
// rest stays, since the record was made by it.
type objectSpec struct {
	manifest       *manifest.Text // as text: there may be many, and few are applied at a time
	hash           string         // of manifest
	needs          []*object      // to be ready before it is applied
	optional       bool           // leave it alone if it exists and is not ours
	keepAnnotation string         // kube.KeepAnnotation of the manifest
	ignore         fieldset.Rules
	drift          fleet.DriftMode
}

// kindState is what is known about the kind of an object.
type kindState struct {
	resolved bool // mapping is known, and the namespace of ref is right for it
	mapping  kube.Mapping
	unknown  bool // the cluster does not serve it
	expected bool // its definition was applied or has changed: it may be served any moment
}

// record is the inventory entry of an object.
type record struct {
	listed         bool   // in the inventory
	applied        string // hash of the manifest that was last applied; "" when not known
	live           string // projection of the applied fields
	fields         string // hash over the names of the applied fields
	uid            string
	keepAnnotation string // kube.KeepAnnotation of the manifest that was last applied
	finished       inventory.Finish
	finishFrom     finishSource
	hold           inventory.Hold // why its deletion has to be confirmed
}

// liveState is what is known about the live object.
type liveState struct {
	known   bool   // seen, with the label of the target, since the last change
	version string // resourceVersion last seen
	fields  []byte // own fields, FieldsV1
	// later was observed while a request was under way. recheck: what the agent may touch has changed in that time.
	later   *watch.Observation
	recheck bool
}

// healthState is the health of an object and what explains it.
type healthState struct {
	status       fleet.Health
	cause        fleet.Cause // why status is what it is; zero when that needs no explanation
	autoscaler   string      // that set the replicas which the manifest declares
	unreadySince time.Time
	diagnosis    *diagnosis // nil unless it is a workload that is unready for a while
}

// retryState is how the attempts to make an object as desired, or to remove it, went.
type retryState struct {
	attempted        bool        // tried at least once for this version, with any result
	failure          fleet.Cause // of the last attempt; zero when it did not fail
	missingNamespace string      // that it failed for
	backoff          wait.Backoff
	due              time.Time
}

// driftState is how an object deviates from what was applied, and what is done about it.
type driftState struct {
	renewed  bool                       // not seen in place since the version is new: it is restored in every mode
	deviates bool                       // it is not as it was applied, and is left so
	reported fleet.Cause                // how it deviates; zero when that is not reported
	compared string                     // hash of what was compared last
	force    bool                       // restore fields that others own now
	healing  bool                       // it was in place before
	delayed  bool                       // healed so often that it has to wait
	before   *unstructured.Unstructured // what it looked like when it was changed
	heals    healing
}

// removal is the state of an object that is not desired any more.
type removal struct {
	cause       fleet.Cause // why it is kept; zero when it is to be deleted
	keptBy      fleet.Cause // the annotation that keeps it; zero when none does
	waits       bool        // it is kept only until others have what they desire
	confirmable bool        // a user may have it deleted all the same, or has confirmed that
	bounds      bounds
	claimedBy   fleet.TargetID // another target that desires it
	handOver    fleet.Cause    // why it waits for another deployment, as the server says
	contents    fleet.Cause    // why it could not be deleted at the last attempt, until it is due
	emptyAt     time.Time      // when nothing was found in it
	// unservedSince is since when the API server does not serve its kind.
	unservedSince time.Time
	since         time.Time // when its deletion was accepted
}

// refused reports whether the agent must not touch an object that is leaving.
func (o *object) refused() bool { return o.leaving != nil && !o.leaving.bounds.refusal.IsZero() }

// key identifies the object. It is not stored: there may be many objects.
func (o *object) key() inventory.Key { return inventory.KeyOf(o.ref) }

// reread is the schedule of reads of an object that no watch reports.
type reread struct {
	at      time.Time
	backoff wait.Backoff
	failure fleet.Cause // why the last read failed; zero when it did not, or the object is watched
}

// unwatched reports whether no watch reports the object: its watch does not work, or the object does not name this agent.
func (o *object) unwatched() bool { return o.watch.Failed() || o.unnamed }

// rereadable reports whether an object is in place and no watch would report a change of it.
func (o *object) rereadable() bool {
	return o.phase == phaseInPlace && o.unwatched() && o.kind.resolved
}

// wasReread records the result of a read and schedules the next one.
func (o *object) wasReread(now time.Time, every time.Duration, err error) {
	o.reread.failure = fleet.Cause{}
	if err == nil {
		o.reread.backoff = wait.Backoff{}
	} else if o.watch.Failed() {
		o.reread.failure = fleet.Cause{Reason: fleet.ReasonNotReadable, Message: "it is not watched and cannot be read: " + err.Error()}
	}
	o.reread.at = now.Add(o.reread.backoff.NextJittered(every, 2*every))
}

// inPlace reports whether an object is as desired, as far as is known.
func (o *object) inPlace() bool { return o.phase == phaseInPlace || o.phase == phaseRereading }

// occupiedAt returns why a leaving object waits for its next attempt; zero when it does not wait.
func (o *object) occupiedAt(now time.Time) fleet.Cause {
	if now.Before(o.retry.due) {
		return o.leaving.contents
	}
	return fleet.Cause{}
}

// busy reports whether a request for the object is under way.
func (o *object) busy() bool { return o.phase.busy() }

func (o *object) entry() inventory.Entry {
	return inventory.Entry{ObjectRef: o.ref, Hash: o.record.applied, Live: o.record.live, Fields: o.record.fields, UID: o.record.uid, Wave: o.position.Wave, Depth: o.position.Depth, Held: o.record.hold,
		Keep: o.record.keepAnnotation, Finished: o.record.finished}
}

// update records the state of a live object.
func (o *object) update(live *unstructured.Unstructured) {
	o.live.version = live.GetResourceVersion()
	o.health.autoscaler = fieldset.Autoscaler(live)
	if o.leaving != nil || o.health.autoscaler != "" && !fieldset.DeclaresReplicas(o.spec.manifest.Object()) {
		o.health.autoscaler = ""
	}
	o.health.status, o.health.cause = health.Of(live)
	o.record.finished = finishOf(live)
	switch {
	case o.health.status == fleet.HealthCurrent:
		o.health.unreadySince = time.Time{}
	case o.health.unreadySince.IsZero():
		o.health.unreadySince = time.Now()
	}
}

// outdated reports whether a version is older than the one last seen.
func (o *object) outdated(version string) bool {
	if o.live.version == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, o.live.version)
	// Versions that cannot be compared are evaluated, which does no harm.
	return err == nil && order < 0
}

// evaluated reports whether this version of the live object was evaluated before and was as it was applied: nearly
// always the result of an apply, which the watch reports as well.
func (o *object) evaluated(live *unstructured.Unstructured) bool {
	return o.phase == phaseInPlace && o.live.known && !o.drift.deviates && !o.unnamed && o.record.applied == o.spec.hash &&
		o.live.version != "" && o.live.version == live.GetResourceVersion() && o.record.uid == string(live.GetUID())
}

// sharedFields returns fields, or an equal value of another object of this target. Nobody changes them.
func (t *target) sharedFields(fields []byte) []byte {
	if fields == nil {
		return nil
	}
	known, ok := t.cache.fields[string(fields)]
	if !ok {
		known = fields
		t.cache.fields[string(fields)] = fields
	}
	return known
}
