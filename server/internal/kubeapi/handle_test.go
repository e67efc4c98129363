package kubeapi

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kedge-dev/kedge/api/v1alpha1"
)

// fakeCache has one GitOpsDeployment.
type fakeCache struct {
	cache.Cache
	live *v1alpha1.GitOpsDeployment
}

func (c *fakeCache) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.live.DeepCopyInto(o.(*v1alpha1.GitOpsDeployment))
	return nil
}

// A pass has read the status Healthy. Meanwhile, the cache gets the status Stale, which the pass before it wrote: its event is
// dropped, because it is the status that the server wants. Then the pass finds that Healthy is correct, and has nothing to
// write. The resource must be processed again, or it stays Stale.
//
// covers: K10
func TestAStatusThatComesDuringAPassIsCorrected(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	with := func(health string) *v1alpha1.GitOpsDeployment {
		return &v1alpha1.GitOpsDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "app", UID: "1", Finalizers: []string{v1alpha1.ServerFinalizer}},
			Status:     v1alpha1.GitOpsDeploymentStatus{Health: v1alpha1.HealthStatus{Status: health}},
		}
	}
	for _, test := range []struct {
		reason, arrives string
		again           int
	}{
		{"nothing arrives", "", 0},
		{"the status that was wanted before arrives", "Stale", 1},
	} {
		live := &fakeCache{live: with("Healthy")}
		again := 0
		s := &shared{
			index: newIndex(), statuses: newStatuses(), enqueue: func(resource) { again++ },
			cached: &caches{scheme: scheme, byKind: map[string]cache.Cache{v1alpha1.KindGitOpsDeployment: live}},
		}
		r := resource{v1alpha1.KindGitOpsDeployment, types.NamespacedName{Namespace: "a", Name: "app"}}
		s.index.put(r, entry{uid: "1"})
		s.statuses.want(r, with("Stale").Status) // of the pass before
		_, err := handle(t.Context(), s, r, actions[*v1alpha1.GitOpsDeployment]{
			apply: func(context.Context, resource, *v1alpha1.GitOpsDeployment) error {
				if test.arrives != "" {
					if (&controllers{shared: s}).notOwnStatus().Update(event.UpdateEvent{ObjectOld: live.live, ObjectNew: with(test.arrives)}) {
						t.Error("the event is not dropped: the test shows nothing")
					}
					live.live = with(test.arrives)
				}
				return nil
			},
			status: func(cr *v1alpha1.GitOpsDeployment) any { return cr.Status },
		})
		if err != nil || again != test.again {
			t.Errorf("%s: it is processed again %d times, want %d: %v", test.reason, again, test.again, err)
		}
	}
}
