package argocd_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	argocdtest "github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// crash fails every request from a write on: the write itself is lost, or only its answer.
type crash struct {
	mu      sync.Mutex
	at      int  // the write that fails; 0 never
	arrives bool // the write reaches the API server
	writes  int
	crashed chan struct{}
}

var errCrash = errors.New("the agent has crashed")

func (c *crash) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		write := r.Method != http.MethodGet
		c.mu.Lock()
		if write {
			c.writes++
		}
		dead := c.at > 0 && c.writes >= c.at
		now := write && c.writes == c.at
		c.mu.Unlock()
		if !dead {
			return next.RoundTrip(r)
		}
		if now {
			if c.arrives {
				if answer, err := next.RoundTrip(r); err == nil {
					_ = answer.Body.Close()
				}
			}
			close(c.crashed)
		}
		return nil, errCrash
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// crashesAtEveryWrite: a deployment is created, loses an object, and is deleted. The agent crashes at each write of this in turn, before and
// after the write arrives. Nothing is deleted that stays, and everything ends as without a crash.
// covers: E1, E3
func crashesAtEveryWrite(t *testing.T, argo *argocdtest.Instance) {
	// The writes without a crash are: project, Application, end of the first hold, Application with the second commit, prune, end,
	// delete, deletion of the Application, deletion of the project. The end of a hold can be one write with the change after it.
	const writes, atLeast = 9, 7
	for at := 1; at <= writes+1; at++ {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, arrives %v", at, arrives), func(t *testing.T) {
				t.Parallel()
				c := &crash{at: at, arrives: arrives, crashed: make(chan struct{})}
				crashAt(newWorld(t, argo), c)
				select {
				case <-c.crashed:
				default:
					if at <= atLeast {
						t.Error("there was no such write")
					}
				}
			})
		}
	}
}

func crashAt(w *world, c *crash) {
	first := w.push(map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1"), "claim.yaml": claim})
	second := w.push(map[string]string{"b.yaml": ""})
	w.wrap = c.wrap
	e := w.start()
	restart := func() {
		e.stop()
		w.wrap = nil
		e = w.start()
	}
	// step sets a state until it is reached. After the crash another agent continues.
	step := func(d engine.Desired, what string, ok func(engine.Status) bool) {
		e.Set(d)
		reached := make(chan struct{})
		go func() {
			defer close(reached)
			w.rec.until(d.Target, c.crashed, func(s engine.Status) bool { return s.Observed.Generation == d.State.Generation && ok(s) })
		}()
		<-reached
		select {
		case <-c.crashed:
			if w.wrap != nil {
				restart()
				e.Set(d)
			}
		default:
		}
		w.await(what, ok)
	}
	synced := func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced }
	step(w.desired(first), "Synced", synced)
	step(w.desired(second), "Synced without b", func(s engine.Status) bool { return synced(s) && find(s, "ConfigMap "+w.ns+"/b").Name == "" })
	if w.exists("configmap", "b") || !w.exists("configmap", "a") {
		w.Error("the wrong object was pruned")
	}
	step(w.tombstone(), "Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
	w.eventually(func() error {
		if w.exists("configmap", "a") {
			return errStill
		}
		return nil
	})
	if got := w.cluster.Kubectl(w, "-n", w.ns, "get", "persistentvolumeclaim", "data", "-o", "jsonpath={.metadata.deletionTimestamp}"); got != "" {
		w.Error("the protected claim is being deleted")
	}
	restart()
	if left := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "applications,appprojects", "-l", "kedge.dev/agent="+string(w.agent), "-o", "name"); strings.TrimSpace(left) != "" {
		w.Errorf("%s is left", left)
	}
}
