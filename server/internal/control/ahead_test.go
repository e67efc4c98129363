package control_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// The source for an agent that is ahead of the server repeatedly is read again a few times, and then less and
// less often, for every way of reporting it.
func TestAgentThatIsAheadAgainAndAgainIsPutOff(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "app", "")
	d.render(t, "default", "app", "1")
	target := d.targets(t, "default", "app")["paris"]
	before, has := d.lastChange(t), target.Desired.Version
	for range 20 {
		has.Generation++
		ok(t, d.AgentAhead(d.ctx, paris, target.ID, has))
		has.Generation++
		ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: paris, Reports: []store.Report{{
			Target: target.ID, Observed: fleet.Observed{Version: has, Sync: fleet.SyncSynced, Digest: target.Desired.Digest, AsOf: d.clock.Now()},
		}}}}))
	}
	n := 0
	for _, kind := range d.changesAfter(t, before) {
		if kind == store.ChangeWake {
			n++
		}
	}
	if n < 1 || n > 4 {
		t.Errorf("the source was to be read %d times, want a few times at once and then a pause", n)
	}
}
