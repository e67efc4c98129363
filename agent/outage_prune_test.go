package agent_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// An object that the server lists again during an outage of the API server stays, even if the server is unavailable after
// the outage: the desired state from before does not delete it.
//
// covers: D6, O7
func TestNothingIsPrunedForAStateFromBeforeAnOutage(t *testing.T) {
	t.Parallel()
	s := newTestSite(t)
	s.run(t)
	target := s.memory.Deploy(s.enrolled, "app", s.set(t, "a=1", "goes=1"))
	s.awaitSynced(t, target.ID)

	var deletes atomic.Int32
	s.proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if r.Method == http.MethodDelete {
			deletes.Add(1)
			return &apiproxy.Fault{Refuse: true}
		}
		return nil
	})
	s.memory.Desire(target.ID, s.set(t, "a=1"), func(d *fleet.Desired) { d.Policy.Prune = true })
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if deletes.Load() == 0 {
			return errors.New("nothing is pruned")
		}
		return nil
	})
	s.proxy.Do(func(*http.Request) *apiproxy.Fault { return &apiproxy.Fault{Refuse: true} })
	s.proxy.Sever()
	s.log.await(t, "stopped leading", 1)
	address := s.server.Addr()
	if err := s.server.Stop(); err != nil {
		t.Fatal(err)
	}
	s.memory.Desire(target.ID, s.set(t, "a=1", "goes=1"), func(d *fleet.Desired) { d.Policy.Prune = true })
	maps := s.cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(s.ns)
	if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"key":"edited"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	deletes.Store(0)
	s.proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if r.Method == http.MethodDelete {
			deletes.Add(1)
		}
		return nil
	})
	s.log.await(t, "started leading", 2)
	s.log.await(t, "no connection to the server", s.log.count("no connection to the server")+2)
	s.awaitConfigMaps(t, "a=1", "goes=1")
	s.serve(t, address)
	s.awaitSynced(t, target.ID)
	s.awaitConfigMaps(t, "a=1", "goes=1")
	if n := deletes.Load(); n != 0 {
		t.Errorf("%d objects were deleted for the desired state from before the outage", n)
	}
}
