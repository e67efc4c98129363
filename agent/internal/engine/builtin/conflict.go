package builtin

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fieldConflict is one field that another manager owns and that an apply would change.
type fieldConflict struct {
	field, manager string
	scale          bool // the manager owns it through the scale subresource
}

// conflictError says that a manifest declares fields which are somebody else's.
type conflictError struct{ conflicts []fieldConflict }

func (e *conflictError) Error() string {
	const limit = 3
	var parts []string
	for i, c := range e.conflicts {
		if i == limit {
			parts = append(parts, fmt.Sprintf("and %d more", len(e.conflicts)-limit))
			break
		}
		parts = append(parts, fmt.Sprintf("%s is managed by %q", c.field, c.manager))
	}
	return "conflict: " + strings.Join(parts, ", ") + "; remove the field from the manifest or from the other manager, or set force: true to take it over"
}

// managerName finds the manager in a cause such as: conflict with "kubectl" using apps/v1.
var managerName = regexp.MustCompile(`^conflict with "([^"]*)"`)

// fieldConflicts reads the conflicting fields out of a refused apply; none when it was refused
// for another reason, such as a UID that no longer fits.
func fieldConflicts(err error) []fieldConflict {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []fieldConflict
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		manager := cause.Message
		if found := managerName.FindStringSubmatch(cause.Message); found != nil {
			manager = found[1]
		}
		scale := strings.Contains(cause.Message, `with subresource "scale"`)
		out = append(out, fieldConflict{field: cause.Field, manager: manager, scale: scale})
	}
	return out
}

// allOurs reports whether every conflicting field is one that we applied before: then somebody has
// edited it, which is drift.
func allOurs(conflicts []fieldConflict, applied fieldSet) bool {
	for _, c := range conflicts {
		if !applied.has(c.field) {
			return false
		}
	}
	return true
}

// wantsReplicas reports whether an autoscaler is among those in conflict.
func wantsReplicas(conflicts []fieldConflict) bool {
	return slices.ContainsFunc(conflicts, func(c fieldConflict) bool {
		return c.field == replicas && c.scale && isAutoscaler(c.manager)
	})
}
