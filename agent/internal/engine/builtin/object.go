package builtin

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/backoff"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/agent/internal/health"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// phase is what an object of a target waits for.
//
//	desired:   resolve ─▶ verify ─▶ inPlace ◀─▶ apply ─▶ applying ─▶ replacing
//	                └──────────────────▶ apply     ▲ ▲      │            │
//	                                               │ └ failed ◀┘         │
//	                                               └─────────────────────┘
//	  where drift is only reported:  inPlace ─▶ compare ─▶ comparing ─▶ inPlace
//	  where nothing is to change:    resolve ─▶ compare ─▶ comparing ─▶ compared
//	leaving:   leaving ─▶ removing ─▶ (forgotten)
//	              ▲ └─▶ held   └─▶ terminating ─▶ removing
type phase int

const (
	phaseResolve     phase = iota // its kind is to be looked up
	phaseVerify                   // believed to be in place: a watch or a read has yet to show it
	phaseReading                  // that read is under way
	phaseRereading                // in place as far as is known, not watched, and read again at this moment
	phaseApply                    // to be applied, when its step has come and it is due
	phaseApplying                 // a request is under way
	phaseInPlace                  // as desired
	phaseFailed                   // tried again when due
	phaseReplacing                // deleted to be created anew, and not gone yet
	phaseCompare                  // the API server is to say what an apply would change
	phaseComparing                // that request is under way
	phaseCompared                 // the answer is in, and nothing else is to be done
	phaseLeaving                  // not desired any more: to be deleted or held
	phaseHeld                     // not desired any more and kept
	phaseRemoving                 // a request is under way
	phaseTerminating              // deletion was accepted; not gone yet
)

// object is one object of a target: desired, or leaving when manifest is nil.
type object struct {
	ref      fleet.ObjectRef
	manifest *manifest.Text // as text: there may be many, and few are applied at a time
	hash     string         // of manifest
	place    manifest.Place
	step     int       // number of place among those of the target
	needs    []*object // to be ready before it is applied
	phase    phase
	// forgotten: it is of no concern any more, and only not yet taken out of the order of its target.
	forgotten bool

	resolved bool // mapping is known and ref is where it really is
	mapping  kube.Mapping
	listed   bool // in the inventory
	watch    watch.State
	unnamed  bool // it does not name this agent, so that no watch tells of it
	mustRead bool // the watch will not say how it is
	unknown  bool // the cluster does not know its kind
	expected bool // something was heard of that kind: it may be there any moment

	attempted bool // tried at least once for this version, with whatever result
	failure   string
	missing   string // the namespace that it failed for
	backoff   backoff.Backoff
	due       time.Time

	// What was last applied, and what is known of it.
	applied string // hash of the manifest; "" when not known
	live    string // projection of our fields
	uid     string
	version string // resourceVersion last seen
	fields  []byte // our fields, FieldsV1
	known   bool   // seen alive and ours
	// keepMark is keepMarkOf the manifest that was last applied, and wantMark of the one that is desired.
	keepMark, wantMark string
	finished           inventory.Finish // of a Job or a Pod, as it was last applied
	finishFrom         finishSource
	// absent is when a list has shown that it is not there. queued: it waits this round for a list; glanced: one was asked for;
	// glancing: and is under way.
	absent                    time.Time
	queued, glanced, glancing bool

	scaler string // the autoscaler that has set the replicas which the manifest declares
	health fleet.Health
	note   string // why health is what it is
	// unready is since when it is applied and not current; zero while it is.
	unready   time.Time
	diagnosis *diagnosis // nil unless it is a workload that is unready for a while
	held      string     // why it is kept although it is not desired any more
	keep      bool       // because its annotation asks for it
	kept      string     // which annotation that is
	// refused: the agent must not touch it at all. waits: only until others have what they desire.
	refused, waits bool
	// optional: it is left alone if it exists and is not ours.
	optional bool
	// confirmable: a user may have it deleted all the same, or has confirmed that.
	confirmable bool
	hold        inventory.Hold // why its deletion has to be confirmed, as the inventory remembers it
	dying       time.Time      // when its deletion was accepted
	bounds      bounds         // of one that is to go
	taker       fleet.TargetID // another target that desires it
	handOver    string         // why it waits for another deployment, as the server says
	unserved    time.Time      // since when the API server does not serve its kind
	emptied     time.Time      // when nothing was found in it
	occupied    string         // why it could not be deleted when that was last tried, and is not until it is due

	rules    fieldset.Rules  // of its fields that may differ
	drift    fleet.DriftMode // what is done when it is changed
	renewed  bool            // not seen in place since the version is new: then it is put right in every mode
	deviates bool            // it is not as it was applied, and is left so
	reported string          // how it deviates
	sighting string          // hash of what was compared last
	preview  string          // what would become of it, when nothing is to change
	replaced string          // the field for which it was deleted, to be created anew

	force   bool
	healing bool                       // was in place before
	delayed bool                       // healed so often that it has to wait
	drifted *unstructured.Unstructured // what it looked like, when it was changed
	heals   healing
	later   *watch.Observation // seen while a request was under way
	recheck bool               // what the agent may touch has changed in that time

	reread reread
}

// key is what it is known by. It is not kept: there may be many objects.
func (o *object) key() inventory.Key { return inventory.KeyOf(o.ref) }

// reread is the schedule of reads of an object that no watch reports.
type reread struct {
	at      time.Time
	backoff backoff.Backoff
	failure string // why the last read failed; "" when it did not, or the object is watched
}

// unwatched reports whether no watch reports the object: its watch does not work, or the object does not name this agent.
func (o *object) unwatched() bool { return o.watch.Failed() || o.unnamed }

// rereadable reports whether an object is in place and no watch would report a change of it.
func (o *object) rereadable() bool {
	return o.phase == phaseInPlace && o.unwatched() && o.resolved
}

// wasReread records the result of a read and schedules the next one.
func (o *object) wasReread(now time.Time, every time.Duration, err error) {
	o.reread.failure = ""
	if err == nil {
		o.reread.backoff = backoff.Backoff{}
	} else if o.watch.Failed() {
		o.reread.failure = "it is not watched and cannot be read: " + err.Error()
	}
	o.reread.at = now.Add(o.reread.backoff.Next(every, 2*every))
}

// inPlace reports whether an object is as desired, as far as is known.
func (o *object) inPlace() bool { return o.phase == phaseInPlace || o.phase == phaseRereading }

// occupiedAt is why an object that was to be deleted waits before it is tried again, or "".
func (o *object) occupiedAt(now time.Time) string {
	if now.Before(o.due) {
		return o.occupied
	}
	return ""
}

func (o *object) busy() bool {
	return o.phase == phaseReading || o.phase == phaseRereading || o.phase == phaseApplying || o.phase == phaseComparing || o.phase == phaseRemoving
}

func (o *object) entry() inventory.Entry {
	return inventory.Entry{ObjectRef: o.ref, Hash: o.applied, Live: o.live, UID: o.uid, Wave: o.place.Wave, Depth: o.place.Depth, Held: o.hold,
		Keep: o.keepMark, Finished: o.finished}
}

// look takes over what a live object says of itself.
func (o *object) look(live *unstructured.Unstructured) {
	o.version = live.GetResourceVersion()
	o.scaler = fieldset.Autoscaler(live)
	if o.manifest == nil || o.scaler != "" && !fieldset.DeclaresReplicas(o.manifest.Object()) {
		o.scaler = ""
	}
	o.health, o.note = health.Of(live)
	o.finished = finishOf(live)
	switch {
	case o.health == fleet.HealthCurrent:
		o.unready = time.Time{}
	case o.unready.IsZero():
		o.unready = time.Now()
	}
}

// outdated reports whether something older than what is known was seen.
func (o *object) outdated(version string) bool {
	if o.version == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(version, o.version)
	// Versions that cannot be compared are looked at: a look too many does no harm.
	return err == nil && order < 0
}

// judged reports whether a live object was looked at before in just that version, and was as it was applied:
// nearly always the answer to an apply, which the watch tells of as well.
func (o *object) judged(live *unstructured.Unstructured) bool {
	return o.phase == phaseInPlace && o.known && !o.deviates && !o.unnamed && o.applied == o.hash &&
		o.version != "" && o.version == live.GetResourceVersion() && o.uid == string(live.GetUID())
}

// shared is fields, or the same as another object of this target has them. Nobody changes them.
func (t *target) shared(fields []byte) []byte {
	if fields == nil {
		return nil
	}
	known, ok := t.shapes[string(fields)]
	if !ok {
		known = fields
		t.shapes[string(fields)] = fields
	}
	return known
}
