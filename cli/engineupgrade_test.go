package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// upgradeServer answers with an upgrade in a phase, and keeps the requests.
func upgradeServer(t *testing.T, phase string, asked *apiv1.CreateEngineUpgrade) string {
	t.Helper()
	const path = "/api/v1/tenants/default/engine-upgrades"
	v := apiv1.EngineUpgrade{Name: "u", Revision: "v3", Phase: phase, Reason: "EngineCanaryTimedOut", Message: "the instance of agent \"a\" was rolled back",
		Instances: []apiv1.EngineUpgradeInstance{{Agent: "a", Deployment: "d", Canary: "c", Phase: "RolledBack", Before: 1, BeforeCommit: "c0ffee0123456789"}}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(asked); err != nil {
			t.Error(err)
		}
		write(w, 201, v)
	})
	mux.HandleFunc("GET "+path+"/u", func(w http.ResponseWriter, _ *http.Request) { write(w, 200, v) })
	mux.HandleFunc("GET /api/v1/tenants/default/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestEngineUpgradeSendsItsInstancesInOrder(t *testing.T) {
	t.Parallel()
	var asked apiv1.CreateEngineUpgrade
	env := map[string]string{"KEDGE_SERVER": upgradeServer(t, "Succeeded", &asked), "KEDGE_TOKEN": "t", "XDG_CONFIG_HOME": t.TempDir()}
	r := run(t, env, "", "engine-upgrade", "start", "u", "--revision", "v3", "--instance-timeout", "90s", "--wait",
		"--instance", "agent=a,deployment=d,canary=c", "--instance", "canary=c2,agent=a2,deployment=d2")
	if r.code != 0 || !strings.Contains(r.out, "has succeeded") {
		t.Errorf("got %s", r)
	}
	if len(asked.Instances) != 2 || asked.Instances[1] != (apiv1.CreateEngineUpgradeInstance{Agent: "a2", Deployment: "d2", Canary: "c2"}) || asked.TimeoutSeconds != 90 {
		t.Errorf("it asked for %+v", asked)
	}
}

func TestEngineUpgradeThatIsHaltedFails(t *testing.T) {
	t.Parallel()
	env := map[string]string{"KEDGE_SERVER": upgradeServer(t, "Halted", new(apiv1.CreateEngineUpgrade)), "KEDGE_TOKEN": "t", "XDG_CONFIG_HOME": t.TempDir()}
	r := run(t, env, "", "engine-upgrade", "start", "u", "--revision", "v3", "--instance", "agent=a,deployment=d,canary=c", "--wait")
	if r.code != 3 || !strings.Contains(r.err, `the instance of agent "a" was rolled back`) || !strings.Contains(r.err, "kedge describe engine-upgrade u") {
		t.Errorf("got %s", r)
	}
	if r := run(t, env, "", "describe", "engine-upgrade", "u"); r.code != 0 || !strings.Contains(r.out, "EngineCanaryTimedOut") || !strings.Contains(r.out, "RolledBack") {
		t.Errorf("the description: %s", r)
	}
	for _, wrong := range []string{"agent=a", "agent=a,deployment=d,canary=c,agent=b", "cluster=x,deployment=d,canary=c", "a,b,c"} {
		if r := run(t, env, "", "engine-upgrade", "start", "u", "--revision", "v3", "--instance", wrong); r.code != 2 || !strings.Contains(r.err, "--instance") {
			t.Errorf("%s: %s", wrong, r)
		}
	}
}
