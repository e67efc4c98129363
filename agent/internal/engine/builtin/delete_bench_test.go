package builtin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// void answers as an API server that has nothing and keeps nothing, at once: what is measured before it is
// the engine alone.
type void struct{}

func (void) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body := http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	switch {
	case r.URL.Path == "/api/v1":
		code, body = http.StatusOK, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["get","list","watch","patch","delete"]}]}`
	case r.URL.Query().Has("watch"):
		<-r.Context().Done()
		return nil, r.Context().Err()
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		var object map[string]any
		_ = json.NewDecoder(r.Body).Decode(&object)
		object["metadata"].(map[string]any)["resourceVersion"] = "1"
		written, _ := json.Marshal(object)
		code, body = http.StatusOK, string(written)
	}
	return &http.Response{
		StatusCode: code, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// ends tells when a target was deleted.
type ends chan struct{}

func (e ends) Event(fleet.TargetID, fleet.Event) {}
func (e ends) Status(s engine.Status) {
	if s.Observed.Sync == fleet.SyncDeleted {
		e <- struct{}{}
	}
}

// BenchmarkDeletion is all that the engine does to delete a deployment, without what the API server does. It
// is to take the same time per object, however many there are.
func BenchmarkDeletion(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				done := make(ends, 1)
				e, err := New(Config{
					Namespace: "own", REST: &rest.Config{Host: "http://cluster.test", Transport: void{}}, Reporter: done, AgentID: "agent", Scope: fleet.ScopeCluster,
				})
				if err != nil {
					b.Fatal(err)
				}
				e.recovered = true
				book := e.store.New("agent", "target")
				rec := inventory.Record{Target: "target", Tenant: "t", Deployment: "d", Version: fleet.Version{Epoch: 1, Generation: 1}, Entries: map[inventory.Key]inventory.Entry{}}
				for i := range n {
					ref := fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("m%d", i)}
					rec.Entries[inventory.KeyOf(ref)] = inventory.Entry{ObjectRef: ref, Hash: "h", Live: "l", UID: fmt.Sprint(i)}
				}
				if err := book.Save(b.Context(), rec); err != nil {
					b.Fatal(err)
				}
				e.past.inventories["target"] = book
				go func() { _ = e.Run(b.Context()) }()
				e.Set(engine.Desired{Target: "target", Tenant: "t", Deployment: "d", State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Tombstone: true}})
				<-done
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/object")
		})
	}
}
