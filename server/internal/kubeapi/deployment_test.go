package kubeapi

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// fakeControl has one deployment.
type fakeControl struct {
	Control
	stored int // calls of ApplyDeployment
}

func (c *fakeControl) ApplyDeployment(context.Context, auth.Principal, string, control.CreateDeployment) error {
	c.stored++
	return nil
}

func (c *fakeControl) OwnedDeployments(context.Context, auth.Principal, string, int) ([]control.OwnedDeployment, error) {
	return []control.OwnedDeployment{{}}, nil
}

// A write of a status may fail after the spec was stored.
//
// covers: K5, K10
func TestALostStatusIsWrittenAgain(t *testing.T) {
	t.Parallel()
	c := &fakeControl{}
	enqueued := 0
	s := &shared{control: c, tenants: newTenants(c, nil), index: newIndex(), enqueue: func(resource) { enqueued++ }}
	cr := v1alpha1.GitOpsDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "app", UID: "uid-1", Generation: 3, Finalizers: []string{v1alpha1.ServerFinalizer},
	}}
	cr.Spec.Destination.Environment = "edge"
	s.tenants.known[cr.UID] = fleet.Tenant{ID: "ten-1", Name: "team"}
	kind, r := &deploymentKind{s}, resource{v1alpha1.KindGitOpsDeployment, types.NamespacedName{Namespace: "team", Name: "app"}}
	for pass := range 3 { // each time as it was read, without the status of the time before
		again := cr.DeepCopy()
		if err := kind.apply(t.Context(), r, again); err != nil {
			t.Fatal(err)
		}
		if pass == 0 {
			continue // the status of a new spec is written in a pass of its own
		}
		if !meta.IsStatusConditionTrue(again.Status.Conditions, v1alpha1.ConditionAccepted) || again.Status.ObservedGeneration != 3 {
			t.Errorf("the status is %+v", again.Status)
		}
	}
	if c.stored != 1 || enqueued != 1 {
		t.Errorf("the spec was stored %d times, and the resource enqueued %d times", c.stored, enqueued)
	}
}

// The cache may be behind a status that the server wrote.
//
// covers: K5, K10
func TestAnotherStatusThanTheWantedOneIsProcessed(t *testing.T) {
	t.Parallel()
	s := &shared{statuses: newStatuses()}
	relevant := (&controllers{shared: s}).notOwnStatus()
	with := func(health string) *v1alpha1.GitOpsDeployment {
		cr := &v1alpha1.GitOpsDeployment{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "app", UID: "uid-1", Finalizers: []string{v1alpha1.ServerFinalizer},
		}}
		cr.Status.Health.Status = health
		return cr
	}
	r := resource{v1alpha1.KindGitOpsDeployment, types.NamespacedName{Namespace: "team", Name: "app"}}
	s.statuses.want(r, with("Stale").Status)
	if relevant.Update(event.UpdateEvent{ObjectOld: with("Healthy"), ObjectNew: with("Stale")}) {
		t.Error("the server processes its own write")
	}
	before := with("Stale")
	before.Finalizers = nil
	if relevant.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: with("Stale")}) {
		t.Error("the server processes a resource again because it set its finalizer")
	}
	if !relevant.Update(event.UpdateEvent{ObjectOld: with("Stale"), ObjectNew: before}) {
		t.Error("the server does not set a finalizer again that somebody removed")
	}
	// The next pass finds Healthy in the cache, which is right, and writes nothing; then the cache gets Stale.
	s.statuses.want(r, with("Healthy").Status)
	if !relevant.Update(event.UpdateEvent{ObjectOld: with("Healthy"), ObjectNew: with("Stale")}) {
		t.Error("a status that is not the wanted one is not processed")
	}
}
