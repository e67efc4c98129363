package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: O4 (login and logout)
func TestLoginWithATenantMakesItsOwnContext(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, url)
	host := strings.TrimPrefix(url, "http://")
	if r := run(t, env, token, "login", url, "--tenant", "shop"); r.code != 0 || !strings.Contains(r.out, `The context is "`+host+`/shop"`) {
		t.Fatal(r)
	}
	if r := run(t, env, "", "context", "ls", "-o", "name"); r.out != host+"\n"+host+"/shop\n" {
		t.Errorf("the contexts are %s", r)
	}
	if r := run(t, env, "", "whoami", "-o", "jsonpath={.tenant} {.name} {.role} {.server}"); r.out != "shop admin fleet-admin "+url {
		t.Errorf("whoami of the new context: %s", r)
	}
	if r := run(t, env, "", "whoami", "--context", host); !strings.Contains(r.out, "Tenant   default\n") || !strings.Contains(r.out, "API token") {
		t.Errorf("whoami of the first context: %s", r)
	}
	if r := run(t, env, "", "logout"); r.code != 0 || !strings.Contains(r.out, "still valid") {
		t.Errorf("logout: %s", r)
	}
	if r := run(t, env, "", "get", "agents"); r.code != 1 || !strings.Contains(r.err, "not logged in") {
		t.Errorf("after logout: %s", r)
	}
	if r := run(t, env, "", "logout", host); r.code != 0 {
		t.Errorf("logout of a named context: %s", r)
	}
	if r := run(t, env, "", "context", "get", "-o", "json"); strings.TrimSpace(r.out) != "{\n  \"items\": []\n}" {
		t.Errorf("the contexts are %s", r)
	}
	if r := run(t, env, "", "logout"); r.code != 1 || !strings.Contains(r.err, "not logged in") {
		t.Errorf("without a login: %s", r)
	}
}

// covers: O4 (wait follows the change stream and times out with code 4)
func TestWaitFollowsTheChangeStream(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	s.deployments = []apiv1.Deployment{deployment("web", "Syncing", "InProgress", target("prod", "Syncing", "InProgress"))}
	out := newConsole()
	wait := start(t, out, home(t, url), "wait web --for=healthy --timeout 20s")
	feed := <-s.streams
	set := func(d apiv1.Deployment, seq int64) {
		s.set(func(s *server) { s.deployments = []apiv1.Deployment{d} })
		feed <- apiv1.Change{Seq: seq, Kind: "status", DeploymentID: "dep-web"}
	}
	set(deployment("web", "Synced", "InProgress", target("prod", "Synced", "InProgress")), 1)
	set(deployment("web", "Synced", "Current", target("prod", "Synced", "Current")), 2)
	if code := wait(); code != 0 || out.String() != "deployment/web condition met\n" {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for _, args := range []string{"wait away --for=healthy --timeout 200ms", "wait web --for=deleted --timeout 200ms"} {
		_, url := newServer(t)
		r := run(t, home(t, url), "", strings.Fields(args)...)
		if r.code != 4 || !strings.Contains(r.err, "timed out after 200ms waiting for deployment/") {
			t.Errorf("kedge %s: %s", args, r)
		}
	}
}

// A deployment is deleted when its name is free, or belongs to another one.
func TestWaitForDeletionEndsWhenTheDeploymentIsGone(t *testing.T) {
	t.Parallel()
	s, url := newServer(t)
	out := newConsole()
	wait := start(t, out, home(t, url), "wait web --for=deleted --timeout 20s")
	feed := <-s.streams
	testkit.Eventually(t, 20*time.Second, func(context.Context) (err error) {
		s.set(func(s *server) {
			if _, read := s.got["GET /api/v1/tenants/default/deployments/web"]; !read {
				err = errors.New("the command has not read the deployment yet")
			}
		})
		return err
	})
	successor := deployment("web", "Synced", "Current", target("prod", "Synced", "Current"))
	successor.ID = "dep-other"
	s.set(func(s *server) { s.deployments = []apiv1.Deployment{successor} })
	feed <- apiv1.Change{Seq: 1, Kind: "deployment", ID: "dep-web"}
	if code := wait(); code != 0 || !strings.Contains(out.String(), "deployment/web condition met") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// Scripts read one deployment as an object and several as a list.
func TestJSONOfOneNameIsAnObject(t *testing.T) {
	t.Parallel()
	_, url := newServer(t)
	env := home(t, url)
	var one apiv1.Deployment
	if err := json.Unmarshal([]byte(run(t, env, "", "get", "deployments", "web", "-o", "json").out), &one); err != nil || one.Name != "web" {
		t.Errorf("one name: %+v, %v", one, err)
	}
	var two apiv1.List[apiv1.Deployment]
	if err := json.Unmarshal([]byte(run(t, env, "", "get", "deployments", "web", "away", "-o", "json").out), &two); err != nil || len(two.Items) != 2 {
		t.Errorf("two names: %+v, %v", two, err)
	}
}
