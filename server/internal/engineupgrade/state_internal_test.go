package engineupgrade

import (
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// An upgrade goes on to the next instance only after everything is in sync and healthy. Neither of the two is enough, and a
// status of an older version counts for nothing. Only deletions that wait for a user are excepted.
//
// defect: B15
func TestOnlySyncedAndHealthyCountsAsSuccess(t *testing.T) {
	t.Parallel()
	syncs := []fleet.SyncState{
		"", fleet.SyncPending, fleet.SyncSyncing, fleet.SyncSynced, fleet.SyncOutOfSync, fleet.SyncFailed, fleet.SyncRewound, fleet.SyncDetached, fleet.SyncDeleted, fleet.SyncHeld,
	}
	healths := []fleet.Health{
		"", fleet.HealthCurrent, fleet.HealthInProgress, fleet.HealthFailed, fleet.HealthTerminating, fleet.HealthNotFound, fleet.HealthUnknown, fleet.HealthStale,
	}
	reasons := []fleet.Reason{"", fleet.ReasonSynced, fleet.ReasonDrifted, fleet.ReasonDryRun, fleet.ReasonPruneHeld}
	now := fleet.Version{Epoch: 1, Generation: 2}
	for _, observed := range []fleet.Version{{}, {Epoch: 1, Generation: 1}, now} {
		for _, sync := range syncs {
			for _, health := range healths {
				for _, reason := range reasons {
					p := placed{
						target: fleet.Target{Desired: fleet.Desired{Version: now}, Observed: fleet.Observed{Version: observed}},
						view:   fleet.View{Sync: sync, Health: health, Reason: reason},
					}
					want := observed == now && health == fleet.HealthCurrent && (sync == fleet.SyncSynced || sync == fleet.SyncOutOfSync && reason == fleet.ReasonPruneHeld)
					if got := p.settled(); got != want {
						t.Errorf("%s at %v: got %v, want %v", fmt.Sprintf("%s, %s (%s)", sync, health, reason), observed, got, want)
					}
				}
			}
		}
	}
}
