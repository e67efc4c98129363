package fleet

import (
	"fmt"
	"slices"
)

// HandOverReason says why an object that has left a target is not deleted yet.
type HandOverReason string

// The reasons of a HandOver.
const (
	// HandOverNotTaken: another deployment on the agent wants the object and does not have it yet.
	HandOverNotTaken HandOverReason = "NotTaken"
	// HandOverNotEvaluated: another deployment on the agent may want the object; its source could not be
	// evaluated at the commit that removes it.
	HandOverNotEvaluated HandOverReason = "NotEvaluated"
	// HandOverCommitNotEvaluated: the commit that removes the object has not been evaluated for every
	// deployment of its repository yet.
	HandOverCommitNotEvaluated HandOverReason = "CommitNotEvaluated"
)

// HandOver names objects that have left a target and that another deployment on the same agent wants, or may
// want. The agent keeps them until that deployment has taken them over, until a newer state of the target no
// longer names them, or until a user confirms their deletion.
type HandOver struct {
	Reason HandOverReason
	// To is the deployment that wants the objects, and Deployment its name. Both are empty for
	// HandOverCommitNotEvaluated.
	To         DeploymentID
	Deployment string
	// Repository is set for HandOverCommitNotEvaluated.
	Repository RepositoryID
	// Objects names them as ObjectRef.String does, sorted; nil means every object that has left the target.
	Objects []string
}

// Names reports whether h is about an object.
func (h HandOver) Names(object string) bool {
	if h.Objects == nil {
		return true
	}
	_, found := slices.BinarySearch(h.Objects, object)
	return found
}

// Equal reports whether two are the same.
func (h HandOver) Equal(o HandOver) bool {
	return h.Reason == o.Reason && h.To == o.To && h.Deployment == o.Deployment && h.Repository == o.Repository &&
		(h.Objects == nil) == (o.Objects == nil) && slices.Equal(h.Objects, o.Objects)
}

// String completes "is kept: …".
func (h HandOver) String() string {
	switch h.Reason {
	case HandOverNotTaken:
		return fmt.Sprintf("deployment %q wants it and has not taken it over yet", h.Deployment)
	case HandOverNotEvaluated:
		return fmt.Sprintf("deployment %q may want it: its source could not be evaluated at the commit that removes it", h.Deployment)
	case HandOverCommitNotEvaluated:
		return "the commit that removes it has not been evaluated for every deployment yet"
	default:
		return "another deployment may want it"
	}
}
