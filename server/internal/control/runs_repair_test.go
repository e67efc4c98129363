package control_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// A requested sync of the current state creates a new version, for which agents correct drift that they only
// report; once for each run.
//
// covers: D2 (an explicit sync repairs)
func TestASyncOfTheSameCommitRepairs(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	before := r.deployed(t, paris)
	r.report(t, paris, before, fleet.SyncOutOfSync)
	for i := range int64(2) {
		run := r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunRunning))
		now := r.target(t, paris)
		if now.Desired.Generation != before.Desired.Generation+1+i || now.Desired.Digest != before.Desired.Digest || now.Desired.Consent {
			t.Fatalf("run %d has given %+v", i, now.Desired)
		}
		r.report(t, paris, now, fleet.SyncSynced)
		r.awaitRun(t, run.ID, inPhase(fleet.RunSucceeded))
	}
}
