package restapi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const key = "Idempotency-Key"

// covers: T1 (idempotency key), T4
func TestSameKeyAndRequestGetTheSameAnswer(t *testing.T) {
	t.Parallel()
	for path, c := range map[string]struct{ use, body string }{
		"deployments":                {"CreateDeployment", `{"name":"web","source":{"repoURL":"https://x/y"}}`},
		"deployments/web/rollback":   {"Rollback", `{"revision":9}`},
		"deployments/web/suspend":    {"SuspendDeployment", ""},
		"repositories/rep-1/refresh": {"RefreshRepository", ""},
	} {
		t.Run(c.use, func(t *testing.T) {
			t.Parallel()
			control := newStandin()
			h := restapi.New(config(), fake{standin: control})
			first := do(t, h, "POST", inDefault+path, c.body, key, "a b c")
			second := do(t, h, "POST", inDefault+path, c.body, key, "a b c")
			if first.status >= 300 || second.status != first.status || second.body != first.body {
				t.Errorf("first %d %s, then %d %s", first.status, first.body, second.status, second.body)
			}
			if first.header.Get("Location") != second.header.Get("Location") || first.header.Get("Content-Type") != second.header.Get("Content-Type") {
				t.Errorf("first %v, then %v", first.header, second.header)
			}
			if first.header.Get("Idempotency-Replayed") != "" || second.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("first %v, then %v", first.header, second.header)
			}
			if n := control.count(c.use); n != 1 {
				t.Errorf("it was done %d times", n)
			}
			do(t, h, "POST", inDefault+path, c.body, key, "a b c", "Authorization", "Bearer "+otherToken)
			if n := control.count(c.use); n != 2 {
				t.Errorf("another caller's key stopped it: done %d times", n)
			}
		})
	}
}

func TestSameKeyForAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	control := newStandin()
	h := restapi.New(config(), fake{standin: control})
	do(t, h, "POST", deployments+"/web/rollback", `{"revision":9}`, key, "k")
	for _, c := range []struct{ path, body string }{
		{"/web/rollback", `{"revision":8}`}, {"/other/rollback", `{"revision":9}`},
	} {
		if got := do(t, h, "POST", deployments+c.path, c.body, key, "k"); got.status != 422 || !strings.Contains(got.detail(t), "new key") {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if n := control.count("Rollback"); n != 1 {
		t.Errorf("it was done %d times", n)
	}
}

func TestKeyOfARequestThatChangedNothingIsFree(t *testing.T) {
	t.Parallel()
	var failure error
	h := restapi.New(config(), fake{standin: newStandin(), create: func(string, control.CreateDeployment) (control.DeploymentView, error) {
		if failure == nil {
			return deploymentView(), nil
		}
		return control.DeploymentView{}, failure
	}})
	body := `{"name":"web","source":{"repoURL":"https://x/y"}}`
	for _, c := range []struct {
		failure error
		status  int
	}{{store.ErrExists, 409}, {fleet.Invalid("name", "no"), 422}, {nil, 201}} {
		failure = c.failure
		if got := do(t, h, "POST", deployments, body, key, "k"); got.status != c.status || got.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%v: got %d %s", c.failure, got.status, got.body)
		}
	}
}

// Whether a request that ended in an error of the server was carried out is not known: the same key must
// not carry it out again.
func TestKeyOfARequestWithAnUnknownOutcomeStaysTaken(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"an error": func() error { return errors.New("the connection broke during the commit") },
		"a panic":  func() error { panic("ouch") },
	} {
		calls := 0
		h := restapi.New(config(), fake{standin: newStandin(), create: func(string, control.CreateDeployment) (control.DeploymentView, error) {
			calls++
			return control.DeploymentView{}, fail()
		}})
		body := `{"name":"web","source":{"repoURL":"https://x/y"}}`
		if got := do(t, h, "POST", deployments, body, key, "k"); got.status != 500 {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
		if got := do(t, h, "POST", deployments, body, key, "k"); got.status != 409 || calls != 1 {
			t.Errorf("%s, again: got %d %s after %d calls", name, got.status, got.body, calls)
		}
	}
}

func TestKeyOfARequestUnderWaySaysSo(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	cfg := config()
	ahead := time.Duration(0)
	cfg.Now = func() time.Time { return time.Now().Add(ahead) }
	h := restapi.New(cfg, fake{standin: newStandin(), create: func(string, control.CreateDeployment) (control.DeploymentView, error) {
		close(entered)
		<-leave
		return deploymentView(), nil
	}})
	body := `{"name":"web","source":{"repoURL":"https://x/y"}}`
	done := make(chan answer)
	go func() { done <- do(t, h, "POST", deployments, body, key, "k") }()
	<-entered
	if got := do(t, h, "POST", deployments, body, key, "k"); got.status != 409 || got.header.Get("Retry-After") == "" {
		t.Errorf("got %d %v %s", got.status, got.header, got.body)
	}
	ahead = time.Hour
	if got := do(t, h, "POST", deployments, body, key, "k"); got.status != 409 || got.header.Get("Retry-After") != "" || !strings.Contains(got.detail(t), "new key") {
		t.Errorf("of a server that stopped: got %d %v %s", got.status, got.header, got.body)
	}
	close(leave)
	if got := <-done; got.status != 201 {
		t.Errorf("the first: got %d %s", got.status, got.body)
	}
	if got := do(t, h, "POST", deployments, body, key, "k"); got.status != 201 {
		t.Errorf("afterwards: got %d %s", got.status, got.body)
	}
}

// covers: invariant 9 (a token is shown once and kept nowhere)
func TestSecretsAreNotKeptForReplays(t *testing.T) {
	t.Parallel()
	for path, body := range map[string]string{
		inDefault + "agents":             `{"name":"prod"}`,
		inDefault + "agents/prod/tokens": `{}`,
		inDefault + "tokens":             `{"name":"ci","role":"viewer"}`,
		"/api/v1/tokens":                 `{"name":"ci","role":"fleet-admin"}`,
	} {
		control := newStandin()
		h := restapi.New(config(), fake{standin: control})
		first := do(t, h, "POST", path, body, key, "k")
		second := do(t, h, "POST", path, body, key, "k")
		if first.status != 201 || !strings.Contains(first.body, "fresh") {
			t.Errorf("%s: first %d %s", path, first.status, first.body)
		}
		if second.status != 409 || !strings.Contains(second.detail(t), "shown once") || second.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: then %d %s", path, second.status, second.body)
		}
		if second.header.Get("Location") != first.header.Get("Location") || first.header.Get("Location") == "" {
			t.Errorf("%s: at %q, then at %q", path, first.header.Get("Location"), second.header.Get("Location"))
		}
		for _, kept := range control.replies {
			if strings.Contains(string(kept.Body), "fresh") {
				t.Errorf("%s: kept %s", path, kept.Body)
			}
		}
	}
	control := newStandin()
	h := restapi.New(config(), fake{standin: control})
	for range 2 { // the secret of a webhook may be asked for again
		if got := do(t, h, "POST", inDefault+"repositories/rep-1/webhook", "", key, "k"); got.status != 200 || len(control.replies) != 0 {
			t.Errorf("got %d %s, kept %v", got.status, got.body, control.replies)
		}
	}
}

func TestBadKeysReachNobody(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{})
	for reason, k := range map[string]string{"too long": strings.Repeat("k", 256), "not ASCII": "schlüssel", "control characters": "a\x01"} {
		if got := do(t, h, "POST", deployments, "{}", key, k); got.status != 422 || !strings.Contains(got.detail(t), "header.Idempotency-Key") {
			t.Errorf("%s: got %d %s", reason, got.status, got.body)
		}
	}
	if got := do(t, h, "POST", deployments, strings.Repeat("a", 1<<20+1), key, "k"); got.status != 413 {
		t.Errorf("too much: got %d %s", got.status, got.body)
	}
}
