package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var connectionTests = map[string]func(*testing.T, store.Store){
	"tell replicas apart and keep the newest of each": connectionsPerReplica,
	"end with their own session only":                 connectionsEnd,
	"all end when a server starts":                    connectionsAllEnd,
	"remember the newest beat":                        beats,
}

func listConnections(t *testing.T, s store.Store, w *world) []fleet.Connection {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Connection, error) {
		return tx.Connections().OfAgent(ctx, w.tenant.ID, w.agent.ID)
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
	same(t, "connections", listConnections(t, s, w), []fleet.Connection{newer, second})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeConnection, ID: string(newer.SessionID), AgentID: w.agent.ID}})
	same(t, "of the tenant", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Connection, error) {
		return tx.Connections().List(ctx, w.tenant.ID)
	}), []fleet.Connection{newer, second})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		c := newConnection(w.agent, "pod-2")
		c.AgentID = fleet.NewAgentID()
		return tx.Connections().Put(ctx, c)
	})
}

func connectionsEnd(t *testing.T, s store.Store) {
	w := newWorld(t, s, "a")
	newer := newConnection(w.agent, w.connection.Replica)
	putConnection(t, s, newer)
	end := func(session fleet.SessionID, lastSeen, when time.Time) (closed bool) {
		update(t, s, func(ctx context.Context, tx store.Tx) (err error) {
			closed, err = tx.Connections().Close(ctx, session, lastSeen, when)
			return err
		})
		return closed
	}
	before := last(t, s)
	same(t, "ending a session that was replaced", end(w.connection.SessionID, at(30), at(31)), false)
	same(t, "after the old session ended", listConnections(t, s, w), []fleet.Connection{newer})
	same(t, "changes", since(t, s, before), nil)

	same(t, "ending the newest session", end(newer.SessionID, at(40), at(41)), true)
	want := newer
	want.LastSeenAt, want.DisconnectedAt = at(40), at(41)
	same(t, "after the new session ended", listConnections(t, s, w), []fleet.Connection{want})
	same(t, "ending it again", end(newer.SessionID, at(50), at(51)), false)
	same(t, "after it ended again", listConnections(t, s, w), []fleet.Connection{want})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeConnection, ID: string(newer.SessionID), AgentID: w.agent.ID}})
}

func connectionsAllEnd(t *testing.T, s store.Store) {
	a, b := newWorld(t, s, "a"), newWorld(t, s, "b")
	fresh, ended := newConnection(b.agent, "pod-1"), newConnection(b.agent, "pod-2")
	fresh.LastSeenAt = at(200)
	ended.DisconnectedAt = at(10)
	putConnection(t, s, fresh)
	putConnection(t, s, ended)
	before := last(t, s)
	closeAll := func(lastSeen time.Time) {
		update(t, s, func(ctx context.Context, tx store.Tx) error {
			return tx.Connections().CloseAllTenants(ctx, lastSeen)
		})
	}
	closeAll(at(100))
	wantA, wantB := a.connection, b.connection
	wantA.LastSeenAt, wantA.DisconnectedAt = at(100), at(100)
	wantB.LastSeenAt, wantB.DisconnectedAt = at(100), at(100)
	fresh.DisconnectedAt = at(200)
	same(t, "of a", listConnections(t, s, a), []fleet.Connection{wantA})
	same(t, "of b", listConnections(t, s, b), []fleet.Connection{wantB, fresh, ended})
	if got := len(since(t, s, before)); got != 3 {
		t.Errorf("changes: got %d, want one for each of the 3 that were open", got)
	}
	closeAll(at(300))
	same(t, "of a after a second start", listConnections(t, s, a), []fleet.Connection{wantA})

	again := newConnection(a.agent, a.connection.Replica)
	putConnection(t, s, again)
	closeAll(time.Time{}) // no beat was ever recorded
	again.DisconnectedAt = again.LastSeenAt
	same(t, "without a beat", listConnections(t, s, a), []fleet.Connection{again})
}

func beats(t *testing.T, s store.Store) {
	get := func() time.Time {
		return read(t, s, func(ctx context.Context, tx store.Tx) (time.Time, error) { return tx.Connections().LastBeat(ctx) })
	}
	same(t, "before the first", get(), time.Time{})
	for _, n := range []int{10, 30, 20} {
		update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Connections().Beat(ctx, at(n)) })
	}
	same(t, "newest", get(), at(30))
	same(t, "a beat is no change", last(t, s), 0)
}
