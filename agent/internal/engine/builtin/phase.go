package builtin

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
	phaseReplacing                // deleted to be recreated, and not gone yet
	phaseCompare                  // the API server is to say what an apply would change
	phaseComparing                // that request is under way
	phaseCompared                 // the answer is in, and nothing else is to be done
	phaseLeaving                  // not desired any more: to be deleted or kept
	phaseKept                     // not desired any more and kept
	phaseRemoving                 // a request is under way
	phaseTerminating              // deletion was accepted; not gone yet
)
