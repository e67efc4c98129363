package control_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: P10
func TestEnvironmentsAndAgentsAreManyToMany(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", map[string]string{"region": "eu", "tier": "prod"})
	d.enroll(t, "default", "rome", map[string]string{"region": "eu", "tier": "test"})
	_, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{
		Name: "paris-team", Labels: map[string]string{"region": "eu", "tier": "prod"}, Namespaces: []string{"team", "team", "a"},
	})
	ok(t, err)
	for _, req := range []control.CreateEnvironment{
		{Name: "eu", MatchLabels: map[string]string{"region": "eu"}},
		{Name: "prod", MatchLabels: map[string]string{"tier": "prod"}},
		{Name: "mixed", Agents: []string{"rome", "paris", "rome"}},
	} {
		_, err := d.CreateEnvironment(d.ctx, root, "default", req)
		ok(t, err)
	}
	views, err := d.Environments(d.ctx, root, "default", store.Page{})
	ok(t, err)
	got := map[string]string{}
	for _, v := range views {
		got[v.Name] = strings.Join(v.Agents, " ")
	}
	want := map[string]string{
		"default": "paris paris-team rome", "eu": "paris paris-team rome", "prod": "paris paris-team", "mixed": "paris rome",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, env := range []string{"eu", "prod", "mixed"} {
		d.deploy(t, "default", "web-"+env, env)
		if n := len(d.targets(t, "default", "web-"+env)); n != strings.Count(want[env], " ")+1 {
			t.Errorf("%s: %d targets", env, n)
		}
	}
	// One agent has the targets of all its environments.
	v, err := d.Agent(d.ctx, root, "default", "paris")
	ok(t, err)
	if v.Targets != 3 {
		t.Errorf("paris is in three environments and has %d targets", v.Targets)
	}
}

func seenOf(v control.EnvironmentView) control.Match {
	return control.Match{ID: string(v.ID), SpecRevision: v.SpecRevision}
}

// covers: T4
func TestEditedEnvironmentMovesItsTargets(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", map[string]string{"tier": "prod"})
	d.enroll(t, "default", "rome", nil)
	env, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", MatchLabels: map[string]string{"tier": "prod"}})
	ok(t, err)
	d.deploy(t, "default", "web", "prod")
	d.render(t, "default", "web", "1")
	edit := func(req control.UpdateEnvironment, match control.Match) control.EnvironmentView {
		t.Helper()
		v, err := d.UpdateEnvironment(d.ctx, root, "default", "prod", req, match)
		ok(t, err)
		return v
	}
	v := edit(control.UpdateEnvironment{Agents: &[]string{"rome"}, MatchLabels: &map[string]string{}}, seenOf(env))
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "detached", "rome": "attached"})
	if v.SpecRevision != env.SpecRevision+1 || v.Deployments != 1 || cmp.Diff([]string{"rome"}, v.Agents) != "" {
		t.Errorf("got %+v", v)
	}
	quiet := d.lastChange(t)
	edit(control.UpdateEnvironment{Agents: &[]string{"rome", "rome"}}, control.Match{})
	edit(control.UpdateEnvironment{}, control.Match{})
	if d.lastChange(t) != quiet {
		t.Error("the same selector is a change")
	}
	_, err = d.UpdateEnvironment(d.ctx, root, "default", "prod", control.UpdateEnvironment{Agents: &[]string{"paris"}}, seenOf(env))
	if !errors.Is(err, control.ErrStale) {
		t.Errorf("an edit of something older: %v", err)
	}
	edit(control.UpdateEnvironment{Agents: &[]string{"paris", "rome"}}, control.Match{})
	d.wantPlaces(t, "default", "web", map[string]string{"paris": "attached", "rome": "attached"})
}

func TestAgentThatIsNamedBeforeItComesBackIsKept(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.enroll(t, "default", "paris", nil)
	d.enroll(t, "default", "rome", nil)
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", Agents: []string{"paris"}})
	ok(t, err)
	ok(t, d.DeleteAgent(d.ctx, root, "default", "paris", control.Match{}))
	// The name of a deleted agent may stay: it selects the next agent with that name.
	v, err := d.UpdateEnvironment(d.ctx, root, "default", "prod", control.UpdateEnvironment{Agents: &[]string{"paris", "rome"}}, control.Match{})
	ok(t, err)
	if cmp.Diff([]string{"rome"}, v.Agents) != "" || cmp.Diff([]string{"paris", "rome"}, v.Environment.Agents) != "" {
		t.Errorf("got %+v", v)
	}
}

// covers: T6
func TestBadEnvironmentsAreRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	before := d.lastChange(t)
	for name, tc := range map[string]struct {
		reason string
		req    control.CreateEnvironment
		field  string
	}{
		"Name":    {"a name is a name", control.CreateEnvironment{Name: "a/b", MatchLabels: map[string]string{"a": "b"}}, "name"},
		"Nothing": {"everything is already there", control.CreateEnvironment{Name: "a"}, "agents"},
		"Unknown": {"a typing error", control.CreateEnvironment{Name: "a", Agents: []string{"pairs"}}, "agents"},
		"Label":   {"never a label of an agent", control.CreateEnvironment{Name: "a", MatchLabels: map[string]string{"a b": ""}}, "matchLabels"},
	} {
		_, err := d.CreateEnvironment(d.ctx, root, "default", tc.req)
		var invalid *fleet.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != tc.field {
			t.Errorf("%s (%s): %v", name, tc.reason, err)
		}
	}
	_, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "default", MatchLabels: map[string]string{"a": "b"}})
	if !errors.Is(err, store.ErrExists) {
		t.Errorf("a taken name: %v", err)
	}
	if d.lastChange(t) != before {
		t.Error("something was stored")
	}
}

// covers: T5
func TestEnvironmentIsDeletedWhenNothingUsesIt(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "guest")
	d.enroll(t, "default", "paris", map[string]string{"a": "b"})
	for range 3 {
		env, err := d.CreateEnvironment(d.ctx, root, "default", control.CreateEnvironment{Name: "prod", MatchLabels: map[string]string{"a": "b"}})
		ok(t, err)
		d.deploy(t, "default", "web", "prod")
		wantConflict(t, d.DeleteEnvironment(d.ctx, root, "default", "prod", control.Match{}), `deployment "web"`)
		_, err = d.DeleteDeployment(d.ctx, root, "default", "web", control.Match{})
		ok(t, err)
		g, err := d.CreateGrant(d.ctx, root, "default", control.CreateGrant{Environment: "prod", Grantee: "guest"})
		ok(t, err)
		wantConflict(t, d.DeleteEnvironment(d.ctx, root, "default", "prod", control.Match{}), `grant to tenant "guest"`)
		ok(t, d.DeleteGrant(d.ctx, root, "default", g.ID, control.Match{}))
		if err := d.DeleteEnvironment(d.ctx, root, "default", "prod", control.Match{ID: string(env.ID), SpecRevision: env.SpecRevision + 7}); !errors.Is(err, control.ErrStale) {
			t.Errorf("another one than the caller saw: %v", err)
		}
		ok(t, d.DeleteEnvironment(d.ctx, root, "default", "prod", seenOf(env)))
	}
	tenant, err := d.Tenant(d.ctx, root, "default")
	ok(t, err)
	if err := d.DeleteEnvironment(d.ctx, member(tenant, fleet.RoleDeployer), "default", "default", control.Match{}); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("a deployer: %v", err)
	}
}
