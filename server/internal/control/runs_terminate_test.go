package control_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// covers: A16 (terminate stops what is under way)
func TestATerminatedRunStopsTheAgentsThatHaveNotFinishedIt(t *testing.T) {
	t.Parallel()
	d, paris, rome, digests := staged(t)
	first := d.rollback(t, 1)
	d.say(t, paris, "app", fleet.SyncSynced, "")
	given := d.targets(t, "default", "app")
	_, err := d.TerminateRun(d.ctx, root, "default", first.ID, control.Match{})
	ok(t, err)
	stopped := func(when string) {
		t.Helper()
		now := d.targets(t, "default", "app")
		if got := now["paris"].Desired; got.Policy.DryRun || got.Version != given["paris"].Desired.Version {
			t.Errorf("%s: paris had finished, and was given %+v", when, got)
		}
		if got := now["rome"].Desired; !got.Policy.DryRun || got.Digest != digests[0] || got.Generation <= given["rome"].Desired.Generation {
			t.Errorf("%s: rome had not finished, and has %+v", when, got)
		}
	}
	stopped("terminated")
	d.say(t, rome, "app", fleet.SyncOutOfSync, "60 objects would change")
	d.render(t, "default", "app", "4") // settles it once more
	stopped("a newer commit is there")
	if v := d.view(t, "app"); !strings.Contains(v.Held.Message, "run 1 was terminated") || !strings.Contains(v.Held.Message, "release") || v.Pin.TerminatedRun != first.Seq {
		t.Errorf("it is held by %q, pinned %+v", v.Held, v.Pin)
	}
	third := d.enroll(t, "default", "oslo", map[string]string{"in": "yes"})
	if got := d.targets(t, "default", "app")[third.Name].Desired; !got.Policy.DryRun || got.Digest != digests[0] {
		t.Errorf("an agent that joins was given %+v", got)
	}

	d.rollback(t, 1)
	for name, target := range d.targets(t, "default", "app") {
		if target.Desired.Policy.DryRun || target.Desired.Digest != digests[0] {
			t.Errorf("by the next run %s was given %+v", name, target.Desired)
		}
	}
	if v := d.view(t, "app"); v.Pin.TerminatedRun != 0 {
		t.Errorf("the next run is pinned as %+v", v.Pin)
	}
}

// A terminated run does not hold back a release.
func TestAReleaseEndsATermination(t *testing.T) {
	t.Parallel()
	d, _, _, digests := staged(t)
	run := d.rollback(t, 1)
	_, err := d.TerminateRun(d.ctx, root, "default", run.ID, control.Match{})
	ok(t, err)
	_, err = d.ReleaseDeployment(d.ctx, root, "default", "app")
	ok(t, err)
	for name, target := range d.targets(t, "default", "app") {
		if target.Desired.Policy.DryRun || target.Desired.Digest != digests[2] {
			t.Errorf("%s was given %+v", name, target.Desired)
		}
	}
}
