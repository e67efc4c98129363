package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// conditionTexts are conditions as "Type Status Reason".
func conditionTexts(conditions []fleet.Condition) []string {
	var out []string
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
	}
	return out
}

// report lets an agent report one state of a deployment.
func (d *fixture) report(t failer, agent fleet.Agent, deployment string, o fleet.Observed) {
	t.Helper()
	target := d.targets(t, "default", deployment)[agent.Name]
	o.Version, o.Digest, o.AsOf = target.Desired.Version, target.Desired.Digest, d.clock.Now()
	ok(t, d.Report(d.ctx, []rollout.AgentReports{{Agent: agent, Reports: []store.Report{{Target: target.ID, Full: true, Observed: o}}}}))
}

// covers: T12 (conditions of a deployment and of its targets)
func TestConditionsFollowTheState(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "web", "")
	step := func(what string, want ...string) control.DeploymentView {
		t.Helper()
		v := d.view(t, "web")
		if diff := cmp.Diff(want, conditionTexts(v.Conditions())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		return v
	}
	step("the source was not read", "Synced Unknown AgentNeverConnected", "Healthy Unknown NotReported", "SourceReady Unknown SourceNotRead")
	d.render(t, "default", "web", "1")
	d.present(t, paris)
	step("rendered", "Synced Unknown NotReported", "Healthy Unknown NotReported", "SourceReady True Rendered")

	d.report(t, paris, "web", fleet.Observed{Sync: fleet.SyncFailed, Health: fleet.HealthInProgress, Reason: fleet.ReasonForbidden, Message: "forbidden"})
	failed := step("an object fails", "Synced False Forbidden", "Healthy False Progressing", "SourceReady True Rendered")
	since := d.clock.Now()
	d.clock.pass(time.Minute)
	d.report(t, paris, "web", fleet.Observed{Sync: fleet.SyncFailed, Health: fleet.HealthInProgress, Reason: fleet.ReasonInvalid, Message: "invalid"})
	for _, v := range []control.DeploymentView{failed, step("it fails for another reason", "Synced False Invalid", "Healthy False Progressing", "SourceReady True Rendered")} {
		if c := v.Conditions()[0]; !c.LastTransition.Equal(since) || c.ObservedGeneration != v.SpecRevision {
			t.Errorf("%s changed at %s, want %s, while its status stays", c.Type, c.LastTransition, since)
		}
	}

	d.clock.pass(time.Minute)
	d.report(t, paris, "web", fleet.Observed{Sync: fleet.SyncSynced, Health: fleet.HealthFailed, Reason: fleet.ReasonImagePullBackOff, Message: "no such image"})
	v := step("synced, and a pod does not start", "Synced True Synced", "Healthy False ImagePullBackOff", "SourceReady True Rendered")
	if c := v.Conditions()[0]; !c.LastTransition.Equal(d.clock.Now()) {
		t.Errorf("it is synced since %s, want %s", c.LastTransition, d.clock.Now())
	}
	if diff := cmp.Diff([]string{"Synced True Synced", "Healthy False ImagePullBackOff"}, conditionTexts(v.Targets[0].Conditions())); diff != "" {
		t.Errorf("the target (-want +got):\n%s", diff)
	}
	_, err := d.SuspendDeployment(d.ctx, root, "default", "web", "audit")
	ok(t, err)
	step("suspended", "Synced True Synced", "Healthy False ImagePullBackOff", "SourceReady True Rendered", "Held True Suspended")
}

// lost makes an agent disconnected.
func (d *fixture) lost(t failer, a fleet.Agent) {
	t.Helper()
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
		c, err := tx.Connections().OfAgentsAllTenants(d.ctx, []fleet.AgentID{a.ID})
		if err != nil {
			return err
		}
		_, err = tx.Connections().Close(d.ctx, a.TenantID, c[0].SessionID, d.clock.Now(), d.clock.Now())
		return err
	}))
}

// A time that goes backwards, or that is before the status changed, would make alerts fire at once or never.
func TestTransitionsAreDatedOrHaveNoTime(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	d.present(t, paris)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	d.report(t, paris, "web", fleet.Observed{Sync: fleet.SyncSynced, Health: fleet.HealthCurrent})
	reported := d.clock.Now()
	check := func(what string, synced, healthy, target string, times ...time.Time) {
		t.Helper()
		v := d.view(t, "web")
		of, one := v.Conditions(), v.Targets[0].Conditions()
		got := []string{conditionTexts(of)[0], conditionTexts(of)[1], conditionTexts(one)[1]}
		if diff := cmp.Diff([]string{synced, healthy, target}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		for i, at := range []time.Time{of[0].LastTransition, of[1].LastTransition, one[1].LastTransition} {
			if !at.Equal(times[i]) {
				t.Errorf("%s: time %d is %s, want %s", what, i, at, times[i])
			}
		}
	}
	none := time.Time{}
	check("healthy", "Synced True Synced", "Healthy True Available", "Healthy True Available", reported, none, reported)

	_, err := d.Freeze(d.ctx, root, "audit")
	ok(t, err)
	d.clock.pass(time.Hour)
	d.lost(t, paris)
	gone := d.view(t, "web").Targets[0].View.StaleSince
	check("the agent is away in a freeze", "Synced True Synced", "Healthy Unknown AgentDisconnected", "Healthy Unknown AgentDisconnected", reported, gone, gone)
	if v := d.view(t, "web"); v.Reason != fleet.ReasonAgentDisconnected {
		t.Errorf("the reason is %s: the freeze hides that the agent is away", v.Reason)
	}
	frozen, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{Reason: fleet.ReasonFleetFrozen})
	ok(t, err)
	stale, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{Reason: fleet.ReasonSynced})
	ok(t, err)
	if len(frozen) != 1 || len(stale) != 0 {
		t.Errorf("%d are frozen, want 1; %d are synced, want none: the agent is away", len(frozen), len(stale))
	}
	_, err = d.Unfreeze(d.ctx, root)
	ok(t, err)

	d.clock.pass(time.Hour)
	paris.CreatedAt = d.clock.Now() // present uses it as the time of the connection
	d.present(t, paris)
	check("it is back", "Synced True Synced", "Healthy True Available", "Healthy True Available", reported, none, d.clock.Now())

	d.clock.pass(time.Hour)
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
		v := d.view(t, "web")
		return tx.Deployments().SetSourceError(d.ctx, v.TenantID, v.ID, fleet.ReasonRenderFailed, "bad YAML", d.clock.Now())
	}))
	check("the source is broken", "Synced False RenderFailed", "Healthy True Available", "Healthy True Available", d.clock.Now(), none, d.clock.Now().Add(-time.Hour))
}

// covers: T12 (conditions of agents and repositories)
func TestConditionsOfAgentsAndRepositories(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", nil)
	agent := func() string {
		v, err := d.Agent(d.ctx, root, "default", "paris")
		ok(t, err)
		return conditionTexts(v.Conditions())[0]
	}
	if got := agent(); got != "Connected False AgentNeverConnected" {
		t.Errorf("before it connects: %s", got)
	}
	d.present(t, paris)
	if got := agent(); got != "Connected True AgentConnected" {
		t.Errorf("connected: %s", got)
	}
	web := d.deploy(t, "default", "web", "")
	for _, c := range []struct {
		message string
		reason  fleet.Reason
		want    string
	}{
		{"", "", "Readable True RepositoryReadable"}, {"no route", "", "Readable False RepositoryUnreadable"}, {"denied", fleet.ReasonHostDenied, "Readable False HostDenied"},
	} {
		ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
			return tx.Repositories().SetChecked(d.ctx, web.TenantID, web.RepositoryID, d.clock.Now(), c.message, c.reason)
		}))
		repos, err := d.Repositories(d.ctx, root, "default", store.RepositoryFilter{Reason: repositoryReason(c.message, c.reason)})
		ok(t, err)
		if len(repos) != 1 || conditionTexts(repos[0].Conditions())[0] != c.want {
			t.Errorf("filter by reason finds %d repositories, want one with %s", len(repos), c.want)
		}
	}
}

func repositoryReason(message string, reason fleet.Reason) fleet.Reason {
	return fleet.Repository{Error: message, ErrorReason: reason, CheckedAt: time.Unix(1, 0)}.State()
}

// What a list shows as a reason is what the filter finds it by.
//
// covers: T12 (filters)
func TestReasonsAreFilters(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris, rome := d.enroll(t, "default", "paris", nil), d.enroll(t, "default", "rome", nil)
	d.enroll(t, "default", "atlantis", nil)
	d.present(t, paris)
	d.present(t, rome)
	for name, o := range map[string]fleet.Observed{
		"a": {Sync: fleet.SyncSynced, Health: fleet.HealthCurrent},
		"b": {Sync: fleet.SyncFailed, Health: fleet.HealthInProgress, Reason: fleet.ReasonAdmissionDenied},
		"c": {Sync: fleet.SyncSynced, Health: fleet.HealthFailed, Reason: fleet.ReasonCrashLoopBackOff},
		"d": {Sync: fleet.SyncOutOfSync, Health: fleet.HealthCurrent},
	} {
		d.deploy(t, "default", name, "")
		d.render(t, "default", name, "1")
		d.report(t, paris, name, o)
	}
	_, err := d.SuspendDeployment(d.ctx, root, "default", "a", "audit")
	ok(t, err)
	d.rendered(t, "default", "a", configMap("a", "2"))
	list, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{})
	ok(t, err)
	for _, v := range list {
		found, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{Reason: v.Reason})
		ok(t, err)
		if !containsName(found, v.Name) {
			t.Errorf("%s has the reason %s and is not found by it", v.Name, v.Reason)
		}
		one, err := d.Deployment(d.ctx, root, "default", v.Name)
		ok(t, err)
		for _, target := range one.Targets {
			same, err := d.Targets(d.ctx, root, "default", v.Name, store.TargetFilter{Reason: target.View.Reason})
			ok(t, err)
			for _, s := range same {
				if s.View.Reason != target.View.Reason {
					t.Errorf("%s on %s has the reason %s, and is found by %s", v.Name, s.AgentName, s.View.Reason, target.View.Reason)
				}
			}
			if len(same) == 0 {
				t.Errorf("%s on %s is not found by its reason %s", v.Name, target.AgentName, target.View.Reason)
			}
		}
	}
	for reason, want := range map[fleet.Reason]int{fleet.ReasonAgentConnected: 2, fleet.ReasonAgentNeverConnected: 1, fleet.ReasonAgentDisconnected: 0} {
		agents, err := d.Agents(d.ctx, root, "default", store.AgentFilter{Reason: reason})
		ok(t, err)
		if len(agents) != want {
			t.Errorf("%d agents are %s, want %d", len(agents), reason, want)
		}
	}
}

func containsName(list []control.DeploymentView, name string) bool {
	for _, v := range list {
		if v.Name == name {
			return true
		}
	}
	return false
}
