package rollout

import (
	"context"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// PresenceOf reads the connections of the agents of targets, which may belong to other tenants.
func PresenceOf(ctx context.Context, tx store.Tx, targets []fleet.Target) (map[fleet.AgentID][]fleet.Connection, error) {
	agents := map[fleet.AgentID]bool{}
	for _, t := range targets {
		if t.AgentID != "" {
			agents[t.AgentID] = true
		}
	}
	connections, err := tx.Connections().OfAgentsAllTenants(ctx, slices.Sorted(maps.Keys(agents)))
	return GroupConnections(connections), err
}

// PresenceBy returns the presence of an agent with these connections: it is connected while a leading replica
// is. A standby says nothing about the cluster: it was last seen, as a leader, when it became a standby.
func PresenceBy(connections []fleet.Connection) fleet.Presence {
	var p fleet.Presence
	for _, c := range connections {
		p.Connected = p.Connected || c.Leads()
		seen := c.LastSeenAt
		if c.Standby {
			seen = c.ConnectedAt
		}
		if seen.After(p.LastSeen) {
			p.LastSeen = seen
		}
	}
	return p
}

// HaveNeverConnected returns the text that n agents have never connected.
func HaveNeverConnected(n int) string {
	if n == 1 {
		return " has never connected"
	}
	return " have never connected"
}

// GroupConnections returns connections by agent.
func GroupConnections(connections []fleet.Connection) map[fleet.AgentID][]fleet.Connection {
	out := map[fleet.AgentID][]fleet.Connection{}
	for _, c := range connections {
		out[c.AgentID] = append(out[c.AgentID], c)
	}
	return out
}
