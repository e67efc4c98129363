package kubeapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

const (
	// maxResources limits the objects in a status: an object of Kubernetes has at most 1.5 MiB.
	maxResources = 500
	maxHistory   = 10
)

// healthWords are the words of the original GitOps Service, and of Argo CD, for the health of objects.
var healthWords = map[fleet.Health]string{
	fleet.HealthCurrent: "Healthy", fleet.HealthInProgress: "Progressing", fleet.HealthTerminating: "Progressing", fleet.HealthFailed: "Degraded",
	fleet.HealthNotFound: "Missing", fleet.HealthStale: "Stale", fleet.HealthUnknown: "Unknown",
}

func healthWord(h fleet.Health) string { return cmp.Or(healthWords[h], "Unknown") }

// deploymentStatus converts the state of a deployment.
func deploymentStatus(cr *v1alpha1.GitOpsDeployment, d control.OwnedDeployment) {
	st := &cr.Status
	for _, c := range d.Conditions() {
		setAt(&st.Conditions, cr.Generation, c.Type, metav1.ConditionStatus(c.Status), c.Cause, c.LastTransition)
	}
	if d.Held.IsZero() {
		meta.RemoveStatusCondition(&st.Conditions, fleet.ConditionHeld)
	}
	st.Sync = v1alpha1.SyncStatus{Status: string(d.Sync), Revision: d.Running}
	st.Health = v1alpha1.HealthStatus{Status: healthWord(d.Health), Message: d.Message}
	st.Resources, st.ResourceCount = resourcesOf(d.DeploymentView)
	inForce := d.Deployment
	if d.InForce != nil {
		inForce = *d.InForce
	}
	st.ReconciledState = &v1alpha1.ReconciledState{
		Source:      v1alpha1.ReconciledSource{RepoURL: inForce.Source.RepoURL, Path: inForce.Source.Path, Branch: inForce.Source.Revision},
		Destination: v1alpha1.ReconciledDestination{Name: inForce.Environment, Namespace: inForce.Namespace},
	}
	st.History, st.OperationState = historyOf(d.Revisions), operationOf(d.Run)
}

// deletionStatus tells what is left of a deployment that is being deleted.
func deletionStatus(cr *v1alpha1.GitOpsDeployment, view control.DeploymentView) {
	cr.Status.Resources, cr.Status.ResourceCount = resourcesOf(view)
	set(&cr.Status.Conditions, cr.Generation, v1alpha1.ConditionDeleted, metav1.ConditionFalse, deletionCause(view))
}

func deletionCause(view control.DeploymentView) fleet.Cause {
	if n := view.Counts.HeldPrunes; n > 0 && !view.DeletedAt.IsZero() {
		return fleet.Cause{Reason: fleet.ReasonDeletionHeld, Message: heldMessage(view, n)}
	}
	return fleet.Cause{Reason: fleet.ReasonDeleting, Message: cmp.Or(view.Message, "the agents have not yet deleted the objects")}
}

// heldMessage tells which objects are held, and what ends that.
func heldMessage(view control.DeploymentView, held int) string {
	return fmt.Sprintf("%d objects stay until you confirm their deletion: %s; to delete them, run kedge deploy confirm-prune %s OBJECT… in the tenant of this namespace; "+
		"to keep them unmanaged, remove the finalizer %s", held, heldObjects(view, held), view.Name, v1alpha1.ResourcesFinalizer)
}

// heldObjects names the first held objects. A user may have confirmed one that cannot be deleted yet, so each other reason
// than its kind is told.
func heldObjects(view control.DeploymentView, held int) string {
	const most = 10
	var out []string
	for _, t := range view.Targets {
		for _, o := range t.Objects {
			if o.Sync != fleet.SyncHeld || len(out) == most {
				continue
			}
			name := o.ObjectRef.String()
			if o.Reason != fleet.ReasonProtectedKind {
				name += " (" + o.Message + ")"
			}
			out = append(out, name)
		}
	}
	if more := held - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// resourcesOf returns the objects of all targets, those with problems first, and their number.
func resourcesOf(view control.DeploymentView) ([]v1alpha1.ResourceStatus, int) {
	var out []v1alpha1.ResourceStatus
	for _, t := range view.Targets {
		agent := ""
		if view.Counts.Targets > 1 {
			agent = t.AgentName
		}
		for _, o := range t.Objects {
			out = append(out, v1alpha1.ResourceStatus{
				Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Agent: agent,
				Status: string(o.Sync), Reason: string(o.Reason), Health: v1alpha1.HealthStatus{Status: healthWord(o.Health), Message: o.Message},
			})
		}
	}
	slices.SortStableFunc(out, func(a, b v1alpha1.ResourceStatus) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Agent, b.Agent))
	})
	return out[:min(len(out), maxResources)], len(out)
}

// rank orders objects by problem.
func rank(r v1alpha1.ResourceStatus) int {
	switch {
	case r.Status == string(fleet.SyncFailed) || r.Health.Status == "Degraded":
		return 0
	case r.Status != string(fleet.SyncSynced) || r.Health.Status != "Healthy":
		return 1
	}
	return 2
}

func historyOf(revisions []fleet.Revision) []v1alpha1.RevisionHistory {
	var out []v1alpha1.RevisionHistory
	for _, r := range revisions {
		out = append(out, v1alpha1.RevisionHistory{ID: r.Seq, Revision: r.Commit, RenderedAt: timeOf(r.RenderedAt)})
	}
	return out
}

func operationOf(r *fleet.SyncRun) *v1alpha1.OperationState {
	if r == nil {
		return nil
	}
	return &v1alpha1.OperationState{
		Phase: string(r.Phase), Message: r.Message, Revision: cmp.Or(r.Commit, r.Revision), StartedAt: timeOf(r.StartedAt), FinishedAt: timeOf(r.FinishedAt),
	}
}

// timeOf converts a time to the precision of Kubernetes; nil if it is zero.
func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.Truncate(time.Second)))
}
