package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// outage makes the API server unavailable when the agent sends its n-th write. Writes of Leases do not count.
type outage struct {
	mu     sync.Mutex
	writes []string
	n      int
	active bool
}

func (b *outage) choose(r *http.Request) *apiproxy.Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") && !b.active {
		b.writes = append(b.writes, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		b.active = len(b.writes) == b.n
	}
	if b.active {
		return &apiproxy.Fault{Refuse: true}
	}
	return nil
}

// sent returns the writes, and whether the outage has started.
func (b *outage) sent() (writes []string, active bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.writes), b.active
}

// For the cluster, an agent that loses its connection at a request and then stops looks like one that was killed at that
// request.
//
// covers: D4, O7
func TestKilledApplyIsResumedWithoutAServer(t *testing.T) {
	t.Parallel()
	cases := []struct {
		n      int
		after  []string
		reason string
	}{
		{1, []string{"a=1", "b=1", "goes=1"}, "the new state is not cached, and was not started"},
		{2, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "the state is cached, and the inventory does not have it"},
		{3, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "no object is applied"},
		{4, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "one object is applied"},
		{5, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "all but one are applied"},
		{6, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "all are applied, and one object is not pruned yet"},
	}
	for _, tt := range cases {
		t.Run(fmt.Sprintf("killed at write %d", tt.n), func(t *testing.T) {
			t.Parallel()
			s := newTestSite(t)
			server := s.cfg.ServerAddress
			stop := s.run(t)
			first := s.set(t, "a=1", "b=1", "goes=1")
			target := s.memory.Deploy(s.enrolled, "app", first)
			s.awaitSynced(t, target.ID)
			s.awaitWritten(t, target.ID, first.Digest())

			active := &outage{n: tt.n}
			s.proxy.Do(active.choose)
			s.memory.Desire(target.ID, s.set(t, "a=2", "b=1", "c=2", "d=2"), func(d *fleet.Desired) { d.Policy.Prune = true })
			testkit.Eventually(t, testTimeout, func(context.Context) error {
				if writes, over := active.sent(); !over {
					return fmt.Errorf("sent %q", writes)
				}
				return nil
			})
			s.proxy.Sever()
			stop()

			s.cfg.ServerAddress = "grpc://127.0.0.1:1"
			s.proxy.Do(nil)
			stop = s.run(t)
			s.log.await(t, "resumed from the offline cache", 1)
			s.log.await(t, "no connection to the server", 2)
			s.awaitConfigMaps(t, tt.after...)
			stop()

			s.cfg.ServerAddress = server
			s.run(t)
			s.awaitConfigMaps(t, "a=2", "b=1", "c=2", "d=2")
			s.awaitSynced(t, target.ID)
			writes, _ := active.sent()
			t.Logf("%s: %q", tt.reason, writes)
		})
	}
}

// awaitWritten waits until the offline cache and the inventory contain the state of a target.
func (s *testSite) awaitWritten(t *testing.T, id fleet.TargetID, digest string) {
	t.Helper()
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		cached, err := s.cluster.TryKubectl(t, "-n", s.agentNamespace, "get", "secrets", "-l", "kedge.dev/offline", "-o", "jsonpath={.items[*].data}")
		if err != nil {
			return err
		}
		inventory, err := s.cluster.TryKubectl(t, "-n", s.agentNamespace, "get", "configmaps", "-l", "kedge.dev/inventory", "-o", "jsonpath={.items[*].data}")
		if err == nil && (!strings.Contains(cached, "target."+string(id)) || !strings.Contains(inventory, digest)) {
			err = fmt.Errorf("the state is not written yet")
		}
		return err
	})
}
