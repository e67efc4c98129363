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

// apiServer answers for what it serves, unless it is broken, and counts what it is asked.
type apiServer struct {
	groups atomic.Pointer[[]string]
	broken atomic.Bool
	// starting says that it answers and is not ready.
	starting atomic.Bool
	asked    atomic.Int64
	// defined is of definitions that are made; nil means that they may not be watched.
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
	default: // a namespaced agent may not watch anything here
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

func introduce(t *testing.T, defined chan struct{}) (*apiServer, *introduction) {
	t.Helper()
	a := &apiServer{defined: defined}
	a.serves("apps/v1")
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return a, newIntroduction(Config{Replica: "r-0", Log: slog.New(slog.DiscardHandler)}, &rest.Config{Host: server.URL})
}

// covers: G8
func TestWhatTheClusterOffersIsReadAgainSoonAfterAFailure(t *testing.T) {
	t.Parallel()
	api, i := introduce(t, nil)
	if changed, again := i.look(t.Context()); !changed || again != 0 {
		t.Fatalf("the first look: changed %t, again in %v", changed, again)
	}
	if changed, again := i.look(t.Context()); changed || again != 0 {
		t.Errorf("the same once more: changed %t, again in %v", changed, again)
	}
	known := i.capabilities()
	api.broken.Store(true)
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if changed, again := i.look(t.Context()); changed || again > want || again < want/2 {
			t.Errorf("a failure: changed %t, again in %v, want about %v", changed, again, want)
		}
	}
	if got := i.hello(t.Context()); got.Capabilities.Hash() != known.Hash() || got.KubeVersion != "v1.36.3" {
		t.Errorf("after a failure the agent says %+v, want what it knew", got)
	}
	for range 40 {
		if _, again := i.look(t.Context()); again > offersLife {
			t.Fatalf("again in %v", again)
		}
	}
	api.broken.Store(false)
	api.serves("apps/v1", "batch/v1")
	if changed, again := i.look(t.Context()); !changed || again != 0 {
		t.Errorf("the API server is back: changed %t, again in %v", changed, again)
	}
	if got := i.capabilities(); !slices.Equal(got.APIVersions, []string{"apps/v1", "batch/v1", "v1"}) {
		t.Errorf("it offers %v", got)
	}
}

// covers: G8, A6 (objects that a chart guards by a kind are not pruned because an API server has just started)
func TestWhatIsMissingIsBelievedLater(t *testing.T) {
	t.Parallel()
	api, i := introduce(t, nil)
	api.serves("apps/v1", "example.com/v1")
	i.look(t.Context())
	api.starting.Store(true)
	api.serves("apps/v1")
	if changed, again := i.look(t.Context()); changed || again == 0 {
		t.Errorf("an API server that is not ready: changed %t, again in %v", changed, again)
	}
	api.starting.Store(false)
	api.serves("apps/v1", "new.example.com/v1")
	if changed, again := i.look(t.Context()); !changed || again <= 0 || again > lookOnceMore {
		t.Errorf("one is missing and one is new: changed %t, again in %v", changed, again)
	}
	if got := i.capabilities().APIVersions; !slices.Equal(got, []string{"apps/v1", "example.com/v1", "new.example.com/v1", "v1"}) {
		t.Errorf("it offers %v, want what is new and what is missing", got)
	}
	i.lostAt = i.lostAt.Add(-lookOnceMore)
	if changed, again := i.look(t.Context()); !changed || again != 0 || slices.Contains(i.capabilities().APIVersions, "example.com/v1") {
		t.Errorf("it is still missing: changed %t, again in %v, %v", changed, again, i.capabilities())
	}
}

// covers: G8, A6 (a replica that takes over does not tell what it knew when it began to stand by)
func TestWhoTakesOverLooksAnew(t *testing.T) {
	t.Parallel()
	api, i := introduce(t, nil)
	i.hello(t.Context())
	api.serves("apps/v1", "example.com/v1")
	i.forget()
	if got := i.hello(t.Context()).Capabilities.APIVersions; !slices.Contains(got, "example.com/v1") {
		t.Errorf("it tells of %v", got)
	}
	api.broken.Store(true)
	i.forget()
	if got := i.hello(t.Context()).Capabilities; got.Hash() != "" {
		t.Errorf("it tells of %v, which is old", got)
	}
}

// A connection that finds the cluster unable to answer does not leave it at that until the next one.
//
// covers: G8
func TestAFailureWhileConnectingIsMadeGoodWithoutAnotherConnection(t *testing.T) {
	t.Parallel()
	api, i := introduce(t, nil)
	api.broken.Store(true)
	if got := i.hello(t.Context()); got.Capabilities.Hash() != "" {
		t.Fatalf("it knows %+v of a cluster that does not answer", got.Capabilities)
	}
	for range 5 { // until the next try is far away
		i.look(t.Context())
	}
	asked := api.asked.Load()
	if i.hello(t.Context()); api.asked.Load() != asked {
		t.Error("connecting again at once asks the cluster again")
	}
	api.broken.Store(false)
	changed := runs(t, i)
	await(t, changed)
	if got := i.capabilities(); len(got.APIVersions) != 2 {
		t.Errorf("it offers %v", got)
	}
}

// covers: G8
func TestADefinitionIsAnOccasionToLook(t *testing.T) {
	t.Parallel()
	api, i := introduce(t, make(chan struct{}))
	i.look(t.Context())
	api.serves("apps/v1", "example.com/v1")
	changed := runs(t, i)
	await(t, changed) // it has changed before it was watched
	api.serves("apps/v1", "example.com/v1", "example.com/v2")
	api.defined <- struct{}{}
	await(t, changed)
	if got := i.capabilities(); !slices.Contains(got.APIVersions, "example.com/v2") {
		t.Errorf("it offers %v", got)
	}
}

// runs is told of every change.
func runs(t *testing.T, i *introduction) <-chan struct{} {
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
		t.Fatal("nobody was told that the cluster offers something else")
	}
}

// covers: G8 (a change of the APIs is told of when it happens)
func TestANewKindIsToldOf(t *testing.T) {
	t.Parallel()
	cluster := testkit.SharedCluster(t)
	group := strings.TrimPrefix(cluster.Namespace(t), "kedge-") + ".example.com"
	i := newIntroduction(Config{Replica: "r-0", Log: slog.New(slog.DiscardHandler)}, cluster.RESTConfig())
	if i.hello(t.Context()).Capabilities.Hash() == "" {
		t.Fatal("it is not known what the cluster offers")
	}
	changed := runs(t, i)
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
