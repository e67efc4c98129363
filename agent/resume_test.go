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

// blackout cuts the cluster off, for good, when the agent sends its n-th write; leases do not count.
type blackout struct {
	mu     sync.Mutex
	writes []string
	n      int
	dark   bool
}

func (b *blackout) choose(r *http.Request) *apiproxy.Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") && !b.dark {
		b.writes = append(b.writes, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
		b.dark = len(b.writes) == b.n
	}
	if b.dark {
		return &apiproxy.Fault{Refuse: true}
	}
	return nil
}

// sent is what was sent, and whether it was cut off by then.
func (b *blackout) sent() (writes []string, dark bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.writes), b.dark
}

// An agent that loses its cluster from one request to the next, and ends, looks to the cluster like one that
// was killed at that request.
//
// covers: D4, O7
func TestApplyThatWasKilledIsGoneOnWithWithoutAServer(t *testing.T) {
	t.Parallel()
	cases := []struct {
		n      int
		after  []string
		reason string
	}{
		{1, []string{"a=1", "b=1", "goes=1"}, "the new state was not kept: nothing of it was begun"},
		{2, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "it was kept, and the inventory does not know of it"},
		{3, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "nothing is applied yet"},
		{4, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "one object is applied"},
		{5, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "all but one are"},
		{6, []string{"a=2", "b=1", "c=2", "d=2", "goes=1"}, "all are, and something is to be pruned"},
	}
	for _, tt := range cases {
		t.Run(fmt.Sprintf("killed at write %d", tt.n), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			server := s.cfg.ServerAddress
			stop := s.run(t)
			first := s.set(t, "a=1", "b=1", "goes=1")
			target := s.memory.Deploy(s.enrolled, "app", first)
			s.synced(t, target.ID)
			s.awaitWritten(t, target.ID, first.Digest())

			dark := &blackout{n: tt.n}
			s.proxy.Do(dark.choose)
			s.memory.Desire(target.ID, s.set(t, "a=2", "b=1", "c=2", "d=2"), func(d *fleet.Desired) { d.Policy.Prune = true })
			testkit.Eventually(t, limit, func(context.Context) error {
				if writes, over := dark.sent(); !over {
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
			s.shows(t, tt.after...)
			stop()

			s.cfg.ServerAddress = server
			s.run(t)
			s.shows(t, "a=2", "b=1", "c=2", "d=2")
			s.synced(t, target.ID)
			writes, _ := dark.sent()
			t.Logf("%s: %q", tt.reason, writes)
		})
	}
}

// awaitWritten waits until the cluster holds all that an agent writes down of a target: its state, and that
// it is applied whole.
func (s *site) awaitWritten(t *testing.T, id fleet.TargetID, digest string) {
	t.Helper()
	testkit.Eventually(t, limit, func(context.Context) error {
		kept, err := s.cluster.TryKubectl(t, "-n", s.home, "get", "secrets", "-l", "kedge.dev/offline", "-o", "jsonpath={.items[*].data}")
		if err != nil {
			return err
		}
		inventory, err := s.cluster.TryKubectl(t, "-n", s.home, "get", "configmaps", "-l", "kedge.dev/inventory", "-o", "jsonpath={.items[*].data}")
		if err == nil && (!strings.Contains(kept, "target."+string(id)) || !strings.Contains(inventory, digest)) {
			err = fmt.Errorf("something is still to be written")
		}
		return err
	})
}
