package control_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

func (d *fixture) filter(t failer, agent string, exclude ...string) {
	t.Helper()
	_, err := d.UpdateAgent(d.ctx, root, "default", agent, control.UpdateAgent{Kinds: &fleet.KindFilter{Exclude: exclude}}, control.Match{})
	ok(t, err)
}

// covers: A1 (kind filters at the server)
func TestServerRefusesKindsForEachAgent(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	strict, other := d.enroll(t, "default", "strict", nil), d.enroll(t, "default", "other", nil)
	d.deploy(t, "default", "app", "")
	first := d.render(t, "default", "app", "1")
	d.filter(t, "strict", "Secret")
	d.rendered(t, "default", "app", configMap("a", "2")+"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")
	d.decideAgain(t)
	got := d.targets(t, "default", "app")
	if got["strict"].Desired.Digest != first || got["strict"].Desired.Generation != 1 || got["other"].Desired.Digest == first {
		t.Errorf("strict has %+v, other has %+v; want only the other to get the revision", got["strict"].Desired, got["other"].Desired)
	}
	for _, word := range []string{`agent "strict"`, "Secret default/s", "rule Secret"} {
		if !strings.Contains(got["strict"].KindError, word) {
			t.Errorf("%q lacks %q", got["strict"].KindError, word)
		}
	}
	d.wantEvent(t, "default", "KindNotAllowed")
	if v := d.view(t, "app"); v.Sync != fleet.SyncFailed || v.Reason != fleet.ReasonKindNotAllowed {
		t.Errorf("the deployment is %s/%s", v.Sync, v.Reason)
	}
	d.say(t, other, "app", fleet.SyncSynced, "")
	d.say(t, strict, "app", fleet.SyncSynced, "")
	run := d.rollback(t, 2) // to the revision that is refused
	d.say(t, other, "app", fleet.SyncSynced, "")
	if done := d.run(t, run.ID); done.Phase != fleet.RunFailed {
		t.Errorf("a run to an agent that refuses it is %s: %s", done.Phase, done.Message)
	}
	// A rollback to a revision without the kind works, and its release is refused again.
	d.rollback(t, 1)
	if got := d.targets(t, "default", "app")["strict"]; got.KindError != "" || got.Desired.Digest != first {
		t.Errorf("after a rollback the target is %+v", got)
	}
	d.filter(t, "strict")
	d.decideAgain(t)
	if got := d.targets(t, "default", "app")["strict"]; got.KindError != "" || !got.Kinds.IsZero() {
		t.Errorf("without a filter the target is %+v", got)
	}
}

// decideAgain has every deployment decided on again, like a look at Git.
func (d *fixture) decideAgain(t failer) {
	t.Helper()
	_, err := d.SuspendTenant(d.ctx, root, "default", "settling")
	ok(t, err)
	_, err = d.ResumeTenant(d.ctx, root, "default")
	ok(t, err)
}

// A state that was decided after an edit of the agent must not reach an agent with the configuration from before.
//
// covers: A6 (no prune with an outdated kind filter)
func TestNoStateIsReadForAnOutdatedConfiguration(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "edge", nil)
	d.deploy(t, "default", "app", "")
	d.render(t, "default", "app", "1")
	before, err := d.Agent(d.ctx, root, "default", "edge")
	ok(t, err)
	_, err = d.UpdateAgent(d.ctx, root, "default", "edge", control.UpdateAgent{Labels: &map[string]string{"region": "eu"}}, control.Match{})
	ok(t, err)
	if got, err := d.TargetsOf(d.ctx, before.Agent, nil); err != nil || len(got) != 1 {
		t.Errorf("other labels: TargetsOf() = %d targets, %v; want them to make no difference", len(got), err)
	}
	d.filter(t, "edge", "ConfigMap")
	if _, err := d.TargetsOf(d.ctx, before.Agent, nil); !errors.Is(err, control.ErrAgentChanged) {
		t.Errorf("another filter: TargetsOf() = %v, want ErrAgentChanged", err)
	}
	now, err := d.Agent(d.ctx, root, "default", "edge")
	ok(t, err)
	if _, err := d.TargetsOf(d.ctx, now.Agent, nil); err != nil {
		t.Errorf("the current agent: TargetsOf() = %v", err)
	}
}

func TestInvalidKindFilterIsRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	bad := fleet.KindFilter{Include: []string{"configmaps"}}
	var invalid *fleet.InvalidError
	if _, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "edge", Kinds: bad}); !errors.As(err, &invalid) || invalid.Field != "kindFilter.include" {
		t.Errorf("enrolling: %v", err)
	}
	d.enroll(t, "default", "edge", nil)
	if _, err := d.UpdateAgent(d.ctx, root, "default", "edge", control.UpdateAgent{Kinds: &bad}, control.Match{}); !errors.As(err, &invalid) {
		t.Errorf("editing: %v", err)
	}
}
