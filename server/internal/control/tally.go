package control

import (
	"maps"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// TargetCounts is how the targets of a deployment are doing, in the words that users read.
type TargetCounts struct {
	Targets    int
	Ready      int // hold what was sent to them, and are well, now
	Detached   int
	Stale      int
	Never      int // on agents that have never connected
	HeldBack   int // something newer was rendered than was sent, and is held
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
	worst     fleet.TargetID  // of the targets that read sync the first of those with the worst health
	worstName string          // of its agent
	worstIs   fleet.Health    // its health
	weight    weight          // of the targets that sync and health speak of
	running   map[string]int  // how many targets were sent which commit; "" is the newest
}

// weight says whose targets a deployment reads as: the heaviest that it has.
type weight int

const (
	weightLeft    weight = iota + 1 // they were let go
	weightUnknown                   // their agents have never connected
	weightKnown                     // their agents are connected, or once were
)

func weightOf(g store.TargetTally, sync fleet.SyncState) weight {
	switch {
	case sync == fleet.SyncDetached:
		return weightLeft
	case g.Never && calm(g.Sync):
		return weightUnknown
	default:
		return weightKnown
	}
}

// with adds a group. What agents say that are there, or once were, comes before what nobody has said
// anything of: one agent that has never connected does not change how all the others read.
func (n tally) with(g store.TargetTally, held bool) tally {
	sync, health := g.Sync, g.Health
	if held && g.Waiting && calm(sync) {
		sync = fleet.SyncOutOfSync
	}
	if g.Stale {
		health = fleet.HealthStale
	}
	n.count(g, sync, health)
	if held && g.Waiting {
		n.counts.HeldBack += g.Count
	}
	n.sent(g, sync)
	switch weight := weightOf(g, sync); {
	case weight < n.weight:
		return n
	case weight > n.weight:
		n.weight, n.health = weight, ""
		n.sync, n.worst, n.worstName, n.worstIs = sync, g.First, g.FirstAgent, health
	case n.isWorse(sync, health, g.FirstAgent):
		n.sync, n.worst, n.worstName, n.worstIs = sync, g.First, g.FirstAgent, health
	}
	if sync != fleet.SyncDetached {
		n.health = fleet.Worst(n.health, health)
	}
	return n
}

// isWorse reports whether a group has more to tell than the worst one so far: by its sync state, then by its health, so
// that the message of what is not healthy is the one that users read.
func (n tally) isWorse(sync fleet.SyncState, health fleet.Health, agent string) bool {
	switch {
	case syncRank[sync] != syncRank[n.sync]:
		return syncRank[sync] > syncRank[n.sync]
	case health != n.worstIs:
		return fleet.Worst(n.worstIs, health) == health
	default:
		return agent < n.worstName
	}
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
	} else if g.Never {
		c.Never += g.Count
	}
	// What something newer waits for holds what was sent to it all the same.
	if g.Sync == fleet.SyncSynced && health == fleet.HealthCurrent {
		c.Ready += g.Count
	}
	if g.Stale {
		c.Stale += g.Count
		if c.StaleSince.IsZero() || g.StaleSince.Before(c.StaleSince) {
			c.StaleSince = g.StaleSince
		}
	}
}

// sent notes which commit a group was sent.
func (n *tally) sent(g store.TargetTally, sync fleet.SyncState) {
	if sync == fleet.SyncDetached || g.Never || (g.Waiting && g.Sent == "") {
		return
	}
	if n.running == nil {
		n.running = map[string]int{}
	}
	n.running[g.Sent] += g.Count
}

// runningCommit is the commit that most of the targets were sent, the older one of two that are as many, and
// how many targets were sent another one. newest is what was rendered last.
func (n tally) runningCommit(newest string) (commit string, others int) {
	most, all := 0, 0
	for _, sent := range slices.Sorted(maps.Keys(n.running)) {
		count := n.running[sent]
		all += count
		if count > most || (count == most && commit == newest) {
			commit, most = sent, count
			if sent == "" {
				commit = newest
			}
		}
	}
	return commit, all - most
}
