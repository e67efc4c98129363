package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var connectionTests = map[string]func(*testing.T, store.Store){
	"are stored per replica, the newest of each": connectionsPerReplica,
	"make an agent connected if a replica leads": connectionsThatLead,
	"end with their own session only":            connectionsEnd,
	"end with their server":                      connectionsOfServerEnd,
	"determine whether their agent is connected": connectionsArePresence,
	"are trimmed but for the newest":             connectionsAreTrimmed,
}

func listConnections(t *testing.T, s store.Store, agents ...fleet.AgentID) []fleet.Connection {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Connection, error) {
		return tx.Connections().OfAgentsAllTenants(ctx, agents)
	})
}

func putConnection(t *testing.T, s store.Store, c fleet.Connection) {
	t.Helper()
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Connections().Put(ctx, c) })
}

func connectionsPerReplica(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	second := newConnection(w.agent, "pod-1")
	putConnection(t, s, second)
	before := last(t, s)
	newer := newConnection(w.agent, w.connection.Replica)
	newer.Version, newer.ConnectedAt, newer.LastSeenAt = "v0.2.0", at(20), at(21)
	putConnection(t, s, newer)
	same(t, "connections", listConnections(t, s, w.agent.ID), []fleet.Connection{newer, second})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeConnection, ID: string(newer.SessionID), AgentID: w.agent.ID}})
	other := newWorld(t, s, "b")
	want := []fleet.Connection{newer, second, other.connection}
	if other.agent.ID < w.agent.ID {
		want = []fleet.Connection{other.connection, newer, second}
	}
	same(t, "of two agents", listConnections(t, s, w.agent.ID, other.agent.ID), want)
	same(t, "of none", listConnections(t, s), nil)
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		c := newConnection(w.agent, "pod-2")
		c.AgentID = fleet.NewAgentID()
		return tx.Connections().Put(ctx, c)
	})
}

func connectionsThatLead(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	connected := func() bool {
		yes := true
		return len(listAgents(t, s, w.tenant.ID, store.AgentFilter{Connected: &yes})) == 1
	}
	end := func(c fleet.Connection) {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			_, err := tx.Connections().Close(ctx, c.TenantID, c.SessionID, at(30), at(31))
			return err
		})
	}
	standby := newConnection(w.agent, "pod-1")
	standby.Standby = true
	putConnection(t, s, standby)
	same(t, "connections", listConnections(t, s, w.agent.ID), []fleet.Connection{w.connection, standby})
	same(t, "a leader and a standby", connected(), true)
	end(w.connection)
	same(t, "the leader is gone", connected(), false)
	leader := newConnection(w.agent, "pod-1")
	putConnection(t, s, leader)
	same(t, "the other one has taken over", connected(), true)
	end(standby) // late
	same(t, "its time of waiting is over", connected(), true)
	back := newConnection(w.agent, "pod-1")
	back.Standby = true
	putConnection(t, s, back)
	same(t, "it leads no more", connected(), false)
	putConnection(t, s, newConnection(w.agent, w.connection.Replica))
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Connections().CloseOfServerAllTenants(ctx, "srv-1", at(40))
		return err
	})
	same(t, "the server is gone", connected(), false)
}

func connectionsEnd(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	newer := newConnection(w.agent, w.connection.Replica)
	putConnection(t, s, newer)
	end := func(session fleet.SessionID, lastSeen, when time.Time) (closed bool) {
		update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
			closed, err = tx.Connections().Close(ctx, w.tenant.ID, session, lastSeen, when)
			return err
		})
		return closed
	}
	before := last(t, s)
	same(t, "ending a session that was replaced", end(w.connection.SessionID, at(30), at(31)), false)
	same(t, "after the old session ended", listConnections(t, s, w.agent.ID), []fleet.Connection{newer})
	same(t, "changes", since(t, s, before), nil)

	same(t, "ending the newest session", end(newer.SessionID, at(40), at(41)), true)
	want := newer
	want.LastSeenAt, want.DisconnectedAt = at(40), at(41)
	same(t, "after the new session ended", listConnections(t, s, w.agent.ID), []fleet.Connection{want})
	same(t, "ending it again", end(newer.SessionID, at(50), at(51)), false)
	same(t, "after it ended again", listConnections(t, s, w.agent.ID), []fleet.Connection{want})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeConnection, ID: string(newer.SessionID), AgentID: w.agent.ID}})
}

func connectionsOfServerEnd(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	fresh, ended, elsewhere := newConnection(b.agent, "pod-1"), newConnection(b.agent, "pod-2"), newConnection(b.agent, "pod-3")
	fresh.LastSeenAt, ended.DisconnectedAt, elsewhere.Server = at(200), at(10), "srv-2"
	for _, c := range []fleet.Connection{fresh, ended, elsewhere} {
		putConnection(t, s, c)
	}
	before := last(t, s)
	closeOf := func(server string, lastSeen time.Time) (n int) {
		update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
			n, err = tx.Connections().CloseOfServerAllTenants(ctx, server, lastSeen)
			return err
		})
		return n
	}
	same(t, "ended with a server that holds none", closeOf("srv-9", at(100)), 0)
	same(t, "ended with a server", closeOf("srv-1", at(100)), 3)
	wantA, wantB := a.connection, b.connection
	wantA.LastSeenAt, wantA.DisconnectedAt = at(100), at(100)
	wantB.LastSeenAt, wantB.DisconnectedAt = at(100), at(100)
	fresh.DisconnectedAt = at(200)
	same(t, "of a", listConnections(t, s, a.agent.ID), []fleet.Connection{wantA})
	same(t, "of b", listConnections(t, s, b.agent.ID), []fleet.Connection{wantB, fresh, ended, elsewhere})
	same(t, "changes", len(since(t, s, before)), 3)
	same(t, "ended with it again", closeOf("srv-1", at(300)), 0)

	again := newConnection(a.agent, a.connection.Replica)
	putConnection(t, s, again)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Replicas().Beat(ctx, newReplica("srv-2", 1)) })
	same(t, "ended with all servers but one that is alive", closeOf("", time.Time{}), 1)
	again.DisconnectedAt = again.LastSeenAt
	same(t, "of a", listConnections(t, s, a.agent.ID), []fleet.Connection{again})
	same(t, "of b", listConnections(t, s, b.agent.ID), []fleet.Connection{wantB, fresh, ended, elsewhere})
}

func connectionsAreTrimmed(t *testing.T, s store.Store) {
	w, other := newWorld(t, s, "a"), newWorld(t, s, "b")
	ended := func(w *world, replica string, seen int) fleet.Connection {
		c := newConnection(w.agent, replica)
		c.LastSeenAt, c.DisconnectedAt = at(seen), at(seen)
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Connections().Put(ctx, c) })
		return c
	}
	old := ended(w, "pod-2", 20)
	ended(w, "pod-1", 10)
	theirs := []fleet.Connection{ended(other, "pod-1", 10), ended(other, "pod-2", 20)}
	trim := func(before int) (n int) {
		update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
			n, err = tx.Connections().Trim(ctx, w.tenant.ID, at(before))
			return err
		})
		return n
	}
	same(t, "rows that ended later", trim(10), 0)
	same(t, "rows that ended before", trim(15), 1)
	same(t, "what is left", listConnections(t, s, w.agent.ID), []fleet.Connection{w.connection, old})
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Connections().Close(ctx, w.tenant.ID, w.connection.SessionID, at(5), at(5))
		return err
	})
	same(t, "the newest row stays however old it is", trim(1000), 1)
	same(t, "what is left", listConnections(t, s, w.agent.ID), []fleet.Connection{old})
	same(t, "those of another tenant", listConnections(t, s, other.agent.ID), append([]fleet.Connection{other.connection}, theirs...))
}

func connectionsArePresence(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	first, second := w.connection, newConnection(w.agent, "pod-1")
	gone := newConnection(w.agent, "pod-1")
	gone.DisconnectedAt = at(20)
	end := func(c fleet.Connection) func(context.Context, store.Tx) error {
		return func(ctx context.Context, tx store.Tx) error {
			_, err := tx.Connections().Close(ctx, w.tenant.ID, c.SessionID, at(20), at(20))
			return err
		}
	}
	put := func(c fleet.Connection) func(context.Context, store.Tx) error {
		return func(ctx context.Context, tx store.Tx) error { return tx.Connections().Put(ctx, c) }
	}
	steps := []struct {
		reason string
		do     func(context.Context, store.Tx) error
		want   bool
	}{
		{"one is open", put(first), true},
		{"two are open", put(second), true},
		{"one of two is left", end(first), true},
		{"none is left", end(second), false},
		{"one that is recorded when it is over", put(gone), false},
		{"one comes back", put(first), true},
		{"the server goes", func(ctx context.Context, tx store.Tx) error {
			_, err := tx.Connections().CloseOfServerAllTenants(ctx, "srv-1", at(30))
			return err
		}, false},
		{"one comes back once more", put(second), true},
		{"and is replaced by its end", put(gone), false},
	}
	connected := true
	for _, step := range steps {
		update(t, s, step.do)
		got := len(listAgents(t, s, w.tenant.ID, store.AgentFilter{Connected: &connected})) == 1
		same(t, step.reason, got, step.want)
	}
}

var replicaTests = map[string]func(*testing.T, store.Store){
	"send heartbeats until they are removed": func(t *testing.T, s store.Store) {
		list := func() []fleet.ServerReplica {
			return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.ServerReplica, error) { return tx.Replicas().List(ctx) })
		}
		same(t, "before the first", list(), nil)
		b, a := newReplica("b", 10), newReplica("a", 20)
		later := b
		later.BeatAt, later.Address = at(30), "https://moved"
		for _, r := range []fleet.ServerReplica{b, a, later, b} { // the last one is late
			update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Replicas().Beat(ctx, r) })
		}
		same(t, "list", list(), []fleet.ServerReplica{a, later})
		for range 2 {
			update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Replicas().Remove(ctx, "b") })
		}
		same(t, "list", list(), []fleet.ServerReplica{a})
		same(t, "a beat is no change", last(t, s), 0)
	},
}
