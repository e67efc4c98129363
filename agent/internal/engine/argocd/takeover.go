package argocd

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// unclaimed looks once for the Application of the target that an earlier agent had, and takes it over: when an agent is
// enrolled again, the server gives it the targets of the earlier one. IDs of targets are unique everywhere, so that only the
// label of the agent differs. It returns true if the pass ends with the outcome.
func (t *target) unclaimed(ctx context.Context, out *outcome) bool {
	if t.looked {
		return false
	}
	name := applicationName(t.id)
	found, err := t.engine.applications.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		t.looked = true
		return false
	}
	if err != nil {
		*out = t.writeFailed(fmt.Errorf("reading the Application: %w", err))
		return true
	}
	labels := found.GetLabels()
	if labels[labelTarget] != string(t.id) || labels[labelManagedBy] != managedBy || labels[labelAgent] == "" {
		t.looked = true
		return false
	}
	if labels[labelAgent] != string(t.engine.config().agent) {
		setLabel(found, labelAgent, string(t.engine.config().agent))
		if found, err = t.engine.applications.Update(ctx, found, metav1.UpdateOptions{FieldManager: managedBy}); err != nil {
			*out = t.writeFailed(fmt.Errorf("taking the Application over from an earlier agent: %w", err))
			return true
		}
	}
	t.looked = true
	t.engine.cache.stored(0, found)
	t.wake.Set()
	out.created = true
	out.status = syncing(fleet.ReasonArgoCDNotReconciled, "the Application of an earlier agent was taken over")
	return true
}
