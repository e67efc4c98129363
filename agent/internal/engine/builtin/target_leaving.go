package builtin

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// bounds is why a leaving object must not be touched, and why it must not be deleted; zero when it may. They are valid for
// one version of the target and one edition of the settings of the engine.
type bounds struct {
	known           bool
	edition         int
	refusal, beyond fleet.Cause
}

// setBounds determines the bounds of an object, unless they are known. They are determined again right before a change.
func (t *target) setBounds(o *object, edition int) {
	if o.leaving.bounds.known && o.leaving.bounds.edition == edition {
		return
	}
	o.leaving.bounds = bounds{known: true, edition: edition, refusal: t.refusal(o.ref), beyond: t.beyond(o.ref)}
}

// deletable reports whether the plan decides on a leaving object. It does not decide on an object that the agent must
// not touch, that is outside the grant, that an annotation keeps, or that is handed over to another target.
func (o *object) deletable() bool {
	return o.undeletable().IsZero()
}

// undeletable returns why the plan does not decide on a leaving object; zero when it does.
func (o *object) undeletable() fleet.Cause {
	return cmp.Or(o.leaving.bounds.refusal, claimed(o.leaving.claimedBy), o.leaving.handOver, o.leaving.bounds.beyond, o.leaving.keptBy)
}

// claimed returns why an object waits that another target desires; zero when none does. If it were forgotten before that
// target has taken it over, which the label tells, and this agent stopped now, it would have no owner.
func claimed(by fleet.TargetID) fleet.Cause {
	if by == "" {
		return fleet.Cause{}
	}
	return fleet.Cause{Reason: fleet.ReasonHandOverPending, Message: fmt.Sprintf("target %s is about to take it over", by)}
}

// decided reports whether the fate of a leaving object does not depend on how many others leave: it is being deleted, or
// is only deleted when a user confirms it by name.
func (o *object) decided() bool {
	return o.phase == phaseTerminating || o.record.hold != "" || !o.leaving.keptBy.IsZero() || manifest.IsProtected(o.ref)
}

// nextBase counts the objects in place, by which the next change is measured. While anything of the current change is
// undecided its own base stays: what a change adds must not make what it removes look small, neither after a restart nor
// when a newer version arrives in between.
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

// uids has the UIDs of the desired objects, as of one pass.
type uids struct {
	at  time.Time
	set map[string]bool
}

// desiredUIDs returns the UIDs of the desired objects. The map does not change any more.
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

// keepAnnotated keeps an object that has left the source, if its last applied manifest has a keep annotation.
func (t *target) keepAnnotated(o *object) {
	if why := kube.KeptByManifest(o.record.keepAnnotation, t.work.desired.State.Tombstone); !why.IsZero() {
		o.leaving.cause, o.leaving.keptBy = why, why
	}
}
