package control_test

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// covers: T10 (beyond the limit is refused at the server)
func TestWhatIsBeyondAGrantIsNotGivenOut(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.tenant(t, "guest")
	d.enroll(t, "default", "paris", nil)
	grant, err := d.CreateGrant(d.ctx, root, "default", control.CreateGrant{
		Environment: "default", Grantee: "guest", Limits: fleet.Limits{Namespaces: []string{"shop"}},
	})
	ok(t, err)
	d.deploy(t, "guest", "app", "default/default")
	view := func() control.DeploymentView {
		t.Helper()
		v, err := d.Deployment(d.ctx, root, "guest", "app")
		ok(t, err)
		return v
	}
	first := d.render(t, "guest", "app", "1") // in namespace default
	if v := view(); v.Targets[0].Desired.Digest != "" || v.Sync != fleet.SyncFailed || !strings.Contains(v.Message, "ConfigMap default/a") {
		t.Fatalf("reads %s: %q, and was given %+v", v.Sync, v.Message, v.Targets[0].Desired)
	}
	_, err = d.UpdateGrant(d.ctx, root, "default", grant.ID, control.UpdateGrant{Limits: fleet.Limits{Namespaces: []string{"default", "shop"}}}, control.Match{})
	ok(t, err)
	if v := view(); v.Targets[0].Desired.Digest != first || v.SourceError != "" {
		t.Fatalf("a wider grant: %q, %+v", v.SourceError, v.Targets[0].Desired)
	}
	_, err = d.UpdateGrant(d.ctx, root, "default", grant.ID, control.UpdateGrant{Limits: fleet.Limits{Kinds: []string{"Secret"}}}, control.Match{})
	ok(t, err)
	d.render(t, "guest", "app", "2")
	if v := view(); v.Targets[0].Desired.Digest != first || !strings.Contains(v.Message, "Secret") {
		t.Fatalf("a narrower grant: %q, %+v", v.Message, v.Targets[0].Desired)
	}
	run, err := d.Rollback(d.ctx, root, "guest", "app", control.Rollback{Revision: 2})
	ok(t, err)
	if run.Phase != fleet.RunFailed || !strings.Contains(run.Message, "paris") {
		t.Errorf("a run to what is refused is %s: %q", run.Phase, run.Message)
	}
}
