package link_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// A restarted agent lists the targets that it finds, without a request, and without a digest because it has no objects.
func TestRestartedAgentListsRecoveredTargets(t *testing.T) {
	t.Parallel()
	d, content := desire(configMaps(t, 1, 1))
	s := &scriptedServer{desired: d, fetch: func(_ int, _ int64, send func([]byte, int64) error) error { return send(content, int64(len(content))) }}
	address := s.serve(t)
	var r *testClient
	ready := make(chan struct{})
	r = start(t, address, "kedge-agent-x", func(c *link.Config) {
		c.Welcomed = func(context.Context, wire.Welcome) (link.Engine, []engine.Held, error) {
			<-ready // r is set
			return r.engine, []engine.Held{{Target: "tgt-9", Version: fleet.Version{Epoch: 1, Generation: 7}, Digest: "sha256:whole"}}, nil
		}
	})
	close(ready)
	ctx := testContext(t)
	for {
		select {
		case f := <-s.frames:
			if f.GetTargetStates() == nil {
				continue
			}
			got, err := wire.ParseTargetStates(f.GetTargetStates())
			want := map[fleet.TargetID]wire.TargetState{"tgt-9": {Target: "tgt-9", Version: fleet.Version{Epoch: 1, Generation: 7}}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("states (-want +got):\n%s%v", diff, err)
			}
			return
		case <-ctx.Done():
			t.Fatal("the recovered targets were not listed")
		}
	}
}

// A server whose database is older than the cluster sends nothing to an agent that is ahead.
func TestRestartedAgentThatIsAheadIsSentNothing(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	behind := m.Deploy(agent, "shop", configMaps(t, 1, 1))
	fresh := m.Deploy(agent, "blog", configMaps(t, 1, 1))
	srv := serve(t, m, gatewaytest.Options{})
	var r *testClient
	ready := make(chan struct{})
	r = start(t, "grpc://"+srv.Addr(), token, func(c *link.Config) {
		c.Welcomed = func(context.Context, wire.Welcome) (link.Engine, []engine.Held, error) {
			<-ready
			return r.engine, []engine.Held{{Target: behind.ID, Version: fleet.Version{Epoch: 1, Generation: 7}}}, nil
		}
	})
	close(ready)
	if err := m.AwaitObserved(testContext(t), fresh.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	if got := r.engine.received(); len(got) != 1 || got[0].Target != fresh.ID {
		t.Errorf("the engine received %d states, want only the target that it is not ahead of", len(got))
	}
	if diff := cmp.Diff([]fleet.TargetID{behind.ID}, m.Ahead()); diff != "" {
		t.Errorf("targets reported as ahead (-want +got):\n%s", diff)
	}
}
