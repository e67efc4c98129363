package control_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// A file that could not be applied is reverted: the earlier file is applied again, although it was applied
// before.
func TestAFileThatIsTakenBackIsAppliedAgain(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
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
