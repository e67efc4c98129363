package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/agent"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// testTimeout bounds every wait of a test.
const testTimeout = time.Minute

// testLog is a log that can be read while it is written.
type testLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (d *testLog) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(b)
}

func (d *testLog) count(text string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Count(d.text.String(), text)
}

func (d *testLog) await(t *testing.T, text string, n int) {
	t.Helper()
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if got := d.count(text); got < n {
			return fmt.Errorf("%q was logged %d times, not %d", text, got, n)
		}
		return nil
	})
}

// testSite is a cluster behind a proxy, and a server.
type testSite struct {
	cluster            *testkit.Cluster
	ns, agentNamespace string
	proxy              *apiproxy.Proxy
	memory             *gatewaytest.Memory
	server             *gatewaytest.Server
	enrolled           fleet.Agent
	cfg                agent.Config
	log                *testLog
}

func newTestSite(t *testing.T) *testSite {
	t.Helper()
	c := testkit.SharedCluster(t)
	s := &testSite{cluster: c, ns: c.Namespace(t), agentNamespace: c.Namespace(t), proxy: apiproxy.New(t, c.RESTConfig()), memory: gatewaytest.NewMemory(), log: &testLog{}}
	var token string
	s.enrolled, token = s.memory.Enroll("edge-1")
	s.serve(t, "")
	s.cfg = agent.Config{
		ServerAddress: "grpc://" + s.server.Addr(), TokenFile: write(t, "token", token), Namespace: s.agentNamespace, Replica: "pod-0", OfflineBudget: 1 << 20,
		Log: slog.New(slog.NewTextHandler(s.log, nil)),
		Kubeconfig: write(t, "kubeconfig", fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q}}]
users: [{name: test, user: {}}]
`, s.proxy.Config().Host)),
	}
	return s
}

// serve starts the server.
func (s *testSite) serve(t *testing.T, address string) {
	t.Helper()
	server, err := gatewaytest.Start(s.memory, gatewaytest.Options{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	s.server = server
	t.Cleanup(func() { _ = server.Stop() })
}

// run runs the agent until stop or the end of the test.
func (s *testSite) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, s.cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// set returns a bundle of ConfigMaps, each with its value.
func (s *testSite) set(t *testing.T, maps ...string) *manifest.Set {
	t.Helper()
	var text strings.Builder
	for _, m := range maps {
		name, value, _ := strings.Cut(m, "=")
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {key: %q}\n", name, s.ns, value)
	}
	objects, err := manifest.Parse("test.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, s.ns)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// awaitConfigMaps waits until the namespace contains exactly these ConfigMaps.
func (s *testSite) awaitConfigMaps(t *testing.T, want ...string) {
	t.Helper()
	client := s.cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(s.ns)
	testkit.Eventually(t, testTimeout, func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, item := range list.Items {
			if v, ok, _ := unstructured.NestedString(item.Object, "data", "key"); ok {
				got = append(got, item.GetName()+"="+v)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("the cluster contains %q, want %q", got, want)
		}
		return nil
	})
}

func (s *testSite) awaitSynced(t *testing.T, id fleet.TargetID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := s.memory.AwaitObserved(ctx, id, fleet.SyncSynced); err != nil {
		t.Fatalf("%v: %+v", err, s.memory.Target(id))
	}
}

// covers: D6, O7
func TestAgentContinuesAfterALongAPIServerOutage(t *testing.T) {
	t.Parallel()
	s := newTestSite(t)
	s.run(t)
	target := s.memory.Deploy(s.enrolled, "app", s.set(t, "a=1", "b=1"))
	s.awaitSynced(t, target.ID)
	s.log.await(t, "started leading", 1)

	s.proxy.Do(func(*http.Request) *apiproxy.Fault { return &apiproxy.Fault{Refuse: true} })
	s.proxy.Sever()
	s.log.await(t, "stopped leading", 1)
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if c := s.memory.Connections(); len(c) == 0 || !c[len(c)-1].Standby {
			return errors.New("the server still has it as the leader")
		}
		return nil
	})
	maps := s.cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(s.ns)
	if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"key":"edited"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.memory.Desire(target.ID, s.set(t, "a=1", "b=2", "c=2"), func(*fleet.Desired) {})
	var mu sync.Mutex
	var reread []string
	s.proxy.Do(func(r *http.Request) *apiproxy.Fault {
		list := r.Method == http.MethodGet && !r.URL.Query().Has("watch") && r.URL.Query().Get("limit") != "1" && strings.HasSuffix(r.URL.Path, "/configmaps")
		if list || r.URL.Query().Get("sendInitialEvents") == "true" || strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/"+s.agentNamespace+"/secrets/") && r.Method == http.MethodGet {
			mu.Lock()
			defer mu.Unlock()
			reread = append(reread, r.URL.String())
		}
		return nil
	})
	s.awaitConfigMaps(t, "a=1", "b=2", "c=2")
	s.log.await(t, "started leading", 2)
	s.awaitSynced(t, target.ID)
	mu.Lock()
	defer mu.Unlock()
	if len(reread) > 0 {
		t.Errorf("after the outage the agent has read again:\n%s", strings.Join(reread, "\n"))
	}
}
