package control_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// covers: P3 (the connection table says where an agent is connected)
func TestServersOfAnAgent(t *testing.T) {
	t.Parallel()
	replicas := newReplicas(t, newPostgres(t), 3, control.Config{BeatEvery: 150 * time.Millisecond, Address: "10.0.0.1:8443"})
	agent, silent := replicas[0].enroll(t, "paris"), replicas[0].enroll(t, "rome")
	want := func(at int, agent fleet.AgentID, servers ...*replica) error {
		got, err := replicas[at].AgentServers(t.Context(), agent)
		if err == nil && len(got) != len(servers) {
			err = fmt.Errorf("server %d finds %+v, not %d servers", at, got, len(servers))
		}
		if err != nil {
			return err
		}
		for i, s := range got {
			if s.ID != servers[i].ReplicaID() || s.Address != "10.0.0.1:8443" {
				return fmt.Errorf("server %d finds %+v, not %s", at, s, servers[i].ReplicaID())
			}
		}
		return nil
	}
	old := replicas[0].connect(t, agent, "r-0")
	standby := fleet.Connection{SessionID: fleet.NewSessionID(), AgentID: agent.ID, TenantID: agent.TenantID, Replica: "r-1", Standby: true, ConnectedAt: time.Now(), LastSeenAt: time.Now()}
	ok(t, replicas[1].AgentConnected(t.Context(), standby))
	ok(t, errors.Join(
		want(0, agent.ID, replicas[1]),              // not itself
		want(1, agent.ID, replicas[0]),              //
		want(2, agent.ID, replicas[1], replicas[0]), // the standby first
		want(2, silent.ID), want(2, "agt-unknown"),
	))
	// It moves; the late end of the old session changes nothing.
	last := replicas[2].connect(t, agent, "r-0")
	ok(t, replicas[0].AgentDisconnected(t.Context(), old, time.Now()))
	ok(t, want(0, agent.ID, replicas[1], replicas[2]))
	replicas[1].kill()
	testkit.Eventually(t, patience, func(context.Context) error { return want(0, agent.ID, replicas[2]) })
	ok(t, replicas[2].AgentDisconnected(t.Context(), last, time.Now()))
	ok(t, want(0, agent.ID))
}
