package argocd_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	argocdtest "github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// An AppProject does not stay because one request failed: neither if its Application was never created, nor if its own
// deletion failed. The agent does not restart in between.
// covers: E1, E3
func TestProjectsAreDeletedAfterErrors(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	argo := argocdtest.Start(t, argocdtest.Config{Cluster: c, Namespace: c.Namespace(t)})
	for _, test := range []struct {
		name, method, resource string
		fails                  int64 // so many requests
		created                bool  // the Application exists before the deletion
	}{
		{name: "the Application cannot be created", method: http.MethodPost, resource: "/applications", fails: 1 << 40},
		{name: "the deletion of the project fails", method: http.MethodDelete, resource: "/appprojects/", fails: 2, created: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, argo)
			var failed atomic.Int64
			w.wrap = func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if r.Method != test.method || !strings.Contains(r.URL.Path, test.resource) || failed.Load() >= test.fails {
						return next.RoundTrip(r)
					}
					failed.Add(1)
					const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"injected","reason":"InternalError","code":500}`
					return &http.Response{
						StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(status)), Request: r,
					}, nil
				})
			}
			e := w.start()
			e.Set(w.desired(w.push(map[string]string{"a.yaml": configMap("a", "1")})))
			w.await("the first result", func(s engine.Status) bool {
				return s.Observed.Sync == fleet.SyncSynced || !test.created && failed.Load() > 0 && s.Observed.Sync == fleet.SyncFailed
			})
			if w.projects() == "" {
				t.Error("there is no project to delete")
			}
			e.Set(w.tombstone())
			w.await("Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
			w.eventually(func() error {
				if w.projects() != "" {
					return errStill
				}
				return nil
			})
			if failed.Load() == 0 {
				t.Error("no request failed")
			}
		})
	}
}

// projects returns the names of the AppProjects of the agent.
func (w *world) projects() string {
	w.Helper()
	return w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "appprojects", "-l", "kedge.dev/agent="+string(w.agent), "-o", "name")
}
