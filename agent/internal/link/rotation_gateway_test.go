package link_test

import (
	"context"
	"os"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

// covers: C7 (in-band rotation against the real gateway, with two replicas of one agent that share
// their token; nothing is sent again, and both stay connected)
func TestTokenOfTwoReplicasIsRotated(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, old := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMaps(t, 1, 1))
	srv := serve(t, m, gatewaytest.Options{})
	file := write(t, "token", old)
	replicas := map[string]*testClient{}
	for _, name := range []string{"replica-0", "replica-1"} {
		replicas[name] = start(t, "grpc://"+srv.Addr(), "", func(c *link.Config) {
			c.Tokens = link.TokenFile(file)
			c.Hello = func(context.Context) wire.Hello { return wire.Hello{AgentVersion: "test", Replica: name} }
		})
	}
	ctx := testContext(t)
	if err := m.AwaitOpen(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitObserved(ctx, target.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second follows the first at once
		state, problem, err := m.AwaitRotation(ctx, m.Rotate(agent))
		if err != nil || state != fleet.OperationCompleted {
			t.Fatalf("the rotation ended as %s (%s), %v", state, problem, err)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) == old {
		t.Errorf("the file contains the old token (%v)", err)
	}
	if err := m.AwaitOpen(ctx, 2); err != nil {
		t.Fatalf("not both replicas reconnected: %v", err)
	}
	next := m.Desire(target.ID, configMaps(t, 2, 1), func(*fleet.Desired) {})
	if err := m.AwaitTarget(ctx, target.ID, func(t fleet.Target) bool { return t.Observed.Version == next.Desired.Version }); err != nil {
		t.Fatalf("a change after the rotation did not arrive: %v", err)
	}
}
