package builtin

import "slices"

// phase is what an object of a target waits for. The functions transition and restart are the only ones that change it.
//
// A desired object:
//
//	resolve ──▶ apply ──▶ applying ──▶ inPlace ◀──▶ rereading (by way of verify)
//	   │          ▲          │  │         │
//	   ▼          │          │  └─▶ replacing ──▶ apply
//	verify ◀──▶ reading      ▼
//	   │                   failed ──▶ resolve, verify, apply
//	   └──▶ inPlace, apply, compare, failed
//
//	inPlace ──▶ verify    it may be gone: a read decides
//	inPlace ──▶ apply     drift is corrected
//	inPlace ──▶ compare ──▶ comparing ──▶ compare ──▶ inPlace     drift is only reported
//	resolve, verify, apply ──▶ compare ──▶ comparing ──▶ compare ──▶ compared     dry run
//	any of them without a request ──▶ failed, inPlace     it must not be touched any more; an optional one is left alone
//
// A leaving object:
//
//	leaving ──▶ removing ──▶ leaving ──▶ kept, terminating, or forgotten
//	kept, terminating ──▶ removing, leaving
//	terminating ──▶ kept
//
// A new version restarts every object that has no request under way: it becomes resolve, verify, apply or leaving, or
// stays inPlace.
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
	phaseReplacing                // deleted to be recreated, and not gone yet
	phaseCompare                  // the API server is to say what an apply would change
	phaseComparing                // that request is under way
	phaseCompared                 // the answer is in, and nothing else is to be done
	phaseLeaving                  // not desired any more: to be deleted or kept
	phaseKept                     // not desired any more and kept
	phaseRemoving                 // a request is under way
	phaseTerminating              // deletion was accepted; not gone yet
)

var phaseNames = [...]string{
	"resolve", "verify", "reading", "rereading", "apply", "applying", "inPlace", "failed", "replacing", "compare", "comparing", "compared",
	"leaving", "kept", "removing", "terminating",
}

func (p phase) String() string { return phaseNames[p] }

// busy reports whether a request is under way.
func (p phase) busy() bool {
	switch p {
	case phaseReading, phaseRereading, phaseApplying, phaseComparing, phaseRemoving:
		return true
	}
	return false
}

// transitions has the phases that may follow each phase within one version. A phase may always follow itself.
var transitions = map[phase][]phase{
	phaseResolve:   {phaseVerify, phaseApply, phaseCompared, phaseFailed, phaseInPlace},
	phaseVerify:    {phaseReading, phaseInPlace, phaseApply, phaseCompare, phaseFailed},
	phaseReading:   {phaseVerify},
	phaseRereading: {phaseVerify},
	phaseApply:     {phaseApplying, phaseVerify, phaseCompare, phaseFailed, phaseInPlace},
	phaseApplying:  {phaseInPlace, phaseApply, phaseReplacing, phaseFailed},
	phaseInPlace:   {phaseRereading, phaseVerify, phaseApply, phaseCompare, phaseFailed},
	phaseFailed:    {phaseResolve, phaseVerify, phaseApply, phaseInPlace},
	phaseReplacing: {phaseResolve, phaseVerify, phaseApply, phaseFailed, phaseInPlace},
	phaseCompare:   {phaseComparing, phaseInPlace, phaseCompared, phaseFailed},
	phaseComparing: {phaseCompare},
	phaseCompared:  {phaseCompare, phaseFailed, phaseInPlace},

	phaseLeaving:     {phaseKept, phaseRemoving, phaseTerminating},
	phaseKept:        {phaseLeaving, phaseRemoving},
	phaseRemoving:    {phaseLeaving},
	phaseTerminating: {phaseLeaving, phaseKept, phaseRemoving},
}

// restarts has the phases that an object may get when a new version begins.
var restarts = []phase{phaseResolve, phaseVerify, phaseApply, phaseLeaving}

// transition changes the phase of an object within one version.
func (t *target) transition(o *object, to phase) {
	if to != o.phase && !slices.Contains(transitions[o.phase], to) {
		t.refuseTransition(o, to)
		return
	}
	o.phase = to
}

// restart changes the phase of an object when a new version begins.
func (t *target) restart(o *object, to phase) {
	if o.phase.busy() || !slices.Contains(restarts, to) {
		t.refuseTransition(o, to)
		return
	}
	o.phase = to
}

// refuseTransition reports a transition that the diagram does not have: a bug. The object stays as it is.
func (t *target) refuseTransition(o *object, to phase) {
	t.engine.metrics.countRefusedTransition()
	t.log.Error("refused a phase transition that must not happen", "object", o.ref.String(), "from", o.phase.String(), "to", to.String())
	if t.engine.strict {
		panic("refused the transition of " + o.ref.String() + " from " + o.phase.String() + " to " + to.String())
	}
}
