package rollout

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// consented reports whether a user's edit of the deployment itself is why a target goes from was to want: then
// objects that it no longer names may be deleted, in any number. In doubt it is false, and held objects can be
// confirmed:
//
//	another bundle                      if it is of the commit that was newest when the source was edited
//	the same one, in another namespace  yes: only an edit does that
//	the same one, and pruning is on now yes
//	the same one, and anything else     if the agent has not applied what was consented to
//
// A rollback, a sync to a specified revision, and the release of a pin change which tree of the source is
// deployed, like a commit: no consent. There is none either for results of an edit later than its first render,
// because the deployment was suspended, pinned, manual, or ahead of the server then, or the source could not be
// read or used.
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

// editFresh is how long after an edit the first evaluated commit counts as the one that was newest at the edit.
// An edit is evaluated within seconds; but Git may not respond, or the server may be down.
const editFresh = 5 * time.Minute

// NoteEdit is called when a pending spec takes effect as d. If its edit was just before, the new states of the
// targets in this step result from it. Nothing later does: the user has seen the commits until the edit, and
// not those that fix an unusable source, see pendingProblem.
func (st *Reconciler) NoteEdit(d fleet.Deployment, p fleet.PendingSpec) {
	fresh := !p.EditedAt.IsZero() && st.planner.cfg.Now().Sub(p.EditedAt) <= editFresh
	st.edits[d.ID] = fresh && !d.Policy.Manual && !d.Pin.Active()
}
