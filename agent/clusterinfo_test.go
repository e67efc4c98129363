package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// apiServer serves discovery documents, unless it is broken, and counts requests.
type apiServer struct {
	groups atomic.Pointer[[]string]
	broken atomic.Bool
	// starting means that it serves requests and is not ready.
	starting atomic.Bool
	asked    atomic.Int64
	// defined adds a CustomResourceDefinition; nil means that watches are forbidden.
	defined chan struct{}
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked.Add(1)
	switch {
	case a.broken.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/version":
		_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
	case r.URL.Path == "/api":
		_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
	case r.URL.Path == "/apis":
		_, _ = fmt.Fprintf(w, `{"kind":"APIGroupList","groups":[{"versions":[{"groupVersion":%s}]}]}`, strings.Join(*a.groups.Load(), `},{"groupVersion":`))
	case r.URL.Path == "/readyz" && a.starting.Load():
		w.WriteHeader(http.StatusInternalServerError)
	case a.defined != nil && strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") && !r.URL.Query().Has("sendInitialEvents"):
		a.serveDefinitions(w, r)
	default: // watches are forbidden for a namespaced agent
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
	}
}

func (a *apiServer) serveDefinitions(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if !r.URL.Query().Has("watch") {
		_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`))
		return
	}
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-a.defined:
			_, _ = w.Write([]byte(`{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x","resourceVersion":"2"}}}` + "\n"))
		}
	}
}

func (a *apiServer) serves(groups ...string) {
	var quoted []string
	for _, group := range groups {
		quoted = append(quoted, strconv.Quote(group))
	}
	a.groups.Store(&quoted)
}

func newTestInfo(t *testing.T, defined chan struct{}) (*apiServer, *clusterInfo) {
	t.Helper()
	a := &apiServer{defined: defined}
	a.serves("apps/v1")
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return a, newClusterInfo(Config{Replica: "r-0", Log: slog.New(slog.DiscardHandler)}, &rest.Config{Host: server.URL})
}

// covers: G8
func TestCapabilitiesAreReadAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	api, i := newTestInfo(t, nil)
	if changed, retry := i.refresh(t.Context()); !changed || retry != 0 {
		t.Fatalf("first read: changed %t, retry in %v", changed, retry)
	}
	if changed, retry := i.refresh(t.Context()); changed || retry != 0 {
		t.Errorf("second read: changed %t, retry in %v", changed, retry)
	}
	known := i.capabilities()
	api.broken.Store(true)
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if changed, retry := i.refresh(t.Context()); changed || retry > want || retry < want/2 {
			t.Errorf("failed read: changed %t, retry in %v, want about %v", changed, retry, want)
		}
	}
	if got := i.hello(t.Context()); got.Capabilities.Hash() != known.Hash() || got.KubeVersion != "v1.36.3" {
		t.Errorf("after a failure Hello is %+v, want the previous capabilities", got)
	}
	for range 40 {
		if _, retry := i.refresh(t.Context()); retry > capabilitiesTTL {
			t.Fatalf("retry in %v", retry)
		}
	}
	api.broken.Store(false)
	api.serves("apps/v1", "batch/v1")
	if changed, retry := i.refresh(t.Context()); !changed || retry != 0 {
		t.Errorf("the API server is available again: changed %t, retry in %v", changed, retry)
	}
	if got := i.capabilities(); !slices.Equal(got.APIVersions, []string{"apps/v1", "batch/v1", "v1"}) {
		t.Errorf("capabilities = %v", got)
	}
}

// covers: G8, A6 (objects that a chart creates only for a kind are not pruned because an API server has just started)
func TestMissingAPIVersionIsConfirmed(t *testing.T) {
	t.Parallel()
	api, i := newTestInfo(t, nil)
	api.serves("apps/v1", "example.com/v1")
	i.refresh(t.Context())
	api.starting.Store(true)
	api.serves("apps/v1")
	if changed, retry := i.refresh(t.Context()); changed || retry == 0 {
		t.Errorf("API server not ready: changed %t, retry in %v", changed, retry)
	}
	api.starting.Store(false)
	api.serves("apps/v1", "new.example.com/v1")
	if changed, retry := i.refresh(t.Context()); !changed || retry <= 0 || retry > confirmAfter {
		t.Errorf("one is missing and one is new: changed %t, retry in %v", changed, retry)
	}
	if got := i.capabilities().APIVersions; !slices.Equal(got, []string{"apps/v1", "example.com/v1", "new.example.com/v1", "v1"}) {
		t.Errorf("capabilities = %v, want the new and the missing API version", got)
	}
	i.missingSince = i.missingSince.Add(-confirmAfter)
	if changed, retry := i.refresh(t.Context()); !changed || retry != 0 || slices.Contains(i.capabilities().APIVersions, "example.com/v1") {
		t.Errorf("still missing: changed %t, retry in %v, %v", changed, retry, i.capabilities())
	}
}

// covers: G8, A6 (a new leader does not send the capabilities that it read as a standby)
func TestNewLeaderReadsCapabilities(t *testing.T) {
	t.Parallel()
	api, i := newTestInfo(t, nil)
	i.hello(t.Context())
	api.serves("apps/v1", "example.com/v1")
	i.invalidate()
	if got := i.hello(t.Context()).Capabilities.APIVersions; !slices.Contains(got, "example.com/v1") {
		t.Errorf("Hello has %v", got)
	}
	api.broken.Store(true)
	i.invalidate()
	if got := i.hello(t.Context()).Capabilities; got.Hash() != "" {
		t.Errorf("Hello has outdated capabilities %v", got)
	}
}

// When the cluster does not answer while the agent connects, the capabilities are read later on the same connection.
//
// covers: G8
func TestFailedReadIsRetriedWithoutReconnect(t *testing.T) {
	t.Parallel()
	api, i := newTestInfo(t, nil)
	api.broken.Store(true)
	if got := i.hello(t.Context()); got.Capabilities.Hash() != "" {
		t.Fatalf("capabilities of a cluster that does not answer: %+v", got.Capabilities)
	}
	for range 5 { // until the delay is long
		i.refresh(t.Context())
	}
	asked := api.asked.Load()
	if i.hello(t.Context()); api.asked.Load() != asked {
		t.Error("connecting again at once reads the cluster again")
	}
	api.broken.Store(false)
	changed := runInfo(t, i)
	await(t, changed)
	if got := i.capabilities(); len(got.APIVersions) != 2 {
		t.Errorf("capabilities = %v", got)
	}
}

// covers: G8
func TestNewDefinitionRefreshesCapabilities(t *testing.T) {
	t.Parallel()
	api, i := newTestInfo(t, make(chan struct{}))
	i.refresh(t.Context())
	api.serves("apps/v1", "example.com/v1")
	changed := runInfo(t, i)
	await(t, changed) // changed before the watch
	api.serves("apps/v1", "example.com/v1", "example.com/v2")
	api.defined <- struct{}{}
	await(t, changed)
	if got := i.capabilities(); !slices.Contains(got.APIVersions, "example.com/v2") {
		t.Errorf("capabilities = %v", got)
	}
}

// runInfo runs i and returns a channel that receives its changes.
func runInfo(t *testing.T, i *clusterInfo) <-chan struct{} {
	t.Helper()
	changed, done := make(chan struct{}, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- i.run(ctx, func() { changed <- struct{}{} }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return changed
}

func await(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("no change was reported")
	}
}

// covers: G8 (a change of the APIs is reported when it happens)
func TestNewKindIsReported(t *testing.T) {
	t.Parallel()
	cluster := testkit.SharedCluster(t)
	group := strings.TrimPrefix(cluster.Namespace(t), "kedge-") + ".example.com"
	i := newClusterInfo(Config{Replica: "r-0", Log: slog.New(slog.DiscardHandler)}, cluster.RESTConfig())
	if i.hello(t.Context()).Capabilities.Hash() == "" {
		t.Fatal("the capabilities are not known")
	}
	changed := runInfo(t, i)
	cluster.Apply(t, fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, group))
	offers := func() bool { return slices.Contains(i.capabilities().APIVersions, group+"/v1/Widget") }
	for !offers() { // others change this cluster too
		await(t, changed)
	}
	cluster.Kubectl(t, "delete", "customresourcedefinition", "widgets."+group)
	for offers() {
		await(t, changed)
	}
}
