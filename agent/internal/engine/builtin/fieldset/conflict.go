package fieldset

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conflict is one field that another manager owns and that an apply would change.
type Conflict struct {
	Field, Manager string
	scale          bool // the manager owns it through the scale subresource
}

// ConflictError is an apply that was refused because other managers own fields that the manifest declares.
type ConflictError struct{ Conflicts []Conflict }

func (e *ConflictError) Error() string {
	const limit = 3
	var parts []string
	for i, c := range e.Conflicts {
		if i == limit {
			parts = append(parts, fmt.Sprintf("and %d more", len(e.Conflicts)-limit))
			break
		}
		parts = append(parts, fmt.Sprintf("%s is managed by %q", c.Field, c.Manager))
	}
	return "conflict: " + strings.Join(parts, ", ") + "; remove the field from the manifest or from the other manager, or set force: true to take it over"
}

// managerName finds the manager in a cause such as: conflict with "kubectl" using apps/v1.
var managerName = regexp.MustCompile(`^conflict with "([^"]*)"`)

// ConflictsOf reads the conflicting fields out of a refused apply; none when it was refused
// for another reason, such as a UID that no longer fits.
func ConflictsOf(err error) []Conflict {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []Conflict
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		manager := cause.Message
		if found := managerName.FindStringSubmatch(cause.Message); found != nil {
			manager = found[1]
		}
		scale := strings.Contains(cause.Message, `with subresource "scale"`)
		out = append(out, Conflict{Field: cause.Field, Manager: manager, scale: scale})
	}
	return out
}

// AllIn reports whether every conflicting field is in applied: then somebody edited a field that Kedge applied before,
// which is drift.
func AllIn(conflicts []Conflict, applied Set) bool {
	for _, c := range conflicts {
		if !applied.has(c.Field) {
			return false
		}
	}
	return true
}

// CompletedBy reports whether the conflicting fields together with the fields that Kedge still owns are the fields that it
// applied last, whose Names.Hash is applied. Then others have changed fields that Kedge applied before, which is drift. An
// edit takes the ownership of a field away, so after a restart only the hash shows who had it.
func CompletedBy(owned Set, conflicts []Conflict, applied string) bool {
	if applied == "" {
		return false
	}
	names := owned.Names()
	for _, c := range conflicts {
		names = append(names, c.Field)
	}
	return names.Hash() == applied
}

// HasAutoscaler reports whether one of the conflicts is about replicas that an autoscaler set.
func HasAutoscaler(conflicts []Conflict) bool {
	return slices.ContainsFunc(conflicts, func(c Conflict) bool {
		return c.Field == replicas && c.scale && isAutoscaler(c.Manager)
	})
}
