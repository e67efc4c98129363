package control_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// places returns the state of a deployment, by agent.
func (d *fixture) places(t failer, tenant, deployment string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for agent, target := range d.targets(t, tenant, deployment) {
		out[agent] = place(target)
	}
	return out
}

func (d *fixture) wantPlaces(t failer, tenant, deployment string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, d.places(t, tenant, deployment)); diff != "" {
		t.Fatalf("targets of %s (-want +got):\n%s", deployment, diff)
	}
}

func (d *fixture) wantEvent(t failer, tenant, reason string) {
	t.Helper()
	events, err := d.Events(d.ctx, root, tenant, store.EventFilter{})
	ok(t, err)
	if !slices.ContainsFunc(events, func(e fleet.Event) bool { return string(e.Reason) == reason }) {
		t.Fatalf("no event %s in %+v", reason, events)
	}
}

func (d *fixture) changesAfter(t failer, seq int64) []store.ChangeKind {
	t.Helper()
	var kinds []store.ChangeKind
	ok(t, d.store.View(d.ctx, func(tx store.Tx) error {
		changes, err := tx.Changes().AfterAllTenants(d.ctx, seq, 0)
		for _, c := range changes {
			kinds = append(kinds, c.Kind)
		}
		return err
	}))
	return kinds
}

func TestAgentEnrolledLaterGetsWhatItsEnvironmentHoldsAtOnce(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", nil)
	d.deploy(t, "default", "web", "")
	digest := d.render(t, "default", "web", "1")
	d.enroll(t, "default", "rome", nil)
	got := d.targets(t, "default", "web")["rome"].Desired
	if got.Digest != digest || got.Generation != 1 {
		t.Fatalf("got %+v", got)
	}
}

// A deleted agent may just be unable to reach the server: this must not delete anything in its cluster.
//
// covers: C8
func TestDeletedAgentLeavesItsObjectsAlone(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "prod"})
	ok(t, err)
	d.enroll(t, "default", "other", nil)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	d.deploy(t, "default", "unheard", "")

	before := d.lastChange(t)
	ok(t, d.DeleteAgent(d.ctx, root, "default", "prod", control.Match{}))
	if _, _, err := d.AuthenticateAgent(d.ctx, made.Token); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("its token: %v, want it refused", err)
	}
	d.wantPlaces(t, "default", "web", map[string]string{"prod": "detached", "other": "attached"})
	d.wantPlaces(t, "default", "unheard", map[string]string{"other": "empty"})
	gone := d.targets(t, "default", "web")["prod"]
	if gone.AgentID != "" || !strings.Contains(gone.DetachedWhy, "was deleted") {
		t.Errorf("got %+v", gone)
	}
	if targets, err := d.TargetsOf(d.ctx, made.Agent, nil); err != nil || len(targets) != 0 {
		t.Errorf("the agent would still get %+v, %v; want no tombstone or any other target", targets, err)
	}
	if kinds := d.changesAfter(t, before); !slices.Contains(kinds, store.ChangeToken) || !slices.Contains(kinds, store.ChangeAgent) {
		t.Errorf("changes %v, want those that end its sessions", kinds)
	}
	d.wantEvent(t, "default", "AgentDeleted")
	d.enroll(t, "default", "prod", nil) // its name is free
}

// covers: T5
func TestAgentIsDeletedAndRecreatedUnderTheSameName(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	for range 3 {
		d.enroll(t, "default", "prod", nil)
		if targets, err := d.Agents(d.ctx, root, "default", store.AgentFilter{}); err != nil || targets[0].Targets != 1 {
			t.Fatalf("got %+v, %v", targets, err)
		}
		ok(t, d.DeleteAgent(d.ctx, root, "default", "prod", control.Match{}))
	}
	view, err := d.Deployment(d.ctx, root, "default", "web")
	ok(t, err)
	if len(view.Targets) != 1 {
		t.Errorf("%d targets are listed, want the one that each agent of the name has gone on with", len(view.Targets))
	}
}

// A deployment that is being deleted waits for its agents; a deleted agent never responds.
func TestDeletedAgentHoldsNoDeletedDeployment(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "lost", nil)
	d.deploy(t, "default", "web", "")
	d.render(t, "default", "web", "1")
	op, err := d.DeleteDeployment(d.ctx, root, "default", "web", control.Match{})
	ok(t, err)
	listed := func() int {
		t.Helper()
		all, err := d.Deployments(d.ctx, root, "default", control.ListDeployments{})
		ok(t, err)
		return len(all)
	}
	if got := listed(); got != 1 {
		t.Fatalf("%d deployments, want one that waits for its agent", got)
	}
	ok(t, d.DeleteAgent(d.ctx, root, "default", "lost", control.Match{}))
	if got := listed(); got != 0 {
		t.Errorf("%d deployments wait for an agent that is gone", got)
	}
	if op, err = d.Operation(d.ctx, root, "default", op.ID); err != nil || !op.State.Done() {
		t.Errorf("the deletion is still under way: %+v, %v", op, err)
	}
	d.wantEvent(t, "default", "DeletionAbandoned")
}

func TestAgentIsDeletedByThoseWhoMay(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	a := d.enroll(t, "default", "prod", nil)
	if err := d.DeleteAgent(d.ctx, root, "default", "nobody", control.Match{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an agent that is not there: %v", err)
	}
	if err := d.DeleteAgent(d.ctx, auth.Principal{Name: "stranger"}, "default", "prod", control.Match{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a caller without a role: %v", err)
	}
	tenant, err := d.Tenant(d.ctx, root, "default")
	ok(t, err)
	if err := d.DeleteAgent(d.ctx, member(tenant, fleet.RoleDeployer), "default", "prod", control.Match{}); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("a deployer: %v", err)
	}
	if err := d.DeleteAgent(d.ctx, root, "default", "prod", control.Match{ID: string(a.ID), SpecRevision: a.SpecRevision + 1}); !errors.Is(err, control.ErrStale) {
		t.Errorf("another agent than the caller saw: %v", err)
	}
}

// covers: T4
func TestRelabelledAgentMovesBetweenEnvironments(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", map[string]string{"tier": "prod"})
	d.enroll(t, "default", "rome", map[string]string{"tier": "prod"})
	for _, tier := range []string{"prod", "test"} {
		_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: tier, MatchLabels: map[string]string{"tier": tier}})
		ok(t, err)
		d.deploy(t, "default", "web-"+tier, tier)
		d.render(t, "default", "web-"+tier, "1")
	}
	relabel := func(tier string) control.AgentView {
		t.Helper()
		v, err := d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &map[string]string{"tier": tier}}, control.Match{})
		ok(t, err)
		return v
	}
	was := d.targets(t, "default", "web-prod")["paris"]
	v := relabel("test")
	if v.SpecRevision != 2 {
		t.Errorf("the edit is not counted: %d", v.SpecRevision)
	}
	d.wantPlaces(t, "default", "web-prod", map[string]string{"paris": "detached", "rome": "attached"})
	d.wantPlaces(t, "default", "web-test", map[string]string{"paris": "attached"})
	let := d.targets(t, "default", "web-prod")["paris"]
	if let.ID != was.ID || let.Desired.Version.Compare(was.Desired.Version) <= 0 || !strings.Contains(let.DetachedWhy, `not in environment "prod"`) {
		t.Errorf("the agent would not get the detachment: %+v", let)
	}
	quiet := d.lastChange(t)
	if v := relabel("test"); d.lastChange(t) != quiet || v.SpecRevision != 2 {
		t.Error("the same labels twice are a change")
	}
	relabel("prod")
	d.wantPlaces(t, "default", "web-prod", map[string]string{"paris": "attached", "rome": "attached"})
	d.wantPlaces(t, "default", "web-test", map[string]string{"paris": "detached"})
	back := d.targets(t, "default", "web-prod")["paris"]
	if back.ID != was.ID || back.Desired.Version.Compare(let.Desired.Version) <= 0 || back.Desired.Digest != was.Desired.Digest || back.DetachedWhy != "" {
		t.Errorf("taken up again: %+v", back)
	}
	if _, err := d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &map[string]string{}}, control.Match{ID: "agt-other", SpecRevision: 1}); !errors.Is(err, control.ErrStale) {
		t.Errorf("an edit of something older: %v", err)
	}
}

func TestPolicyMayDeleteWhatLeavesAnEnvironment(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", map[string]string{"tier": "prod"})
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", MatchLabels: map[string]string{"tier": "prod"}})
	ok(t, err)
	_, err = d.CreateDeployment(d.ctx, root, "default", control.CreateDeployment{
		Name: "web", Environment: "prod", Policy: &fleet.Policy{Prune: true, PruneOnDetach: true}, Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"},
	})
	ok(t, err)
	d.render(t, "default", "web", "1")
	relabel := func(labels map[string]string) {
		t.Helper()
		_, err := d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &labels}, control.Match{})
		ok(t, err)
	}
	relabel(nil)
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "tombstone"})
	relabel(map[string]string{"tier": "prod"})
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "attached"})
	relabel(nil)
	ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "detached"})
}

// During a freeze nothing is deleted, nor by an agent that is ahead of the server: the stored detachment may be
// older than its return.
func TestPolicyDeletesNothingInAFreezeNorBehindAnAgentsBack(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", map[string]string{"tier": "prod"})
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", MatchLabels: map[string]string{"tier": "prod"}})
	ok(t, err)
	_, err = d.CreateDeployment(d.ctx, root, "default", control.CreateDeployment{
		Name: "web", Environment: "prod", Policy: &fleet.Policy{Prune: true, PruneOnDetach: true}, Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"},
	})
	ok(t, err)
	d.render(t, "default", "web", "1")
	relabel := func(labels map[string]string) {
		t.Helper()
		_, err := d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &labels}, control.Match{})
		ok(t, err)
	}
	_, err = d.Freeze(d.ctx, root, "holiday")
	ok(t, err)
	relabel(nil)
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "detached"})
	_, err = d.Unfreeze(d.ctx, root)
	ok(t, err)
	relabel(map[string]string{"tier": "prod"})
	relabel(nil)
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "tombstone"})
	target := d.targets(t, "default", "web")["paris"]
	ok(t, d.AgentAhead(d.ctx, paris, target.ID, fleet.Version{Epoch: target.Desired.Epoch, Generation: target.Desired.Generation + 2}))
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "detached"})
}

func TestAgentWithoutALabelThatASourceNeedsKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", nil)
	_, err := d.CreateDeployment(d.ctx, root, "default", control.CreateDeployment{
		Name: "web", Source: fleet.Source{RepoURL: "https://git.example.com/apps.git", Path: "apps/{agent.labels.region}"},
	})
	ok(t, err)
	if got := d.targets(t, "default", "web")["paris"].VariantError; !strings.Contains(got, `"region"`) {
		t.Fatalf("got variant %q", got)
	}
	_, err = d.UpdateAgent(d.ctx, root, "default", "paris", control.UpdateAgent{Labels: &map[string]string{"region": "eu"}}, control.Match{})
	ok(t, err)
	eu := d.targets(t, "default", "web")["paris"].Variant
	d.enroll(t, "default", "rome", map[string]string{"region": "eu"})
	d.enroll(t, "default", "boston", map[string]string{"region": "us"})
	got := d.targets(t, "default", "web")
	if eu == "" || eu == fleet.NoVariant || got["rome"].Variant != eu || got["boston"].Variant == eu {
		t.Errorf("variants: paris %q, rome %q, boston %q", eu, got["rome"].Variant, got["boston"].Variant)
	}
}

// covers: T6
func TestBadAgentsAreRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "taken", nil)
	cases := map[string]struct {
		reason string
		req    control.EnrollAgent
		field  string
	}{
		"Name":       {"names go into Kubernetes", control.EnrollAgent{Name: "Paris"}, "name"},
		"Label":      {"so do labels", control.EnrollAgent{Name: "a", Labels: map[string]string{"a b": "c"}}, "labels"},
		"Namespaces": {"a namespace is a name", control.EnrollAgent{Name: "a", Namespaces: []string{"a/b"}}, "namespaces"},
		"TooMany":    {"each namespace costs watches", control.EnrollAgent{Name: "a", Namespaces: slices.Repeat([]string{"x"}, 201)}, "namespaces"},
		"Token":      {"a weak token is no guard", control.EnrollAgent{Name: "a", Token: "hunter2"}, "token"},
	}
	before := d.lastChange(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := d.EnrollAgent(d.ctx, root, "default", tc.req)
			wantInvalid(t, err, tc.field)
		})
	}
	if _, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "taken"}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a taken name: %v", err)
	}
	if d.lastChange(t) != before {
		t.Error("something was stored")
	}
}

// covers: C6
func TestAgentsAreListedByLabelTextAndConnection(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	paris := d.enroll(t, "default", "paris", map[string]string{"tier": "prod"})
	d.enroll(t, "default", "paris-two", map[string]string{"tier": "test"})
	d.enroll(t, "default", "rome", map[string]string{"tier": "prod"})
	for _, replica := range []string{"one", "two"} {
		ok(t, d.AgentConnected(d.ctx, fleet.Connection{
			SessionID: fleet.NewSessionID(), AgentID: paris.ID, TenantID: paris.TenantID, Replica: replica, Version: "test",
			ClusterUID: "uid-" + replica, ConnectedAt: d.clock.Now(), LastSeenAt: d.clock.Now(),
		}))
	}
	yes := true
	for want, filter := range map[string]store.AgentFilter{
		"paris paris-two rome": {},
		"paris rome":           {Labels: map[string]string{"tier": "prod"}},
		"paris paris-two":      {Text: "aris"},
		"paris":                {Connected: &yes},
		"paris-two":            {Page: store.Page{After: "paris", Limit: 1}},
	} {
		views, err := d.Agents(d.ctx, root, "default", filter)
		ok(t, err)
		var names []string
		for _, v := range views {
			names = append(names, v.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%+v: got %q, want %q", filter, got, want)
		}
	}
	v, err := d.Agent(d.ctx, root, "default", "paris")
	ok(t, err)
	if len(v.Connections) != 2 || !v.Connected || len(v.Warnings) != 1 || v.Warnings[0].Reason != fleet.ReasonSeveralClusters {
		t.Errorf("two replicas in two clusters: %+v", v)
	}
	if !maps.Equal(v.Labels, map[string]string{"tier": "prod"}) {
		t.Errorf("labels %v", v.Labels)
	}
}
