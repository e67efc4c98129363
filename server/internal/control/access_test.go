package control_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// tunnelled enrolls an agent with a tunnel.
func (d *fixture) tunnelled(t *testing.T, tenant, name string, labels map[string]string) fleet.Agent {
	t.Helper()
	made, err := d.EnrollAgent(d.ctx, root, tenant, control.EnrollAgent{Name: name, Labels: labels, Tunnel: true})
	ok(t, err)
	return made.Agent
}

// token returns the caller of a new token of a tenant, or of the fleet.
func (d *fixture) token(t *testing.T, tenant, name string, role fleet.Role) auth.Principal {
	t.Helper()
	_, secret, err := d.CreateAPIToken(d.ctx, root, tenant, control.CreateAPIToken{Name: name, Role: role})
	ok(t, err)
	p, err := d.Authenticate(d.ctx, secret)
	ok(t, err)
	return p
}

// person returns the caller of a new session with groups.
func (d *fixture) person(t *testing.T, name string, groups ...string) auth.Principal {
	t.Helper()
	secret, _, err := d.StartSession(d.ctx, control.Login{Issuer: "https://id.example.com", Subject: "id of " + name, Name: name, Groups: groups})
	ok(t, err)
	p, err := d.Authenticate(d.ctx, secret)
	ok(t, err)
	return p
}

// allow creates a rule.
func (d *fixture) allow(t failer, tenant, name string, subjects []fleet.AccessSubject, change func(*control.CreateAccessRule)) fleet.AccessRule {
	t.Helper()
	req := control.CreateAccessRule{Name: name, Subjects: subjects, AllAgents: true}
	if change != nil {
		change(&req)
	}
	rule, err := d.CreateAccessRule(d.ctx, root, tenant, req)
	ok(t, err)
	return rule
}

func subject(kind fleet.AccessSubjectKind, name string) []fleet.AccessSubject {
	return []fleet.AccessSubject{{Kind: kind, Name: name}}
}

// wantNoAccess checks that a caller is refused for a reason.
func (d *fixture) wantNoAccess(t failer, what string, p auth.Principal, tenant, agent string, reason fleet.Reason) {
	t.Helper()
	got, err := d.Access(d.ctx, p, tenant, agent)
	var refused *control.AccessError
	if !errors.As(err, &refused) || refused.Reason != reason || !errors.Is(err, auth.ErrForbidden) {
		t.Fatalf("%s: got %+v, %v, want reason %s", what, got, err, reason)
	}
}

func (d *fixture) access(t failer, p auth.Principal, tenant, agent string) control.Access {
	t.Helper()
	a, err := d.Access(d.ctx, p, tenant, agent)
	ok(t, err)
	return a
}

func TestAccessIsOffByDefault(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "acme")
	d.enroll(t, "acme", "closed", nil)
	agent := d.tunnelled(t, "acme", "open", nil)
	for name, p := range map[string]auth.Principal{
		"a viewer": d.token(t, "acme", "viewer", fleet.RoleViewer), "an admin of the tenant": d.token(t, "acme", "admin", fleet.RoleAdmin),
		"a fleet admin": d.token(t, "", "root", ""),
	} {
		d.wantNoAccess(t, name, p, "acme", "open", fleet.ReasonAccessNotAllowed)
		d.wantNoAccess(t, name, p, "acme", "closed", fleet.ReasonTunnelDisabled)
		if _, err := d.Access(d.ctx, p, "acme", "absent"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: an unknown agent: %v", name, err)
		}
	}
	admin := d.token(t, "acme", "ci", fleet.RoleAdmin)
	d.allow(t, "acme", "ci", subject(fleet.AccessToken, "ci"), nil)
	if got := d.access(t, admin, "acme", "open"); got.Agent.ID != agent.ID || got.ReadOnly {
		t.Errorf("got %+v", got)
	}
	d.wantNoAccess(t, "with a rule", admin, "acme", "closed", fleet.ReasonTunnelDisabled)
	for _, on := range []bool{false, true} {
		want := map[bool]error{false: auth.ErrForbidden}[on]
		_, err := d.UpdateAgent(d.ctx, root, "acme", "open", control.UpdateAgent{Tunnel: &on}, control.Match{})
		ok(t, err)
		if _, err := d.Access(d.ctx, admin, "acme", "open"); !errors.Is(err, want) {
			t.Errorf("tunnel %v: got %v, want %v", on, err, want)
		}
	}
	d.wantNoAccess(t, "the server itself", auth.System(), "acme", "open", fleet.ReasonAccessNotAllowed)
	_, err := d.Access(d.ctx, admin, "acme", "closed")
	if !strings.Contains(err.Error(), "kedge agent set closed --tunnel") {
		t.Errorf("the message does not name the command: %v", err)
	}
	_, err = d.Access(d.ctx, d.token(t, "acme", "other", fleet.RoleAdmin), "acme", "open")
	if !strings.Contains(err.Error(), "kedge access create NAME --token other --agents open") {
		t.Errorf("the message does not name the command: %v", err)
	}
}

func TestIdentityInTheCluster(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	agent := d.tunnelled(t, "acme", "prod", nil)
	ok(t, d.PutMember(d.ctx, root, "acme", fleet.Member{Kind: fleet.MemberPerson, Subject: "alice", Role: fleet.RoleViewer}))
	ok(t, d.PutMember(d.ctx, root, "acme", fleet.Member{Kind: fleet.MemberGroup, Subject: "dev", Role: fleet.RoleDeployer}))
	d.allow(t, "acme", "all", []fleet.AccessSubject{
		{Kind: fleet.AccessPerson, Name: "alice"}, {Kind: fleet.AccessToken, Name: "ci"}, {Kind: fleet.AccessToken, Name: "fleet/root"},
	}, nil)
	for user, c := range map[string]struct {
		p    auth.Principal
		role string
	}{
		"kedge:person:alice":  {d.person(t, "alice", "dev"), "deployer"}, // the higher one of two roles
		"kedge:token:acme:ci": {d.token(t, "acme", "ci", fleet.RoleViewer), "viewer"},
		"kedge:token:root":    {d.token(t, "", "root", ""), "admin"},
	} {
		got := d.access(t, c.p, "acme", "prod")
		want := control.Access{
			Agent: got.Agent, Tenant: acme, User: user, Groups: []string{"kedge:tenant:acme", "kedge:tenant:acme:" + c.role},
			Extra: map[string][]string{"kedge.dev/tenant-id": {string(acme.ID)}, "kedge.dev/agent-id": {string(agent.ID)}, "kedge.dev/token-id": {string(c.p.TokenID)}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", user, diff)
		}
		for _, group := range got.Groups {
			if !slices.Contains(fleet.AccessGroups("acme"), group) {
				t.Errorf("%s has group %s, which the manifest of the agent does not allow", user, group)
			}
		}
		if keys := slices.Sorted(maps.Keys(got.Extra)); !slices.Equal(keys, fleet.AccessExtras()) {
			t.Errorf("%s has the extra fields %v", user, keys)
		}
	}
}

func TestSubjectsOfRules(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "acme")
	d.tenant(t, "globex")
	for _, tenant := range []string{"acme", "globex"} {
		d.tunnelled(t, tenant, "prod", nil)
		ok(t, d.PutMember(d.ctx, root, tenant, fleet.Member{Kind: fleet.MemberGroup, Subject: "staff", Role: fleet.RoleAdmin}))
	}
	d.allow(t, "acme", "ci", subject(fleet.AccessToken, "ci"), nil)
	d.allow(t, "acme", "oncall", subject(fleet.AccessGroup, "oncall"), func(r *control.CreateAccessRule) { r.ReadOnly = true })
	d.allow(t, "acme", "oncall-lead", subject(fleet.AccessPerson, "lead"), nil)

	mine, theirs, fleetCI := d.token(t, "acme", "ci", fleet.RoleViewer), d.token(t, "globex", "ci", fleet.RoleAdmin), d.token(t, "", "ci", "")
	d.access(t, mine, "acme", "prod")
	if _, err := d.Access(d.ctx, theirs, "acme", "prod"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a token of the same name in another tenant: %v", err)
	}
	d.wantNoAccess(t, "a token of the fleet with the same name", fleetCI, "acme", "prod", fleet.ReasonAccessNotAllowed)
	d.wantNoAccess(t, "the same rule in another tenant", theirs, "globex", "prod", fleet.ReasonAccessNotAllowed)
	d.wantNoAccess(t, "a person who is called like the token", d.person(t, "ci", "staff"), "acme", "prod", fleet.ReasonAccessNotAllowed)
	d.wantNoAccess(t, "a person who is called like the group", d.person(t, "oncall", "staff"), "acme", "prod", fleet.ReasonAccessNotAllowed)

	if got := d.access(t, d.person(t, "bob", "oncall", "staff"), "acme", "prod"); !got.ReadOnly {
		t.Errorf("the only rule is read-only, and the access is not: %+v", got)
	}
	if got := d.access(t, d.person(t, "lead", "oncall", "staff"), "acme", "prod"); got.ReadOnly {
		t.Errorf("one rule is not read-only, and the access is: %+v", got)
	}
	if _, err := d.Access(d.ctx, d.person(t, "eve", "oncall"), "acme", "prod"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a rule without a role in the tenant: %v", err)
	}
	lead := d.person(t, "lead", "staff")
	ok(t, d.ForgetPerson(d.ctx, root, "lead"))
	d.wantNoAccess(t, "a name that was freed", lead, "acme", "prod", fleet.ReasonAccessNotAllowed)
}

func TestRulesLoseWhatIsDeleted(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "acme")
	ci := d.token(t, "acme", "ci", fleet.RoleViewer)
	d.tunnelled(t, "acme", "paris", map[string]string{"tier": "prod"})
	d.tunnelled(t, "acme", "rome", map[string]string{"tier": "prod"})
	d.tunnelled(t, "acme", "oslo", map[string]string{"tier": "dev"})
	_, err := d.CreateEnvironment(d.ctx, root, "acme", control.CreateEnvironment{Name: "prod", MatchLabels: map[string]string{"tier": "prod"}})
	ok(t, err)
	d.allow(t, "acme", "named", subject(fleet.AccessToken, "ci"), func(r *control.CreateAccessRule) { r.AllAgents, r.Agents = false, []string{"paris"} })
	d.wantNoAccess(t, "another agent", ci, "acme", "rome", fleet.ReasonAccessNotAllowed)
	d.access(t, ci, "acme", "paris")
	ok(t, d.DeleteAgent(d.ctx, root, "acme", "paris", control.Match{}))
	d.tunnelled(t, "acme", "paris", nil)
	d.wantNoAccess(t, "an agent with the name of a deleted one", ci, "acme", "paris", fleet.ReasonAccessNotAllowed)
	d.wantNoAccess(t, "other agents, after the last one of the rule is deleted", ci, "acme", "rome", fleet.ReasonAccessNotAllowed)

	d.allow(t, "acme", "by-label", subject(fleet.AccessToken, "ci"), func(r *control.CreateAccessRule) { r.AllAgents, r.Environments = false, []string{"prod"} })
	d.access(t, ci, "acme", "rome")
	d.wantNoAccess(t, "an agent without the label", ci, "acme", "oslo", fleet.ReasonAccessNotAllowed)
	relabel := func(name, tier string) {
		_, err := d.UpdateAgent(d.ctx, root, "acme", name, control.UpdateAgent{Labels: &map[string]string{"tier": tier}}, control.Match{})
		ok(t, err)
	}
	relabel("oslo", "prod")
	relabel("rome", "dev")
	d.access(t, ci, "acme", "oslo")
	d.wantNoAccess(t, "an agent that lost the label", ci, "acme", "rome", fleet.ReasonAccessNotAllowed)
	ok(t, d.DeleteEnvironment(d.ctx, root, "acme", "prod", control.Match{}))
	for _, agent := range []string{"oslo", "rome", "paris"} {
		d.wantNoAccess(t, "after the environment of the rule is deleted", ci, "acme", agent, fleet.ReasonAccessNotAllowed)
	}
	rule, err := d.AccessRule(d.ctx, ci, "acme", "by-label")
	ok(t, err)
	if rule.AllAgents || len(rule.Environments) != 0 || rule.SpecRevision != 2 {
		t.Errorf("got %+v", rule)
	}
}

func TestAccessRulesAreChecked(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	d.tenant(t, "globex")
	d.enroll(t, "globex", "theirs", nil)
	d.enroll(t, "acme", "prod", nil)
	many := make([]fleet.AccessSubject, fleet.MaxAccessEntries+1)
	for i := range many {
		many[i] = fleet.AccessSubject{Kind: fleet.AccessPerson, Name: fmt.Sprint(i)}
	}
	names := make([]string, fleet.MaxAccessEntries+1)
	for i := range names {
		names[i] = fmt.Sprint("a", i)
	}
	cases := map[string]struct {
		field  string
		change func(*control.CreateAccessRule)
	}{
		"bad name":                    {"name", func(r *control.CreateAccessRule) { r.Name = "A b" }},
		"no subject":                  {"subjects", func(r *control.CreateAccessRule) { r.Subjects = nil }},
		"too many subjects":           {"subjects", func(r *control.CreateAccessRule) { r.Subjects = many }},
		"unknown kind":                {"subjects", func(r *control.CreateAccessRule) { r.Subjects = subject("robot", "x") }},
		"token that cannot exist":     {"subjects", func(r *control.CreateAccessRule) { r.Subjects = subject(fleet.AccessToken, "a/b") }},
		"person without a name":       {"subjects", func(r *control.CreateAccessRule) { r.Subjects = subject(fleet.AccessPerson, "") }},
		"unprintable group":           {"subjects", func(r *control.CreateAccessRule) { r.Subjects = subject(fleet.AccessGroup, "a\x00") }},
		"nothing covered":             {"agents", func(r *control.CreateAccessRule) { r.AllAgents = false }},
		"all and some":                {"allAgents", func(r *control.CreateAccessRule) { r.Agents = []string{"prod"} }},
		"unknown agent":               {"agents", func(r *control.CreateAccessRule) { r.AllAgents, r.Agents = false, []string{"absent"} }},
		"agent of another tenant":     {"agents", func(r *control.CreateAccessRule) { r.AllAgents, r.Agents = false, []string{"theirs"} }},
		"too many agents":             {"agents", func(r *control.CreateAccessRule) { r.AllAgents, r.Agents = false, names }},
		"unknown environment":         {"environments", func(r *control.CreateAccessRule) { r.AllAgents, r.Environments = false, []string{"absent"} }},
		"too many environments":       {"environments", func(r *control.CreateAccessRule) { r.AllAgents, r.Environments = false, names }},
		"environment of another name": {"environments", func(r *control.CreateAccessRule) { r.AllAgents, r.Environments = false, []string{"globex/default"} }},
	}
	for name, c := range cases {
		req := control.CreateAccessRule{Name: "rule", Subjects: subject(fleet.AccessToken, "ci"), AllAgents: true}
		c.change(&req)
		_, err := d.CreateAccessRule(d.ctx, root, "acme", req)
		var invalid *fleet.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%s: got %v, want an error for %s", name, err, c.field)
		}
	}
	rule := d.allow(t, "acme", "rule", subject(fleet.AccessToken, "ci"), func(r *control.CreateAccessRule) { r.AllAgents, r.Agents = false, []string{"prod"} })
	_, err := d.UpdateAccessRule(d.ctx, root, "acme", "rule", control.UpdateAccessRule{Agents: &[]string{}}, control.Match{})
	wantInvalid(t, err, "agents")
	viewer, admin := member(acme, fleet.RoleViewer), member(acme, fleet.RoleAdmin)
	if _, err := d.AccessRules(d.ctx, viewer, "acme", store.Page{}); err != nil {
		t.Errorf("a viewer lists rules: %v", err)
	}
	on := true
	for _, p := range []auth.Principal{viewer, member(acme, fleet.RoleDeployer)} {
		_, err1 := d.CreateAccessRule(d.ctx, p, "acme", control.CreateAccessRule{Name: "x", Subjects: rule.Subjects, AllAgents: true})
		_, err2 := d.UpdateAccessRule(d.ctx, p, "acme", "rule", control.UpdateAccessRule{ReadOnly: &on}, control.Match{})
		err3 := d.DeleteAccessRule(d.ctx, p, "acme", "rule", control.Match{})
		for _, err := range []error{err1, err2, err3} {
			if !errors.Is(err, auth.ErrForbidden) {
				t.Errorf("a rule is changed without the admin role: %v", err)
			}
		}
	}
	match := control.Match{ID: string(rule.ID), SpecRevision: rule.SpecRevision}
	changed, err := d.UpdateAccessRule(d.ctx, admin, "acme", "rule", control.UpdateAccessRule{ReadOnly: &on}, match)
	ok(t, err)
	if !changed.ReadOnly || changed.SpecRevision != 2 || len(changed.Agents) != 1 {
		t.Errorf("got %+v", changed)
	}
	if _, err := d.UpdateAccessRule(d.ctx, admin, "acme", "rule", control.UpdateAccessRule{ReadOnly: &on}, match); !errors.Is(err, control.ErrStale) {
		t.Errorf("an edit of an older version: %v", err)
	}
	if err := d.DeleteAccessRule(d.ctx, admin, "acme", "rule", match); !errors.Is(err, control.ErrStale) {
		t.Errorf("a deletion of an older version: %v", err)
	}
}

func TestNumberOfAccessRulesIsLimited(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	ok(t, d.store.Update(d.ctx, func(tx store.Tx) error {
		for i := range fleet.MaxAccessRules {
			r := fleet.AccessRule{ID: fleet.NewAccessRuleID(), TenantID: acme.ID, Name: fmt.Sprint("r", i), CreatedAt: d.clock.Now()}
			if err := tx.AccessRules().Create(d.ctx, r); err != nil {
				return err
			}
		}
		return nil
	}))
	_, err := d.CreateAccessRule(d.ctx, root, "acme", control.CreateAccessRule{Name: "one-more", Subjects: subject(fleet.AccessToken, "ci"), AllAgents: true})
	var conflict *control.ConflictError
	if !errors.As(err, &conflict) {
		t.Errorf("got %v", err)
	}
}

func TestAccessIsRecorded(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	acme := d.tenant(t, "acme")
	event := fleet.AuditEvent{TenantID: acme.ID, Actor: "alice", Component: "tunnel", Action: "tunnel.request", Kind: "agent", Name: "prod", Detail: "GET /api"}
	ok(t, d.RecordAccess(d.ctx, []fleet.AuditEvent{event, event}))
	ok(t, d.RecordAccess(d.ctx, nil))
	log, err := d.Audit(d.ctx, root, "acme", store.AuditFilter{Action: "tunnel.request"})
	ok(t, err)
	if len(log) != 2 || log[0].Actor != "alice" || log[0].Detail != event.Detail || !log[0].At.Equal(d.clock.Now()) {
		t.Errorf("got %+v", log)
	}
}

// Whatever the rules of one tenant say, they give no access to agents of another one. Both have the same names.
func TestNoRuleCrossesTenants(t *testing.T) {
	t.Parallel()
	path := blank(t)
	first, closeFirst := openFixture(t, path)
	callers := map[string]auth.Principal{}
	for _, tenant := range []string{"mine", "theirs"} {
		first.tenant(t, tenant)
		ok(t, first.PutMember(first.ctx, root, tenant, fleet.Member{Kind: fleet.MemberGroup, Subject: "staff", Role: fleet.RoleAdmin}))
		for _, name := range []string{"a", "b"} {
			first.tunnelled(t, tenant, name, map[string]string{"tier": name})
			_, err := first.CreateEnvironment(first.ctx, root, tenant, control.CreateEnvironment{Name: "env-" + name, MatchLabels: map[string]string{"tier": name}})
			ok(t, err)
			callers[tenant+"/"+name] = first.token(t, tenant, name, fleet.RoleAdmin)
		}
	}
	callers["fleet"] = first.token(t, "", "a", "")
	callers["person"] = first.person(t, "a", "b", "staff")
	closeFirst()
	data := readFile(t, path)
	rapid.Check(t, func(rt *rapid.T) {
		d, closeFixture := openFixture(t, copyOf(t, data))
		defer closeFixture()
		some := func(prefix, what string) []string {
			var out []string
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b"}), 0, 2, rapid.ID[string]).Draw(rt, what) {
				out = append(out, prefix+name)
			}
			return out
		}
		for i := range rapid.IntRange(1, 4).Draw(rt, "rules") {
			req := control.CreateAccessRule{
				Name: fmt.Sprint("rule-", i), Agents: some("", "agents"), Environments: some("env-", "environments"), ReadOnly: rapid.Bool().Draw(rt, "read-only"),
				Subjects: subject(rapid.SampledFrom([]fleet.AccessSubjectKind{fleet.AccessToken, fleet.AccessPerson, fleet.AccessGroup}).Draw(rt, "kind"),
					rapid.SampledFrom([]string{"a", "b", "staff", "fleet/a"}).Draw(rt, "subject")),
			}
			req.AllAgents = len(req.Agents)+len(req.Environments) == 0
			_, err := d.CreateAccessRule(d.ctx, root, "mine", req)
			var invalid *fleet.InvalidError // of a subject
			if err != nil && !errors.As(err, &invalid) {
				rt.Fatal(err)
			}
		}
		for name, p := range callers {
			for _, agent := range []string{"a", "b"} {
				if got, err := d.Access(d.ctx, p, "theirs", agent); err == nil {
					rt.Fatalf("%s reaches agent %s of the tenant without rules: %+v", name, agent, got)
				}
			}
		}
	})
}
