package restapi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const key = "Idempotency-Key"

// covers: T1 (idempotency key), T4
func TestSameKeyAndRequestGetTheSameAnswer(t *testing.T) {
	t.Parallel()
	for path, c := range map[string]struct{ action, body string }{
		"deployments":                {"deployment.create", `{"name":"new","source":{"repoURL":"https://x/y"}}`},
		"deployments/pod/rollback":   {"deployment.rollback", `{"revision":1}`},
		"deployments/pod/suspend":    {"deployment.suspend", ""},
		"repositories/rep-1/refresh": {"repository.refresh", ""},
	} {
		t.Run(c.action, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			h := restapi.New(config(), f)
			first := do(t, h, "POST", inDefault+path, c.body, key, "a b c")
			changed := f.lastChange(t)
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
			if n := f.count(t, c.action); n != 1 || f.lastChange(t) != changed {
				t.Errorf("it was done %d times; change %d after the first, %d after the second", n, changed, f.lastChange(t))
			}
			other := do(t, h, "POST", inDefault+path, c.body, key, "a b c", "Authorization", "Bearer "+otherToken)
			if other.status != 403 || other.header.Get("Idempotency-Replayed") != "" {
				t.Errorf("another caller gets the answer of the first: %d %v %s", other.status, other.header, other.body)
			}
		})
	}
}

// count returns how often the audit log of the tenant default has an action.
func (f fixture) count(t *testing.T, action string) int {
	t.Helper()
	events, err := f.Audit(t.Context(), admin, "default", store.AuditFilter{Action: action, Kind: strings.Split(action, ".")[0], Actor: "admin", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return len(events)
}

func TestSameKeyForAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := restapi.New(config(), f)
	do(t, h, "POST", deployments+"/pod/rollback", `{"revision":1}`, key, "k")
	for _, c := range []struct{ path, body string }{
		{"/pod/rollback", `{"revision":2}`}, {"/web/rollback", `{"revision":1}`},
	} {
		if got := do(t, h, "POST", deployments+c.path, c.body, key, "k"); got.status != 422 || !strings.Contains(got.detail(t), "new key") {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if n := f.count(t, "deployment.rollback"); n != 1 {
		t.Errorf("it was done %d times", n)
	}
}

func TestKeyOfARequestThatChangedNothingIsFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := restapi.New(config(), f)
	const body = `{"url":"https://git.example.com/unused","credential":"later"}` // rep-3
	for _, c := range []struct {
		status       int
		remedy, path string
		given        string
	}{
		{422, "POST", "credentials", `{"name":"later","kind":"https","username":"u","secret":"hush"}`},
		{409, "DELETE", "repositories/rep-3", ""},
		{201, "GET", "repositories", ""},
	} {
		if got := do(t, h, "POST", inDefault+"repositories", body, key, "k"); got.status != c.status || got.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("got %d %s, want %d", got.status, got.body, c.status)
		}
		if got := do(t, h, c.remedy, inDefault+c.path, c.given); got.status >= 300 {
			t.Fatalf("%s %s: got %d %s", c.remedy, c.path, got.status, got.body)
		}
	}
}

// The outcome of a request that ended with a server error is unknown: the same key must not execute it again.
func TestKeyOfARequestWithAnUnknownOutcomeStaysTaken(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"an error": func() error { return errors.New("the connection broke during the commit") },
		"a panic":  func() error { panic("ouch") },
	} {
		calls := 0
		h := restapi.New(config(), intercept(newFixture(t), "CreateDeployment", func(control.CreateDeployment) error {
			calls++
			return fail()
		}))
		body := `{"name":"new","source":{"repoURL":"https://x/y"}}`
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
	cfg.Now = func() time.Time { return later.Add(ahead) }
	h := restapi.New(cfg, intercept(newFixture(t), "CreateDeployment", func(control.CreateDeployment) error {
		close(entered)
		<-leave
		return nil
	}))
	body := `{"name":"new","source":{"repoURL":"https://x/y"}}`
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
		inDefault + "agents":             `{"name":"new"}`,
		inDefault + "agents/prod/tokens": `{}`,
		inDefault + "tokens":             `{"name":"ci","role":"viewer"}`,
		"/api/v1/tokens":                 `{"name":"ci","role":"fleet-admin"}`,
	} {
		f := newFixture(t)
		h := restapi.New(config(), f)
		first := do(t, h, "POST", path, body, key, "k")
		second := do(t, h, "POST", path, body, key, "k")
		secret := newSecret.FindString(first.body)
		if first.status != 201 || secret == "" || strings.Contains(second.body, secret) {
			t.Errorf("%s: first %d %s, then %s", path, first.status, first.body, second.body)
		}
		if second.status != 409 || !strings.Contains(second.detail(t), "is not stored") || second.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: then %d %s", path, second.status, second.body)
		}
		if second.header.Get("Location") != first.header.Get("Location") || first.header.Get("Location") == "" {
			t.Errorf("%s: at %q, then at %q", path, first.header.Get("Location"), second.header.Get("Location"))
		}
		kept, fresh, err := f.ClaimReply(t.Context(), admin, store.Reply{Key: "k", Request: []byte("x")})
		if err != nil || fresh || kept.Status != 409 || strings.Contains(string(kept.Body), secret) {
			t.Errorf("%s: kept %d %s, %v", path, kept.Status, kept.Body, err)
		}
	}
	f := newFixture(t)
	h := restapi.New(config(), f)
	for range 2 { // the secret of a webhook may be asked for again
		if got := do(t, h, "POST", inDefault+"repositories/rep-1/webhook", "", key, "k"); got.status != 200 || !strings.Contains(got.body, repoSecret) {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	if kept, fresh, err := f.ClaimReply(t.Context(), admin, store.Reply{Key: "k", Request: []byte("x")}); err != nil || !fresh {
		t.Errorf("kept %+v, %v", kept, err)
	}
}

func TestBadKeysReachNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := f.lastChange(t)
	h := restapi.New(config(), f)
	for reason, k := range map[string]string{"too long": strings.Repeat("k", 256), "not ASCII": "schlüssel", "control characters": "a\x01"} {
		if got := do(t, h, "POST", deployments, "{}", key, k); got.status != 422 || !strings.Contains(got.detail(t), "header.Idempotency-Key") {
			t.Errorf("%s: got %d %s", reason, got.status, got.body)
		}
	}
	if got := do(t, h, "POST", deployments, strings.Repeat("a", 1<<20+1), key, "k"); got.status != 413 {
		t.Errorf("too much: got %d %s", got.status, got.body)
	}
	if after := f.lastChange(t); after != before {
		t.Errorf("something was written: change %d before, %d after", before, after)
	}
}
