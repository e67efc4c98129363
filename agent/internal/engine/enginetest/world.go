package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// world is what one case has for itself: a namespace to deploy to, one where its agent lives, an
// agent and a target.
type world struct {
	h       Harness
	ns      string
	agentNS string
	agent   fleet.AgentID
	target  fleet.TargetID
	rec     *recorder
	traffic *traffic
	client  dynamic.Interface
	rest    *rest.Config
	scope   fleet.Scope
	allowed []string
	kinds   fleet.KindFilter
	policy  fleet.Policy
	owner   ownerpolicy.Policy
}

func newWorld(t *testing.T, h Harness) *world {
	w := &world{
		h: h, ns: h.Cluster.Namespace(t), agentNS: h.Cluster.Namespace(t), agent: fleet.NewAgentID(), target: fleet.NewTargetID(),
		rec: newRecorder(), traffic: &traffic{}, client: h.Cluster.Dynamic(t), rest: h.Cluster.RESTConfig(),
		scope: fleet.ScopeCluster, policy: fleet.Policy{Prune: true},
	}
	t.Cleanup(func() { w.rec.reasonsListed(t) })
	t.Cleanup(func() { w.logApplications(t) })
	return w
}

// running is an engine that works.
type running struct {
	engine.Engine
	held []engine.Held
	stop func() // waits until it has stopped
}

// start makes an engine, recovers it and lets it run until stop or the end of the test.
func (w *world) start(t testing.TB) *running {
	t.Helper()
	r, err := w.tryStart(t)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tryStart is start that may fail.
func (w *world) tryStart(t testing.TB) (*running, error) {
	t.Helper()
	cfg := rest.CopyConfig(w.rest)
	cfg.Wrap(w.traffic.wrap)
	e := w.h.New(t, Options{
		Agent: w.agent, Namespace: w.agentNS, Scope: w.scope, Namespaces: w.allowed, Kinds: w.kinds, Owner: w.owner, REST: cfg, Reporter: w.rec,
	})
	held, err := e.Recover(t.Context())
	if err != nil {
		return nil, fmt.Errorf("recovering: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stopped := false
	r := &running{Engine: e, held: held, stop: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("running: %v", err)
		}
	}}
	t.Cleanup(r.stop)
	return r, nil
}

// desired is the state of the world's target at a generation. $NS in the text is its namespace.
func (w *world) desired(t testing.TB, generation int64, text string) engine.Desired {
	t.Helper()
	objects, err := manifest.Parse("test.yaml", []byte(strings.ReplaceAll(text, "$NS", w.ns)))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, w.ns)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Desired{
		Target: w.target, Tenant: "default", Deployment: "app", Objects: set,
		State: fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: generation}, Digest: set.Digest(), Namespace: w.ns, Policy: w.policy,
		},
	}
}

func (w *world) tombstone(generation int64) engine.Desired {
	return engine.Desired{
		Target: w.target, Tenant: "default", Deployment: "app",
		State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: generation}, Namespace: w.ns, Policy: w.policy, Tombstone: true},
	}
}

// sync sets a state and waits until it is Synced.
func (w *world) sync(t testing.TB, e engine.Engine, generation int64, text string) engine.Status {
	t.Helper()
	e.Set(w.desired(t, generation, text))
	return w.rec.settled(t, w.target, generation)
}

// Resources that cases look at.
var (
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	definitions  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func (w *world) get(t testing.TB, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := w.client.Resource(configMaps).Namespace(w.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("reading ConfigMap %s: %v", name, err)
	}
	return obj
}

func (w *world) exists(t testing.TB, name string) bool {
	t.Helper()
	_, err := w.client.Resource(configMaps).Namespace(w.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("reading ConfigMap %s: %v", name, err)
	}
	return err == nil
}

// edit changes a ConfigMap as a person would, under the manager's name.
func (w *world) edit(t testing.TB, manager, name, patch string) {
	t.Helper()
	_, err := w.client.Resource(configMaps).Namespace(w.ns).
		Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		t.Fatalf("editing ConfigMap %s: %v", name, err)
	}
}

func (w *world) delete(t testing.TB, name string) {
	t.Helper()
	if err := w.client.Resource(configMaps).Namespace(w.ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("deleting ConfigMap %s: %v", name, err)
	}
}

// dropLater deletes a cluster-scoped object at the end of the test, if it is there.
func (w *world) dropLater(t testing.TB, resource schema.GroupVersionResource, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err := w.client.Resource(resource).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting %s: %v", name, err)
		}
	})
}

// value reads data.key of a ConfigMap.
func value(obj *unstructured.Unstructured, key string) string {
	v, _, _ := unstructured.NestedString(obj.Object, "data", key)
	return v
}

// configMap is the text of a ConfigMap in the world's namespace with data.key = value.
func configMap(name, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: %q}\n", name, value)
}
