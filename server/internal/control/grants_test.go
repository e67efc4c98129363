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

// hosted is a tenant "host" with an agent, a tenant "guest", and a grant between them.
func hosted(t *testing.T, limits fleet.Limits) (*fixture, fleet.Grant) {
	t.Helper()
	d := newFixture(t)
	d.tenant(t, "host")
	d.tenant(t, "guest")
	d.enroll(t, "host", "paris", nil)
	g, err := d.CreateGrant(d.ctx, root, "host", control.CreateGrant{Environment: "default", Grantee: "guest", Limits: limits})
	ok(t, err)
	return d, g
}

// covers: T10
func TestGrantedEnvironmentIsDeployedToAndRevokingDeletesNothing(t *testing.T) {
	t.Parallel()
	d, g := hosted(t, fleet.Limits{})
	_, err := d.CreateDeployment(d.ctx, root, "guest", control.CreateDeployment{
		Name: "web", Environment: "host/default", Policy: &fleet.Policy{Prune: true, PruneOnDetach: true}, Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"},
	})
	ok(t, err)
	d.render(t, "guest", "web", "1")
	d.wantPlaces(t, "guest", "web", map[string]string{"paris": "attached"})
	was := d.targets(t, "guest", "web")["paris"]
	if was.GrantID != g.ID || was.AgentTenant == was.TenantID {
		t.Fatalf("got %+v", was)
	}
	d.enroll(t, "host", "rome", nil)
	d.wantPlaces(t, "guest", "web", map[string]string{"paris": "attached", "rome": "attached"})

	ok(t, d.DeleteGrant(d.ctx, root, "host", g.ID, control.Match{}))
	d.wantPlaces(t, "guest", "web", map[string]string{"paris": "detached", "rome": "detached"})
	if why := d.targets(t, "guest", "web")["paris"].DetachedWhy; !strings.Contains(why, "no longer granted") {
		t.Errorf("why: %q", why)
	}
	d.render(t, "guest", "web", "2")
	d.enroll(t, "host", "oslo", nil)
	_, err = d.UpdateAgent(d.ctx, root, "host", "paris", control.UpdateAgent{Labels: &map[string]string{"a": "b"}}, control.Match{})
	ok(t, err)
	d.wantPlaces(t, "guest", "web", map[string]string{"paris": "detached", "rome": "detached"})

	_, err = d.CreateGrant(d.ctx, root, "host", control.CreateGrant{Environment: "default", Grantee: "guest"})
	ok(t, err)
	d.wantPlaces(t, "guest", "web", map[string]string{"paris": "attached", "rome": "attached", "oslo": "attached"})
	if back := d.targets(t, "guest", "web")["paris"]; back.ID != was.ID || back.Desired.Version.Compare(was.Desired.Version) <= 0 {
		t.Errorf("taken up again: %+v", back)
	}
}

// covers: T10
func TestWhatIsBeyondAGrantIsRefusedAtTheServer(t *testing.T) {
	t.Parallel()
	d, g := hosted(t, fleet.Limits{Namespaces: []string{"team", "default", "team"}, Kinds: []string{"Deployment.apps"}})
	d.deploy(t, "guest", "web", "host/default")
	digest := d.render(t, "guest", "web", "1")
	d.wantPlaces(t, "guest", "web", map[string]string{"paris": "empty"})
	view, err := d.Deployment(d.ctx, root, "guest", "web")
	ok(t, err)
	if !strings.Contains(view.Message, "ConfigMap") {
		t.Errorf("the refusal is not seen: %+v", view.Message)
	}
	wider := fleet.Limits{Namespaces: []string{"team", "default"}, Kinds: []string{"ConfigMap", "Deployment.apps"}}
	_, err = d.UpdateGrant(d.ctx, root, "host", g.ID, control.UpdateGrant{Limits: wider}, control.Match{})
	ok(t, err)
	given := d.targets(t, "guest", "web")["paris"]
	if given.Desired.Digest != digest || cmp.Diff([]string{"default", "team"}, given.Desired.Limits.Namespaces) != "" {
		t.Fatalf("within the limits now: %+v", given.Desired)
	}
	quiet := d.lastChange(t)
	_, err = d.UpdateGrant(d.ctx, root, "host", g.ID, control.UpdateGrant{Limits: wider}, control.Match{})
	ok(t, err)
	if d.lastChange(t) != quiet {
		t.Error("the same limits twice are a change")
	}
	// Narrower again: the agent gets the limits, and refuses what it has.
	_, err = d.UpdateGrant(d.ctx, root, "host", g.ID, control.UpdateGrant{Limits: fleet.Limits{Kinds: []string{"Secret"}}}, control.Match{})
	ok(t, err)
	narrowed := d.targets(t, "guest", "web")["paris"]
	if narrowed.Desired.Version.Compare(given.Desired.Version) <= 0 || cmp.Diff([]string{"Secret"}, narrowed.Desired.Limits.Kinds) != "" {
		t.Errorf("got %+v", narrowed.Desired)
	}
	if narrowed.Desired.Tombstone || narrowed.Desired.Detached {
		t.Errorf("something would be deleted or detached: %+v", narrowed.Desired)
	}
}

// covers: T10
func TestEnvironmentThatIsNotGrantedDoesNotExist(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "host")
	d.tenant(t, "guest")
	var problems []string
	for _, env := range []string{"host/default", "host/nothing", "nobody/default", "nothing"} {
		_, err := d.CreateDeployment(d.ctx, root, "guest", control.CreateDeployment{
			Name: "web", Environment: env, Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"},
		})
		wantInvalid(t, err, "environment")
		problems = append(problems, strings.ReplaceAll(err.Error(), env, "X"))
	}
	for _, problem := range problems[1:] {
		if problem != problems[0] {
			t.Errorf("one can tell %q from %q", problem, problems[0])
		}
	}
}

func TestGrantIsTheOwnersAlone(t *testing.T) {
	t.Parallel()
	d, g := hosted(t, fleet.Limits{})
	guest, err := d.Tenant(d.ctx, root, "guest")
	ok(t, err)
	boss := member(guest, fleet.RoleAdmin)
	if _, err := d.UpdateGrant(d.ctx, boss, "guest", g.ID, control.UpdateGrant{Limits: fleet.Limits{}}, control.Match{}); !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("the guest widens its grant: %v", err)
	}
	if err := d.DeleteGrant(d.ctx, boss, "host", g.ID, control.Match{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the guest speaks for the host: %v", err)
	}
	all, err := d.Grants(d.ctx, boss, "guest", store.Page{})
	ok(t, err)
	if len(all) != 1 || !all[0].Received || all[0].OwnerName != "host" || all[0].Environment != "default" {
		t.Errorf("got %+v", all)
	}
	if _, err := d.CreateGrant(d.ctx, root, "host", control.CreateGrant{Environment: "default", Grantee: "guest"}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a second grant: %v", err)
	}
	for field, req := range map[string]control.CreateGrant{
		"grantee":           {Environment: "default", Grantee: "host"},
		"environment":       {Environment: "nothing", Grantee: "guest"},
		"limits.namespaces": {Environment: "default", Grantee: "guest", Limits: fleet.Limits{Namespaces: []string{"A"}}},
		"limits.kinds":      {Environment: "default", Grantee: "guest", Limits: fleet.Limits{Kinds: []string{"config map"}}},
	} {
		_, err := d.CreateGrant(d.ctx, root, "host", req)
		wantInvalid(t, err, field)
	}
	for _, tenant := range []string{"host", "guest"} {
		log, err := d.Audit(d.ctx, root, tenant, store.AuditFilter{Kind: "grant"})
		ok(t, err)
		if len(log) != 1 {
			t.Errorf("%s knows of %d grants", tenant, len(log))
		}
	}
}

// Deletions that were requested before the grant was revoked are still executed; the grant does not wait.
func TestRevokedGrantLeavesTombstonesOnTheirWay(t *testing.T) {
	t.Parallel()
	d, g := hosted(t, fleet.Limits{})
	view := d.deploy(t, "guest", "web", "host/default")
	d.render(t, "guest", "web", "1")
	_, err := d.DeleteDeployment(d.ctx, root, "guest", "web", control.Match{})
	ok(t, err)
	ok(t, d.DeleteGrant(d.ctx, root, "host", g.ID, control.Match{}))
	ok(t, d.store.View(d.ctx, func(tx store.Tx) error {
		targets, err := tx.Targets().OfDeployment(d.ctx, view.TenantID, view.ID)
		if len(targets) != 1 || !targets[0].Desired.Tombstone || targets[0].GrantID != "" {
			t.Errorf("got %+v", targets)
		}
		return err
	}))
}

func TestDeploymentMovesFromAGrantedEnvironmentHome(t *testing.T) {
	t.Parallel()
	d, _ := hosted(t, fleet.Limits{})
	d.enroll(t, "guest", "home", nil)
	d.deploy(t, "guest", "web", "host/default")
	d.render(t, "guest", "web", "1")
	home := "default"
	d.edit(t, "guest", "web", control.UpdateDeployment{Environment: &home})
	d.wantPlaces(t, "guest", "web", map[string]string{"paris": "detached", "home": "attached"})
}

// covers: T10
func TestAGrantMaySayWhoItIsAppliedAs(t *testing.T) {
	t.Parallel()
	d, g := hosted(t, fleet.Limits{})
	oslo := d.enroll(t, "host", "oslo", nil)
	_, err := d.CreateDeployment(d.ctx, root, "guest", control.CreateDeployment{
		Name: "web", Environment: "host/default", Policy: &fleet.Policy{Prune: true, ServiceAccount: "kube-system/root"},
		Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"},
	})
	ok(t, err)
	d.render(t, "guest", "web", "1")
	desired := func() fleet.Desired { return d.targets(t, "guest", "web")["oslo"].Desired }
	if got := desired().Policy.ServiceAccount; got != "kube-system/root" {
		t.Fatalf("without an account of the grant it is %q", got)
	}
	set := func(account string) {
		t.Helper()
		_, err := d.UpdateGrant(d.ctx, root, "host", g.ID, control.UpdateGrant{ServiceAccount: &account}, control.Match{})
		ok(t, err)
	}
	before := desired()
	set("guests/deployer")
	if got := desired(); got.Policy.ServiceAccount != "guests/deployer" || got.Version.Compare(before.Version) <= 0 {
		t.Fatalf("the agent does not get it: %+v", got)
	}
	if policy := mustView(t, d, "guest", "web").Policy; policy.ServiceAccount != "kube-system/root" {
		t.Errorf("what the guest wrote became %q", policy.ServiceAccount)
	}
	quiet := d.lastChange(t)
	_, err = d.UpdateGrant(d.ctx, root, "host", g.ID, control.UpdateGrant{}, control.Match{})
	ok(t, err)
	if d.lastChange(t) != quiet {
		t.Error("an update that does not speak of it takes it away")
	}
	wantInvalid(t, result(d.UpdateGrant(d.ctx, root, "host", g.ID, control.UpdateGrant{ServiceAccount: ptr("nobody")}, control.Match{})), "serviceAccount")

	// It applies while the guest is suspended, to later states, and to the deletion.
	_, err = d.SuspendTenant(d.ctx, root, "guest", "x")
	ok(t, err)
	set("guests/other")
	if got := desired().Policy.ServiceAccount; got != "guests/other" {
		t.Errorf("while the guest is suspended it is %q", got)
	}
	_, err = d.ResumeTenant(d.ctx, root, "guest")
	ok(t, err)
	d.render(t, "guest", "web", "2")
	if got := desired().Policy.ServiceAccount; got != "guests/other" {
		t.Errorf("with the next revision it is %q", got)
	}
	_, err = d.DeleteDeployment(d.ctx, root, "guest", "web", control.Match{})
	ok(t, err)
	for _, target := range d.onAgent(t, oslo) {
		if !target.Desired.Tombstone || target.Desired.Policy.ServiceAccount != "guests/other" {
			t.Errorf("it is deleted as %+v", target.Desired)
		}
	}
}

func mustView(t *testing.T, d *fixture, tenant, name string) control.DeploymentView {
	t.Helper()
	v, err := d.Deployment(d.ctx, root, tenant, name)
	ok(t, err)
	return v
}

// covers: T1 (a grant does not tell which tenants there are)
func TestGrantsDoNotTellWhichTenantsThereAre(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for _, name := range []string{"host", "hidden"} {
		_, err := d.CreateTenant(d.ctx, root, control.CreateTenant{Name: name})
		ok(t, err)
	}
	host, err := d.Tenant(d.ctx, root, "host")
	ok(t, err)
	owner := auth.Principal{Name: "owner", Roles: map[fleet.TenantID]fleet.Role{host.ID: fleet.RoleAdmin}}
	var answers []string
	for _, grantee := range []string{"hidden", "nobody"} {
		_, err := d.CreateGrant(d.ctx, owner, "host", control.CreateGrant{Environment: "default", Grantee: grantee})
		wantInvalid(t, err, "grantee")
		answers = append(answers, strings.ReplaceAll(err.Error(), grantee, "NAME"))
	}
	if answers[0] != answers[1] {
		t.Errorf("an existing tenant is distinguishable: %q", answers)
	}
}
