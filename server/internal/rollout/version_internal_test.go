package rollout

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// A backup is restored twice. The agent has a state of the first restore, whose epoch is far above that of the
// target in the backup, and below that of the database.
func TestReportOfAnEarlierRestoreIsAccepted(t *testing.T) {
	t.Parallel()
	const first, second = 1_794_875_080_000, 1_794_875_081_000
	s := &Planner{epoch: second}
	target := fleet.Target{Desired: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 3}}}
	for name, tc := range map[string]struct {
		epoch int64
		want  fleet.SyncState
	}{
		"of an earlier restore":                   {first, fleet.SyncRewound},
		"of a restore by a clock that was ahead":  {second + 3_600_000, fleet.SyncRewound},
		"of an epoch that no restore can have":    {second + fleet.MaxEpochLead + 1, fleet.SyncFailed},
		"of the backup, with a higher generation": {1, fleet.SyncRewound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := s.understood(target, store.Report{Observed: fleet.Observed{Version: fleet.Version{Epoch: tc.epoch, Generation: 7}, Sync: fleet.SyncSynced}})
			if got.Observed.Sync != tc.want {
				t.Errorf("got %s %q, want %s", got.Observed.Sync, got.Observed.Message, tc.want)
			}
		})
	}
}
