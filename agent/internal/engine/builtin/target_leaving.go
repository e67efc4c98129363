package builtin

import (
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// bounds is why an object that is to go must not be touched, and why it must not be deleted, each "" when it
// may. They hold for one version of the target, and one edition of the settings of the engine.
type bounds struct {
	known           bool
	edition         int
	refusal, beyond string
}

// setBounds finds out the bounds of an object, unless they are known. They are asked for anew just before
// anything is done about it.
func (t *target) setBounds(o *object, edition int) {
	if o.leaving.bounds.known && o.leaving.bounds.edition == edition {
		return
	}
	o.leaving.bounds = bounds{known: true, edition: edition, refusal: t.refusal(o.ref), beyond: t.beyond(o.ref)}
}

// deletable reports whether the plan decides on an object that is no longer desired. It does not on what the agent
// must not touch, on what is beyond the grant, on what its annotation keeps (a change of that is seen by the
// watch), and on what is handed over to another target, or waits for that: no deletion, whatever the number.
func (o *object) deletable() bool {
	return o.leaving.bounds.refusal == "" && o.leaving.bounds.beyond == "" && o.leaving.keptBy == "" && o.leaving.claimedBy == "" && o.leaving.handOver == ""
}

// decided reports whether what becomes of an object that is no longer desired does not depend on how many
// others there are: it is on its way out, or is only deleted when it is confirmed by name.
func (o *object) decided() bool {
	return o.phase == phaseTerminating || o.record.hold != "" || o.leaving.keptBy != "" || manifest.IsProtected(o.ref)
}

// nextBase counts what is in place, as the measure of the next change. While anything of this one is
// undecided, its own measure stays: what a change adds must not make what it removes look small,
// neither after a restart nor when a newer version arrives in the middle.
func (t *target) nextBase() int {
	n := 0
	for _, o := range t.order {
		if o.leaving != nil && !o.decided() {
			return t.inv.base
		}
		if o.record.listed && o.record.uid != "" {
			n++
		}
	}
	return n
}

// uids is what the desired objects of a target are called in the cluster, as of one round.
type uids struct {
	at  time.Time
	set map[string]bool
}

// desiredUIDs returns the UIDs of what is desired. The map does not change any more.
func (t *target) desiredUIDs() map[string]bool {
	if t.cache.uids.set == nil || !t.cache.uids.at.Equal(t.now) {
		t.cache.uids = uids{t.now, map[string]bool{}}
		for _, o := range t.order {
			if o.leaving == nil && o.record.uid != "" {
				t.cache.uids.set[o.record.uid] = true
			}
		}
	}
	return t.cache.uids.set
}

// keepAnnotated keeps an object that has left the source, if its last applied manifest asks for that.
func (t *target) keepAnnotated(o *object) {
	if why := kube.KeptByManifest(o.record.keepAnnotation, t.work.desired.State.Tombstone); why != "" {
		o.leaving.reason, o.leaving.keptBy = why, why
	}
}
