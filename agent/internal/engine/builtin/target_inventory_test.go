package builtin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// slowInventory holds back writes of inventories while its gate is closed, and counts those that wait.
type slowInventory struct {
	next http.RoundTripper
	mu   sync.Mutex
	gate chan struct{} // nil while it is open
	held chan struct{}
	// early: ConfigMap b was applied while the gate was closed.
	early bool
}

func (s *slowInventory) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/configmaps/b") {
		s.mu.Lock()
		s.early = s.early || s.gate != nil
		s.mu.Unlock()
	}
	inventory := strings.Contains(r.URL.Path, "/configmaps/kedge-inventory-") || r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps")
	if inventory && r.Method != http.MethodGet {
		s.mu.Lock()
		gate := s.gate
		s.mu.Unlock()
		if gate != nil {
			s.held <- struct{}{}
			select {
			case <-gate:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
	}
	return s.next.RoundTrip(r)
}

func (s *slowInventory) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *slowInventory) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = nil
}

// covers: D1
func TestAWriteOfTheInventoryDelaysNoHealAndNothingIsAppliedBeforeIt(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	ns, slow := c.Namespace(t), &slowInventory{held: make(chan struct{}, 100)}
	cfg := c.RESTConfig()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { slow.next = next; return slow })
	out := make(told, 1000)
	e := launch(t, c.Namespace(t), cfg, out)
	set := func(generation int64, text string) {
		d := wanting(t, "tgt-slow", text)
		d.State = fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: generation}, Digest: d.Objects.Digest(), Namespace: ns}
		e.Set(d)
	}
	synced := func(generation int64) func(engine.Status) bool {
		return func(s engine.Status) bool {
			return s.Observed.Generation == generation && s.Observed.Sync == fleet.SyncSynced
		}
	}
	const a, b = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {key: ours}}", "\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}"
	set(1, a)
	out.await(t, "synced", synced(1))

	maps := c.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns)
	slow.close()
	before, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	uid := before.GetUID()
	for range 2 { // the first heal is recorded by a write that does not end; the second comes all the same
		if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, time.Minute, func(ctx context.Context) error {
			live, err := maps.Get(ctx, "a", metav1.GetOptions{})
			if err == nil && live.GetUID() == uid {
				err = errors.New("it is the deleted one")
			}
			if err == nil {
				uid = live.GetUID()
			}
			return err
		})
	}
	<-slow.held
	set(2, a+b) // which ends that write
	<-slow.held
	if _, err := maps.Get(t.Context(), "b", metav1.GetOptions{}); err == nil {
		t.Error("an object was applied before the inventory that lists it was written")
	}
	slow.open()
	out.await(t, "synced", synced(2))
	if slow.early {
		t.Error("an object was to be applied before the inventory that lists it was written")
	}
}
