package fleet

import (
	"fmt"
	"slices"
)

// HandOver names objects that have left a target and that another deployment on the same agent wants, or may
// want. The agent keeps them until that deployment has taken them over, until a newer state of the target no
// longer names them, or until a user confirms their deletion.
type HandOver struct {
	Reason Reason
	// To is the deployment that wants the objects, and Deployment its name. Both are empty for
	// ReasonCommitNotEvaluated.
	To         DeploymentID
	Deployment string
	// Repository is set for ReasonCommitNotEvaluated.
	Repository RepositoryID
	// Objects has names as from ObjectRef.String, sorted; nil means every object that left the target.
	Objects []string
}

// Names reports whether h includes an object.
func (h HandOver) Names(object string) bool {
	if h.Objects == nil {
		return true
	}
	_, found := slices.BinarySearch(h.Objects, object)
	return found
}

// Equal reports whether a and b are equal.
func (h HandOver) Equal(o HandOver) bool {
	return h.Reason == o.Reason && h.To == o.To && h.Deployment == o.Deployment && h.Repository == o.Repository &&
		(h.Objects == nil) == (o.Objects == nil) && slices.Equal(h.Objects, o.Objects)
}

// String completes "is kept: …".
func (h HandOver) String() string {
	switch h.Reason {
	case ReasonHandOverPending:
		return fmt.Sprintf("deployment %q wants it and has not taken it over yet", h.Deployment)
	case ReasonNotEvaluated:
		return fmt.Sprintf("deployment %q may want it: its source could not be evaluated at the commit that removes it", h.Deployment)
	case ReasonCommitNotEvaluated:
		return "the commit that removes it has not been evaluated for every deployment yet"
	default:
		return "another deployment may want it"
	}
}
