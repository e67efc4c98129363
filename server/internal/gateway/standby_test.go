package gateway_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

func standby(replica string) func(*wire.Hello) {
	return func(h *wire.Hello) { h.Replica, h.Standby = replica, true }
}

// covers: C6
func TestStandbyIsListedAndReceivesNothing(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("paris")
	s, err := gatewaytest.Start(m, gatewaytest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := m.Deploy(agent, "shop", configMap(t, "1"))
	waiting, w := connect(t, s, token, standby("r-1"))
	if w.AgentID != agent.ID || w.SendTargetStates || w.SendStatuses {
		t.Errorf("welcome = %+v, want the agent id and no request", w)
	}
	if n := m.Counts().TargetsOf; n != 0 {
		t.Errorf("the targets were read %d times for a standby replica", n)
	}
	leader, _ := connect(t, s, token, nil)
	leader.held()
	if got := leader.snapshot(); len(got) != 1 {
		t.Fatalf("the leader received %v", got)
	}
	second := m.Desire(first.ID, configMap(t, "2"), func(*fleet.Desired) {})
	if d := leader.recv().GetDesired(); d.GetDigest() != second.Desired.Digest {
		t.Errorf("the leader received %v", d)
	}
	roles := map[string]string{}
	for _, c := range m.Connections() {
		roles[c.Replica] = c.Role()
	}
	if roles["r-0"] != "leader" || roles["r-1"] != "standby" || len(roles) != 2 {
		t.Errorf("the roles are %v", roles)
	}
	go func() { _ = s.Stop() }()
	if frame := waiting.recv(); frame.GetGoodbye() == nil {
		t.Errorf("the standby replica received %v", frame)
	}
	_, _ = leader.ended(), waiting.ended()
}

func TestStandbyMustNotReport(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("paris")
	target := m.Deploy(agent, "shop", configMap(t, "1"))
	s := serve(t, m, gatewaytest.Options{})
	frames := map[string]*agentv1.ConnectRequest{
		"target states": {Frame: &agentv1.ConnectRequest_TargetStates{TargetStates: wire.TargetStatesProto([]wire.TargetState{heldOf(target)})}},
		"status": {Frame: &agentv1.ConnectRequest_Status{Status: wire.Status{Target: target.ID, Full: true, Observed: fleet.Observed{
			Version: target.Desired.Version, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: time.Now(),
		}}.Proto()}},
		"capabilities": {Frame: &agentv1.ConnectRequest_Capabilities{Capabilities: wire.CapabilitiesProto(fleet.Capabilities{KubeVersion: "v1.36.3"})}},
		"events":       {Frame: &agentv1.ConnectRequest_Events{Events: wire.EventsProto([]wire.Event{{Event: fleet.Event{Reason: "X", Type: fleet.EventNormal}}})}},
	}
	for name, frame := range frames {
		p, _ := connect(t, s, token, standby("r-1"))
		p.send(frame)
		if err := p.ended(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s of a standby replica: %v, want InvalidArgument", name, err)
		}
	}
	if n := m.Counts().Statuses; n != 0 {
		t.Errorf("%d statuses were written", n)
	}
}

// covers: C6, D7
func TestAgentIsConnectedWhileItsLeaderIs(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, a, b *replica) {
		e := enroll(t, a, "default", "paris")
		await := func(reason string, connected bool, roles ...string) {
			t.Helper()
			testkit.Eventually(t, 20*time.Second, func(ctx context.Context) error {
				v, err := a.Agent(ctx, admin, "default", "paris")
				if err != nil {
					return err
				}
				var open []string
				for _, c := range v.Connections {
					if c.Connected() {
						open = append(open, c.Replica+" "+c.Role())
					}
				}
				if v.Connected != connected || len(open) != len(roles) {
					return errors.New(reason + ": not yet")
				}
				for i := range roles {
					if open[i] != roles[i] {
						t.Fatalf("%s: %v, want %v", reason, open, roles)
					}
				}
				return nil
			})
		}
		_, _ = connect(t, b.server, e.Token, standby("r-1"))
		await("a standby alone", false, "r-1 standby")
		leader, _ := connect(t, a.server, e.Token, nil)
		await("a leader and a standby", true, "r-0 leader", "r-1 standby")
		leader.cancel()
		await("the leader disconnected", false, "r-1 standby")
		_, _ = connect(t, b.server, e.Token, func(h *wire.Hello) { h.Replica = "r-1" })
		await("the standby became the leader", true, "r-1 leader")
	})
}
