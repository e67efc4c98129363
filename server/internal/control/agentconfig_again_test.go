package control_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// A file that could not be applied is taken back: what is there again was applied before, and is not looked at as if
// nothing had happened in between.
func TestAFileThatIsTakenBackIsAppliedAgain(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.enroll(t, "paris")
	quota := fleet.Quota{Deployments: 1}
	ok(t, errIgnored(r.UpdateTenant(t.Context(), admin, "default", control.UpdateTenant{Quota: &quota}, control.Match{})))
	first := r.push(t, map[string]string{kedgeFile("paris"): declares("web"), "web/cm.yaml": configMap("web", "1")})
	r.configure(t, "paris")
	r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, first))
	second := r.push(t, map[string]string{kedgeFile("paris"): declares("web", "db")})
	r.awaitConfig(t, "paris", inState(fleet.ConfigRefused, second))
	third := r.push(t, map[string]string{kedgeFile("paris"): declares("web")})
	c := r.awaitConfig(t, "paris", inState(fleet.ConfigApplied, third))
	wantDeclared(t, c, "web")
	if c.Live != third || len(c.Errors) > 0 {
		t.Errorf("live is %s, with errors %v", c.Live, c.Errors)
	}
}
