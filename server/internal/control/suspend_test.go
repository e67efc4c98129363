package control_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// covers: A17 (suspend and resume per deployment, environment, tenant and fleet)
func TestNothingNewIsSentWhileSuspended(t *testing.T) {
	t.Parallel()
	levels := map[string]struct{ suspend, resume func(*fixture) error }{
		"Deployment": {
			func(d *fixture) error {
				_, err := d.SuspendDeployment(d.ctx, root, "default", "app", "audit")
				return err
			},
			func(d *fixture) error { _, err := d.ResumeDeployment(d.ctx, root, "default", "app"); return err },
		},
		"Environment": {
			func(d *fixture) error {
				_, err := d.SuspendEnvironment(d.ctx, root, "default", "default", "audit")
				return err
			},
			func(d *fixture) error { _, err := d.ResumeEnvironment(d.ctx, root, "default", "default"); return err },
		},
		"Tenant": {
			func(d *fixture) error { _, err := d.SuspendTenant(d.ctx, root, "default", "audit"); return err },
			func(d *fixture) error { _, err := d.ResumeTenant(d.ctx, root, "default"); return err },
		},
		"Fleet": {
			func(d *fixture) error { _, err := d.Freeze(d.ctx, root, "audit"); return err },
			func(d *fixture) error { _, err := d.Unfreeze(d.ctx, root); return err },
		},
	}
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.enroll(t, "default", "paris", nil)
			d.deploy(t, "default", "app", "default")
			d.render(t, "default", "app", "1")
			before := d.targets(t, "default", "app")["paris"].Desired
			ok(t, level.suspend(d))
			last := d.lastChange(t)
			ok(t, level.suspend(d))
			if d.lastChange(t) != last {
				t.Error("suspending twice for the same reason changes something")
			}
			newest := d.rendered(t, "default", "app", configMap("a", "2"))
			d.edit(t, "default", "app", control.UpdateDeployment{Namespace: ptr("shop")})
			d.enroll(t, "default", "rome", nil)
			run, err := d.Rollback(d.ctx, root, "default", "app", control.Rollback{Revision: 1})
			ok(t, err)
			targets := d.targets(t, "default", "app")
			if got := targets["paris"].Desired; got.Version != before.Version || got.Digest != before.Digest {
				t.Fatalf("something was sent: %+v", got)
			}
			if got := targets["rome"].Desired; got.Digest != "" {
				t.Fatalf("a new agent was given something: %+v", got)
			}
			if run.Phase != fleet.RunPending || !strings.Contains(run.Message, "audit") {
				t.Errorf("a run is %s: %q", run.Phase, run.Message)
			}
			v := d.view(t, "app")
			if v.Sync != fleet.SyncOutOfSync || !strings.Contains(v.Held.Message, "suspended by root") || !strings.Contains(v.Message, "audit") {
				t.Errorf("reads %s, held %q, %q", v.Sync, v.Held, v.Message)
			}
			_, err = d.TerminateRun(d.ctx, root, "default", run.ID, control.Match{})
			ok(t, err)
			ok(t, level.resume(d))
			for agent, target := range d.targets(t, "default", "app") {
				if target.Desired.Digest != newest || target.Desired.Namespace != "shop" {
					t.Errorf("%s was not given what it missed: %+v", agent, target.Desired)
				}
			}
		})
	}
}

func TestARunThatWaitedStartsWhenItsDeploymentIsResumed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "app", "default")
	first := d.render(t, "default", "app", "1")
	d.render(t, "default", "app", "2")
	_, err := d.SuspendEnvironment(d.ctx, root, "default", "default", "audit")
	ok(t, err)
	run, err := d.Rollback(d.ctx, root, "default", "app", control.Rollback{Revision: 1})
	ok(t, err)
	_, err = d.ResumeEnvironment(d.ctx, root, "default", "default")
	ok(t, err)
	run, err = d.Run(d.ctx, root, "default", run.ID)
	ok(t, err)
	if got := d.targets(t, "default", "app")["paris"].Desired.Digest; run.Phase != fleet.RunRunning || got != first {
		t.Errorf("the run is %s, and the target has %s", run.Phase, got)
	}
}
