package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// The texts of the audit log and of errors are for people.
func TestDetailsReadAsAPersonWouldWriteThem(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "acme")
	d.tenant(t, "guest")
	d.enroll(t, "acme", "paris", nil)
	labels := map[string]string{"tier": "prod", "region": "eu"}
	ok(t, result(d.UpdateAgent(d.ctx, root, "acme", "paris", control.UpdateAgent{Labels: &labels}, control.Match{})))
	ok(t, result(d.CreateEnvironment(d.ctx, root, "acme", control.CreateEnvironment{Name: "prod", MatchLabels: labels})))
	ok(t, result(d.CreateEnvironment(d.ctx, root, "acme", control.CreateEnvironment{Name: "one", Agents: []string{"paris"}})))
	ok(t, result(d.UpdateTenant(d.ctx, root, "acme", control.UpdateTenant{Quota: &fleet.Quota{Agents: 10}}, control.Match{})))
	ok(t, result(d.CreateGrant(d.ctx, root, "acme", control.CreateGrant{Environment: "prod", Grantee: "guest", Limits: fleet.Limits{Namespaces: []string{"a", "b"}}})))
	log, err := d.Audit(d.ctx, root, "acme", store.AuditFilter{})
	ok(t, err)
	got := map[string]string{}
	for _, e := range log {
		got[e.Action+" "+e.Name] = e.Detail
	}
	for what, want := range map[string]string{
		"agent.update paris":      "labels: region=eu, tier=prod; namespaces: all that its scope allows; Argo CD in namespace: none",
		"environment.create prod": "agents: none by name; labels: region=eu, tier=prod",
		"environment.create one":  "agents: paris; labels: none",
		"tenant.update acme":      "quota: agents 10, environments unlimited, repositories unlimited, deployments unlimited, targets unlimited, tokens unlimited",
		"grant.create prod":       "to tenant guest; namespaces: a, b; kinds: all",
	} {
		if diff := cmp.Diff(want, got[what]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	wantConflict(t, d.DeleteTenant(d.ctx, root, "acme", control.Match{}), "still has 1 agent, 2 environments, 1 grant to other tenants: delete")
}
