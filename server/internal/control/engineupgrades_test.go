package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// silentOn reports everything as current except the targets of a deployment, which it does not report.
func silentOn(deployment string) health {
	return func(t fleet.Target) fleet.Health {
		if t.DeploymentName == deployment {
			return ""
		}
		return fleet.HealthCurrent
	}
}

// covers: E7 (one after another, each checked before the next)
func TestUpgradesOfArgoCDGoOneInstanceAfterAnother(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		f := newUpgradeFleet(t, newReplicas(t, db, 1, control.Config{})[0])
		untouched, before := f.targetOf(t, "argocd-2"), f.targetOf(t, "canary-1")
		f.upgrade(t, "to-v2", "v2", 0)
		f.until(t, "to-v2", silentOn("argocd-1"), instancePhase(0, fleet.EngineInstanceInstalling))
		_, err := f.CreateRun(t.Context(), admin, "default", "argocd-2", control.CreateRun{Revision: "v2"})
		wantConflict(t, err, `engine upgrade "to-v2"`)
		// The canary is healthy, but from before: the check waits for a newer version of it.
		u := f.until(t, "to-v2", silentOn("canary-1"), func(u fleet.EngineUpgrade) error {
			if i := u.Instances[0]; i.Phase != fleet.EngineInstanceChecking || i.CanaryAfter != before.Desired.Version {
				return fmt.Errorf("%+v", i)
			}
			return nil
		})
		if got := f.targetOf(t, "argocd-1").Desired.Commit; got != f.v2 || u.Instances[0].BeforeCommit != f.v1 {
			t.Errorf("the first instance has %s, and was at %s", got, u.Instances[0].BeforeCommit)
		}
		if got := f.targetOf(t, "argocd-2"); got.Desired.Version != untouched.Desired.Version || u.Instances[1].Phase != fleet.EngineInstancePending {
			t.Errorf("the second instance was touched before the first was checked: %+v", got.Desired)
		}
		if got := f.targetOf(t, "canary-1"); got.Desired.Version.Compare(before.Desired.Version) <= 0 || got.Desired.Digest != before.Desired.Digest {
			t.Errorf("the canary gets %+v after %+v", got.Desired, before.Desired)
		}
		u = f.until(t, "to-v2", current, upgradePhase(fleet.EngineUpgradeSucceeded))
		if first, second := u.Instances[0], u.Instances[1]; first.FinishedAt.After(second.StartedAt) || second.Commit != f.v2 {
			t.Errorf("%+v, then %+v", first, second)
		}
		for _, name := range []string{"argocd-1", "argocd-2"} {
			if got := f.runsOf(t, name); len(got) != 2 || f.targetOf(t, name).Observed.Digest != f.targetOf(t, "argocd-1").Desired.Digest {
				t.Errorf("the runs of %s are %v", name, got)
			}
		}
	})
}

// covers: E7 (halt and way back)
func TestUpgradeOfArgoCDThatFailsIsRolledBackAndHalted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *testDatabase) {
		f := newUpgradeFleet(t, newReplicas(t, db, 1, control.Config{})[0])
		untouched, before := f.targetOf(t, "argocd-2"), f.targetOf(t, "argocd-1")
		broken := func(target fleet.Target) fleet.Health {
			if target.DeploymentName == "argocd-1" && target.Desired.Commit == f.v2 {
				return fleet.HealthFailed
			}
			return fleet.HealthCurrent
		}
		for name, revision := range map[string]string{"unhealthy": "v2", "invalid": "bad", "missing": "nope"} {
			f.upgrade(t, name, revision, 0)
			u := f.until(t, name, broken, upgradePhase(fleet.EngineUpgradeHalted))
			i := u.Instances[0]
			if i.Phase != fleet.EngineInstanceRolledBack || u.Reason != fleet.ReasonEngineInstallFailed || u.Instances[1].Phase != fleet.EngineInstancePending {
				t.Errorf("%s ended as %+v", name, u)
			}
			if !strings.Contains(u.Message, `agent "eng-1"`) || !strings.Contains(u.Message, "1 instance not touched") {
				t.Errorf("%s says %q", name, u.Message)
			}
			if got := f.targetOf(t, "argocd-1"); got.Desired.Digest != before.Desired.Digest || got.Observed.Digest != before.Desired.Digest {
				t.Errorf("after %s, the first instance has %+v", name, got.Desired)
			}
		}
		if got := f.targetOf(t, "argocd-2"); got.Desired.Version != untouched.Desired.Version || len(f.runsOf(t, "argocd-2")) != 1 {
			t.Errorf("the second instance was touched: %+v", got.Desired)
		}
		// The instances are free again.
		f.upgrade(t, "again", "v2", 0)
		f.until(t, "again", current, upgradePhase(fleet.EngineUpgradeSucceeded))
	})
}

// covers: E7 (a deadline ends the check, and a failed way back is said)
func TestUpgradeOfArgoCDWhoseWayBackFailsSaysSo(t *testing.T) {
	t.Parallel()
	f := newUpgradeFleet(t, newReplica(t))
	f.upgrade(t, "silent", "v2", time.Second)
	u := f.until(t, "silent", silentOn("canary-1"), upgradePhase(fleet.EngineUpgradeRollbackFailed))
	i := u.Instances[0]
	if i.Phase != fleet.EngineInstanceRollbackFailed || u.Reason != fleet.ReasonEngineUpgradeRollbackFailed || !strings.Contains(u.Message, `canary "canary-1"`) {
		t.Errorf("it ended as %+v", u)
	}
	if got := f.targetOf(t, "argocd-1").Desired.Commit; got != f.v1 {
		t.Errorf("the instance is at %s", got)
	}
	events, err := f.Events(t.Context(), admin, "default", store.EventFilter{})
	ok(t, err)
	if !slices.ContainsFunc(events, func(e fleet.Event) bool {
		return e.Reason == fleet.ReasonEngineUpgradeRollbackFailed && e.Type == fleet.EventWarning && e.Agent == "eng-1"
	}) {
		t.Errorf("no event says so: %+v", events)
	}
}

// covers: E7 (halted by a user)
func TestUpgradesOfArgoCDAreHaltedByUsers(t *testing.T) {
	t.Parallel()
	f := newUpgradeFleet(t, newReplica(t))
	halt := func(name string, how fleet.EngineUpgradeHalt) {
		t.Helper()
		_, err := f.HaltEngineUpgrade(t.Context(), admin, "default", name, how)
		ok(t, err)
	}
	f.upgrade(t, "back", "v2", 0)
	f.until(t, "back", silentOn("argocd-1"), instancePhase(0, fleet.EngineInstanceInstalling))
	halt("back", fleet.HaltRollBack)
	u := f.until(t, "back", current, upgradePhase(fleet.EngineUpgradeHalted))
	if u.Instances[0].Phase != fleet.EngineInstanceRolledBack || u.Reason != fleet.ReasonEngineUpgradeHaltedByUser || f.targetOf(t, "argocd-1").Desired.Commit != f.v1 {
		t.Errorf("rolled back: %+v", u)
	}
	f.upgrade(t, "finish", "v2", 0)
	f.until(t, "finish", silentOn("canary-1"), instancePhase(0, fleet.EngineInstanceChecking))
	halt("finish", fleet.HaltAfterInstance)
	u = f.until(t, "finish", current, upgradePhase(fleet.EngineUpgradeHalted))
	if u.Instances[0].Phase != fleet.EngineInstanceUpgraded || u.Instances[1].Phase != fleet.EngineInstancePending || f.targetOf(t, "argocd-2").Desired.Commit != f.v1 {
		t.Errorf("finished: %+v", u)
	}
	_, err := f.HaltEngineUpgrade(t.Context(), admin, "default", "finish", fleet.HaltRollBack)
	wantConflict(t, err, "is done")
}

func TestUpgradesOfArgoCDAreChecked(t *testing.T) {
	t.Parallel()
	f := newUpgradeFleet(t, newReplica(t))
	good := control.EngineUpgradeInstance{Agent: "eng-1", Deployment: "argocd-1", Canary: "canary-1"}
	for name, tc := range map[string]struct {
		change func(*control.CreateEngineUpgrade)
		field  string
	}{
		"no revision":                  {func(u *control.CreateEngineUpgrade) { u.Revision = "" }, "revision"},
		"a bad revision":               {func(u *control.CreateEngineUpgrade) { u.Revision = "--evil" }, "revision"},
		"a bad name":                   {func(u *control.CreateEngineUpgrade) { u.Name = "A" }, "name"},
		"a long timeout":               {func(u *control.CreateEngineUpgrade) { u.Timeout = 48 * time.Hour }, "timeoutSeconds"},
		"no instance":                  {func(u *control.CreateEngineUpgrade) { u.Instances = nil }, "instances"},
		"the same twice":               {func(u *control.CreateEngineUpgrade) { u.Instances = append(u.Instances, good) }, "instances[1]"},
		"no such agent":                {func(u *control.CreateEngineUpgrade) { u.Instances[0].Agent = "x" }, "instances[0].agent"},
		"an agent without Argo CD":     {func(u *control.CreateEngineUpgrade) { u.Instances[0].Agent = "in-1" }, "instances[0].agent"},
		"no such deployment":           {func(u *control.CreateEngineUpgrade) { u.Instances[0].Deployment = "x" }, "instances[0].deployment"},
		"an automated deployment":      {func(u *control.CreateEngineUpgrade) { u.Instances[0].Deployment = "canary-1" }, "instances[0].deployment"},
		"a canary on another agent":    {func(u *control.CreateEngineUpgrade) { u.Instances[0].Canary = "canary-2" }, "instances[0].canary"},
		"the deployment as the canary": {func(u *control.CreateEngineUpgrade) { u.Instances[0].Canary = "argocd-1" }, "instances[0].canary"},
	} {
		req := control.CreateEngineUpgrade{Name: "u", Revision: "v2", Instances: []control.EngineUpgradeInstance{good}}
		tc.change(&req)
		_, err := f.CreateEngineUpgrade(t.Context(), admin, "default", req)
		if err == nil {
			t.Errorf("%s is accepted", name)
			continue
		}
		wantInvalid(t, err, tc.field)
	}
	f.upgrade(t, "first", "v2", 0)
	_, err := f.CreateEngineUpgrade(t.Context(), admin, "default", control.CreateEngineUpgrade{Name: "second", Revision: "v2", Instances: []control.EngineUpgradeInstance{good}})
	wantConflict(t, err, `engine upgrade "first"`)
}

// A server that is killed before or after the commit of any step is replaced by another one. No step is taken twice and
// none is left out.
//
// covers: E7 (continues after a crash at every step)
func TestUpgradesOfArgoCDSurviveACrashAtEveryStep(t *testing.T) {
	t.Parallel()
	for revision, want := range map[string]fleet.EngineUpgradePhase{"v2": fleet.EngineUpgradeSucceeded, "bad": fleet.EngineUpgradeHalted} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, db *testDatabase) {
				f := newUpgradeFleet(t, newReplicas(t, db, 1, control.Config{BeatEvery: 150 * time.Millisecond})[0])
				canary := f.targetOf(t, "canary-1").Desired.Version
				m := f.restart(t, db, false)
				f.upgrade(t, "u", revision, 0)
				var phase fleet.EngineUpgradePhase
				kills := 0
				for phase != want && kills < 60 {
					f.answerUntilDead(t, m)
					kills++
					m = f.restart(t, db, kills%2 == 1)
					u, err := f.EngineUpgrade(t.Context(), admin, "default", "u")
					ok(t, err)
					if phase = u.Phase; phase.Done() && phase != want {
						t.Fatalf("it ended as %+v", u)
					}
				}
				f.checkOnce(t, want, canary)
				if kills < 8 {
					t.Errorf("only %d kills", kills)
				}
			})
		})
	}
}

// checkOnce checks that nothing was done twice.
func (f *upgradeFleet) checkOnce(t *testing.T, want fleet.EngineUpgradePhase, canary fleet.Version) {
	t.Helper()
	u, err := f.EngineUpgrade(t.Context(), admin, "default", "u")
	ok(t, err)
	first, second := []fleet.RunKind{fleet.RunSync, fleet.RunSync}, []fleet.RunKind{fleet.RunSync, fleet.RunSync}
	if want == fleet.EngineUpgradeHalted {
		first, second = []fleet.RunKind{fleet.RunRollback, fleet.RunSync, fleet.RunSync}, []fleet.RunKind{fleet.RunSync}
	}
	if got := f.runsOf(t, "argocd-1"); u.Phase != want || !slices.Equal(got, first) {
		t.Errorf("%s with the runs %v of the first instance, want %v", u.Phase, got, first)
	}
	if got := f.runsOf(t, "argocd-2"); !slices.Equal(got, second) {
		t.Errorf("the runs of the second instance are %v, want %v", got, second)
	}
	if got := f.targetOf(t, "canary-1").Desired.Version; got.Generation != canary.Generation+1 {
		t.Errorf("the canary was synced up to %+v from %+v", got, canary)
	}
}
