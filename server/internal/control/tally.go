package control

import (
	"maps"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// TargetCounts counts the targets of a deployment by the states that users see.
type TargetCounts struct {
	Targets    int
	Ready      int // applied what was sent, healthy, and connected
	Detached   int
	Stale      int
	Never      int // on agents that never connected
	HeldBack   int // a newer revision was rendered and is held back
	Sync       map[fleet.SyncState]int
	Health     map[fleet.Health]int
	StaleSince time.Time // the longest absence; zero if there is none
	HeldPrunes int       // held deletions; an object on two agents counts twice
	// SyncSince and HealthSince are since when the deployment is in its sync state and health at least, as far as its
	// agents reported it.
	SyncSince, HealthSince time.Time
}

// syncRank orders sync states by importance.
var syncRank = map[fleet.SyncState]int{
	fleet.SyncDeleted: 0, fleet.SyncDetached: 1, fleet.SyncSynced: 2, fleet.SyncPending: 3, fleet.SyncOutOfSync: 4,
	fleet.SyncSyncing: 5, fleet.SyncRewound: 6, fleet.SyncFailed: 7,
}

// tally sums up the targets of a deployment. Its zero value is that of a deployment without targets.
type tally struct {
	counts    TargetCounts
	sync      fleet.SyncState // the worst
	health    fleet.Health    // the worst of the attached targets
	worst     fleet.TargetID  // the first target with sync and the worst health
	worstName string          // of its agent
	worstIs   fleet.Health    // its health
	weight    weight          // of the targets that determine sync and health
	running   map[string]int  // number of targets by commit; "" is the newest
	// syncTimes and healthTimes are when the first and the last target came into a state.
	syncTimes   map[fleet.SyncState][2]time.Time
	healthTimes map[fleet.Health][2]time.Time
}

// weight decides which targets determine the state of a deployment: the heaviest ones.
type weight int

const (
	weightLeft    weight = iota + 1 // detached
	weightUnknown                   // their agents never connected
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

// with adds a group. Targets of agents that are or were connected take precedence: one agent that never
// connected does not change the state of all others.
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

// isWorse reports whether a group is worse than the worst one so far: by its sync state, then by its health, so
// that users see the message of the unhealthy one.
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
		n.syncTimes, n.healthTimes = map[fleet.SyncState][2]time.Time{}, map[fleet.Health][2]time.Time{}
	}
	c.Targets += g.Count
	c.Sync[sync] += g.Count
	c.Health[health] += g.Count
	if sync == g.Sync {
		n.syncTimes[sync] = span(n.syncTimes[sync], g.SyncSince)
	}
	since := g.HealthSince
	if g.Stale {
		since = [2]time.Time{g.StaleSince, g.StaleSince}
	}
	n.healthTimes[health] = span(n.healthTimes[health], since)
	if sync == fleet.SyncDetached {
		c.Detached += g.Count
	} else if g.Never {
		c.Never += g.Count
	}
	// A target with a newer revision has still applied what was sent to it.
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

// sent records the commit of a group.
func (n *tally) sent(g store.TargetTally, sync fleet.SyncState) {
	if sync == fleet.SyncDetached || g.Never || (g.Waiting && g.Sent == "") {
		return
	}
	if n.running == nil {
		n.running = map[string]int{}
	}
	n.running[g.Sent] += g.Count
}

// runningCommit returns the commit of most targets, the older one of two with equal numbers, and the number of
// targets with another one. newest is the last rendered commit.
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

// since returns since when the deployment is in its sync state and health, as far as its agents reported it: since the
// last target is Synced, and otherwise at least since the first target is not. Zero where that is not known.
func (n tally) since() (sync, health time.Time) {
	sync, health = n.syncTimes[n.sync][0], n.healthTimes[n.health][0]
	if n.sync == fleet.SyncSynced {
		sync = n.syncTimes[n.sync][1]
	}
	if n.health == fleet.HealthCurrent {
		health = time.Time{} // an agent may have been away since it reported that
	}
	return sync, health
}

// span is the earliest and the latest of two spans; a zero time is not known.
func span(a, b [2]time.Time) [2]time.Time {
	if a[0].IsZero() || !b[0].IsZero() && b[0].Before(a[0]) {
		a[0] = b[0]
	}
	a[1] = laterOf(a[1], b[1])
	return a
}
