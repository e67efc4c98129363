package builtin

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/watch"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// A namespace that appears has the objects tried again that failed for it, however long their backoff is.
func TestObjectsAreTriedAgainWhenTheirNamespaceAppears(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	home, name := c.Namespace(t), c.Namespace(t)+"-later"
	statuses := make(reports, 64)
	timing := defaultTiming()
	timing.retryFirst, timing.retryMax = time.Hour, time.Hour
	e, err := newEngine(Config{Namespace: home, REST: c.RESTConfig(), Reporter: statuses, AgentID: fleet.NewAgentID(), Scope: fleet.ScopeCluster, Strict: true}, timing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	objects, err := manifest.Parse("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, name)
	if err != nil {
		t.Fatal(err)
	}
	e.Set(engine.Desired{Target: fleet.NewTargetID(), Tenant: "default", Deployment: "app", Objects: set, State: fleet.Desired{
		Version: fleet.Version{Epoch: 1, Generation: 1}, Digest: set.Digest(), Namespace: name,
	}})
	statuses.await(t, fleet.SyncFailed)
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	client := c.Dynamic(t).Resource(watch.NamespacesResource)
	if _, err := client.Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	statuses.await(t, fleet.SyncSynced)
	if e.watchers.namespaces.Waiting() != 0 {
		t.Error("the namespace is still watched, though nothing waits for it")
	}
}

// reports is a reporter whose statuses can be waited for.
type reports chan engine.Status

func (r reports) Status(s engine.Status)            { r <- s }
func (r reports) Event(fleet.TargetID, fleet.Event) {}

func (r reports) await(t *testing.T, want fleet.SyncState) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case s := <-r:
			if s.Observed.Sync == want {
				return
			}
		case <-limit:
			t.Fatalf("the target is not %s after a minute", want)
		}
	}
}
