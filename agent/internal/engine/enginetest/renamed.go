package enginetest

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// renamedCases are of deployments that are declared in the configuration file of an agent.
var renamedCases = []testCase{
	{"hands the objects of a declared deployment over to the one that it is renamed to", renamedDeclared},
	{"hands nothing over between deployments of other files, tenants, or of no file", renamedForeign},
}

// renamedDeclared lets the old entry go before the new one is known, which needs a render first.
//
// covers: F2, A7
func renamedDeclared(t *testing.T, w *world) {
	e := w.start(t)
	old := w.desired(t, 1, configMap("a", "1"))
	old.Deployment = "edge.web"
	e.Set(old)
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	uid := w.get(t, "a").GetUID()
	bye := w.detached(2)
	bye.Deployment = "edge.web"
	e.Set(bye)
	w.rec.status(t, w.target, 2, fleet.SyncDetached)
	renamed := w.desired(t, 1, configMap("a", "2"))
	renamed.Target, renamed.Deployment = fleet.NewTargetID(), "edge.shop"
	e.Set(renamed)
	w.rec.status(t, renamed.Target, 1, fleet.SyncSynced)
	w.ownedBy(t, "a", uid, renamed.Target)
	if got := value(w.get(t, "a"), "key"); got != "2" {
		t.Errorf("a is %q, want it continued", got)
	}
}

// covers: A7
func renamedForeign(t *testing.T, w *world) {
	for _, of := range []struct{ reason, from, tenant, to string }{
		{"the file of another agent", "edge.web", "default", "core.web"},
		{"another tenant", "edge.web", "globex", "edge.shop"},
		{"a deployment that a user has made", "edge.web", "default", "shop"},
		{"from a deployment that a user has made", "web", "default", "edge.web"},
	} {
		w.target = fleet.NewTargetID()
		e := w.start(t)
		name := "cm-" + strings.ReplaceAll(strings.ReplaceAll(of.reason, " ", "-"), "/", "-")
		old := w.desired(t, 1, configMap(name, "1"))
		old.Deployment = of.from
		e.Set(old)
		w.rec.status(t, w.target, 1, fleet.SyncSynced)
		bye := w.detached(2)
		bye.Deployment = of.from
		e.Set(bye)
		w.rec.status(t, w.target, 2, fleet.SyncDetached)
		next := w.desired(t, 1, configMap(name, "2"))
		next.Target, next.Tenant, next.Deployment = fleet.NewTargetID(), of.tenant, of.to
		e.Set(next)
		if s := w.rec.status(t, next.Target, 1, fleet.SyncFailed); !hasReason(s, fleet.ReasonNotAdopted) {
			t.Errorf("%s: message is %q", of.reason, s.Observed.Message)
		}
		e.stop()
	}
}
