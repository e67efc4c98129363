package control

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// TargetCounts is how the targets of a deployment are doing, in the words that users read.
type TargetCounts struct {
	Targets    int
	Ready      int // hold what is desired, and are well, now
	Detached   int
	Stale      int
	Sync       map[fleet.SyncState]int
	Health     map[fleet.Health]int
	StaleSince time.Time // the longest absence; zero while there is none
	HeldPrunes int       // deletions that wait to be confirmed, an object on two agents counted twice
}

// syncRank orders sync states from least to most worth telling.
var syncRank = map[fleet.SyncState]int{
	fleet.SyncDeleted: 0, fleet.SyncDetached: 1, fleet.SyncSynced: 2, fleet.SyncPending: 3, fleet.SyncOutOfSync: 4,
	fleet.SyncSyncing: 5, fleet.SyncRewound: 6, fleet.SyncFailed: 7,
}

// tally adds up the targets of a deployment. Its zero value is that of one without any.
type tally struct {
	counts    TargetCounts
	sync      fleet.SyncState // the worst
	health    fleet.Health    // the worst of those that were not let go: nobody manages the others
	worst     fleet.TargetID  // the first that reads sync
	worstName string          // of its agent
}

func (n tally) with(g store.TargetTally, held bool) tally {
	sync, health := g.Sync, g.Health
	if held && g.Waiting && calm(sync) {
		sync = fleet.SyncOutOfSync
	}
	if g.Stale {
		health = fleet.HealthStale
	}
	n.count(g, sync, health)
	if sync != fleet.SyncDetached {
		n.health = fleet.Worst(n.health, health)
	}
	worse := n.sync == "" || syncRank[sync] > syncRank[n.sync]
	if worse || (syncRank[sync] == syncRank[n.sync] && g.FirstAgent < n.worstName) {
		n.sync, n.worst, n.worstName = sync, g.First, g.FirstAgent
	}
	return n
}

func (n *tally) count(g store.TargetTally, sync fleet.SyncState, health fleet.Health) {
	c := &n.counts
	if c.Sync == nil {
		c.Sync, c.Health = map[fleet.SyncState]int{}, map[fleet.Health]int{}
	}
	c.Targets += g.Count
	c.Sync[sync] += g.Count
	c.Health[health] += g.Count
	if sync == fleet.SyncDetached {
		c.Detached += g.Count
	}
	if sync == fleet.SyncSynced && health == fleet.HealthCurrent {
		c.Ready += g.Count
	}
	if g.Stale {
		c.Stale += g.Count
		if c.StaleSince.IsZero() || g.StaleSince.Before(c.StaleSince) {
			c.StaleSince = g.StaleSince
		}
	}
}
