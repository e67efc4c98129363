package rollout

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// consented reports whether a user's edit of the deployment itself is why a target goes from what it was
// to what is wanted: then what it no longer names may be deleted, however much that is. In doubt it is
// false, and what is held back can be confirmed:
//
//	another bundle                      if it is of the commit that was newest when the source was edited
//	the same one, in another namespace  yes: only an edit does that
//	the same one, and pruning is on now yes
//	the same one, and anything else     if the agent has not taken up what was consented to
//
// A rollback, a sync to a named revision and the release of a pin change which tree of the source is
// deployed, as a commit does: no consent. Nor is there any for what an edit brings later than its first
// render, because the deployment was suspended, pinned, manual, or ahead of the server then, or the source could
// not be read or used.
func (st *Reconciler) consented(d fleet.Deployment, was, want fleet.Desired, notTaken bool) bool {
	switch {
	case was.Digest != want.Digest:
		return st.edits[d.ID]
	case was.Namespace != want.Namespace, want.Policy.Prune && !was.Policy.Prune:
		return true
	default:
		return was.Consent && notTaken
	}
}

// editFresh is how long after an edit the commit that is looked at first is taken for the one that was newest
// when it was made. An edit is looked at within seconds; but Git may not answer, or the server be down.
const editFresh = 5 * time.Minute

// NoteEdit is called when a pending spec comes into force as d. If its edit was just before, what the targets are
// given in this step comes of it. Nothing after that does: who edits has seen the commits until then, and not
// those that mend a source which could not be used, see pendingProblem.
func (st *Reconciler) NoteEdit(d fleet.Deployment, p fleet.PendingSpec) {
	fresh := !p.EditedAt.IsZero() && st.planner.cfg.Now().Sub(p.EditedAt) <= editFresh
	st.edits[d.ID] = fresh && !d.Policy.Manual && !d.Pin.Active()
}
