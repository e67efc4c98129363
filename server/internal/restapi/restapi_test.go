package restapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const deployments = "/api/v1/tenants/default/deployments"

func TestOpenAPIIsAsRecorded(t *testing.T) {
	t.Parallel()
	got := do(t, restapi.New(config(), newFixture(t)), "GET", "/api/v1/openapi.json", "", "Authorization", "")
	if got.status != http.StatusOK || !strings.Contains(got.body, `"openapi":"3.1.0"`) {
		t.Fatalf("got %d %.200s", got.status, got.body)
	}
	testkit.Golden(t, "openapi.json", got.pretty(t))
}

func TestEverythingElseNeedsAToken(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	for _, path := range []string{
		"GET /api/v1/whoami", "GET /api/v1/tenants/default/agents", "POST /api/v1/tenants/default/agents",
		"GET /api/v1/tenants/default/agents/a/manifest", "GET /api/v1/tenants/default/stream", "DELETE " + deployments + "/x",
		"GET /api/v1/tenants/default/repositories", "GET /api/v1/nothing", "GET /api/v1/hooks/rep-1", "GET /",
	} {
		method, path, _ := strings.Cut(path, " ")
		for reason, header := range map[string]string{
			"none": "", "wrong": "Bearer wrong", "no scheme": token, "another scheme": "Basic " + token, "empty": "Bearer ",
		} {
			got := do(t, h, method, path, "", "Authorization", header)
			if got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s, token %s: got %d %s", method, path, reason, got.status, got.body)
			}
			if strings.Contains(got.body, token) {
				t.Errorf("%s %s: the response contains the token", method, path)
			}
		}
	}
}

// covers: T6 (errors name the field or the object and say what to do)
func TestErrorsBecomeProblems(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		err    error
		status int
		says   []string
	}{
		{"a user's mistake names the field", fleet.Invalid("source.path", "must not leave the repository"), 422,
			[]string{"source.path: must not leave the repository", "query.source.path: must not leave", "nothing was changed"}},
		{"all errors are reported together", errors.Join(fleet.Invalid("source.path", "no"), fleet.Invalid("namespace", "never")), 422,
			[]string{"source.path: no; namespace: never; nothing was changed", "query.source.path: no", "query.namespace: never"}},
		{"missing names the object and the tenant", fmt.Errorf("deployment: %w", store.ErrNotFound), 404,
			[]string{`deployment "web" in tenant "default" was not found`, "GET " + deployments + " lists"}},
		{"a name in use: the message contains the remedy", fmt.Errorf("creating: %w", store.ErrExists), 409,
			[]string{`deployment "web" in tenant "default" already exists`, "GET " + deployments + "/web shows it", "DELETE " + deployments + "/web", "nothing was changed"}},
		{"a conflict contains the cause", &control.ConflictError{Reason: "the run has started"}, 409, []string{"the run has started"}},
		{"a quota names its limit", &control.QuotaError{Tenant: "default", What: "agents", Limit: 3}, 403, []string{"agents"}},
		{"a concurrent change: the message contains the remedy", fmt.Errorf("deployment: %w", control.ErrStale), 412, []string{`deployment "web"`, "read it again", "new ETag"}},
		{"not allowed names the caller", auth.ErrForbidden, 403, []string{`token "admin" may not`, `deployment "web"`}},
		{"a missing role is named, with what the caller has", fmt.Errorf("x: %w", &auth.RoleError{Needs: fleet.RoleDeployer, Tenant: "default", Has: fleet.RoleViewer}), 403,
			[]string{`this requires the deployer role in tenant "default"; token "admin" has viewer`}},
		{"a missing role in the fleet is named", &auth.RoleError{Needs: fleet.RoleFleetAdmin}, 403, []string{`this requires the fleet-admin role; token "admin" does not have it`}},
		{"the caller left", context.Canceled, 503, []string{"try again"}},
		{"internals stay inside", errors.New("sqlite: disk I/O error in /var/lib/kedge"), 500, []string{"request id"}},
	}
	f := newFixture(t)
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			h := restapi.New(config(), fail(f, "Deployment", c.err))
			got := do(t, h, "GET", deployments+"/web", "")
			if got.status != c.status {
				t.Errorf("status %d, want %d", got.status, c.status)
			}
			for _, want := range c.says {
				if !strings.Contains(got.detail(t), want) {
					t.Errorf("%q does not say %q", got.detail(t), want)
				}
			}
			if strings.Contains(got.body, "sqlite") {
				t.Errorf("internals in %s", got.body)
			}
		})
	}
}

// covers: T12
func TestProblemsHaveReasons(t *testing.T) {
	t.Parallel()
	const web = `deployment "web" in tenant "default"`
	tests := map[string]struct {
		err  error
		want apiv1.ProblemMembers
	}{
		"not found":      {store.ErrNotFound, apiv1.ProblemMembers{Reason: "ResourceNotFound", Message: web + " was not found", List: deployments}},
		"exists":         {store.ErrExists, apiv1.ProblemMembers{Reason: "AlreadyExists", Message: web + " already exists", List: deployments}},
		"conflict":       {&control.ConflictError{Reason: "the run has started"}, apiv1.ProblemMembers{Reason: "Conflict"}},
		"owned":          {&control.OwnerError{Reason: fleet.ReasonOwnedByResource, Message: "x"}, apiv1.ProblemMembers{Reason: "OwnedByResource"}},
		"changed":        {control.ErrStale, apiv1.ProblemMembers{Reason: "ResourceChanged"}},
		"invalid":        {fleet.Invalid("source.path", "no"), apiv1.ProblemMembers{Reason: "RequestInvalid"}},
		"quota":          {&control.QuotaError{Tenant: "default", What: "agents", Limit: 3}, apiv1.ProblemMembers{Reason: "QuotaExceeded"}},
		"role":           {&auth.RoleError{Needs: fleet.RoleFleetAdmin}, apiv1.ProblemMembers{Reason: "RoleRequired"}},
		"forbidden":      {auth.ErrForbidden, apiv1.ProblemMembers{Reason: "RoleRequired"}},
		"internal error": {errors.New("disk I/O error"), apiv1.ProblemMembers{}},
	}
	f := newFixture(t)
	for name, tt := range tests {
		h := restapi.New(config(), fail(f, "Deployment", tt.err))
		var got apiv1.Problem
		if err := json.Unmarshal([]byte(do(t, h, "GET", deployments+"/web", "").body), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got.ProblemMembers); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	var got apiv1.Problem
	body := do(t, restapi.New(config(), f.Service), "GET", deployments+"?limit=0", "").body
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Reason != "RequestInvalid" {
		t.Errorf("a request that huma refuses has %q, %v", got.Reason, err)
	}
}

// covers: T6 (bad input is refused before anything is stored)
func TestBadRequestsReachNobody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := restapi.New(config(), ending{f.Service})
	before := f.lastChange(t)
	cases := []struct {
		reason, method, path, body string
		status                     int
		says                       string
	}{
		{"an unknown field", "POST", deployments, `{"name":"a","source":{"repoURL":"x"},"prunee":true}`, 422, "body.prunee"},
		{"an unknown field deep inside", "POST", deployments, `{"name":"a","source":{"repoURL":"x","paths":"y"}}`, 422, "body.source.paths"},
		{"a missing field", "POST", deployments, `{"name":"a"}`, 422, "source"},
		{"a field of the wrong type", "POST", deployments, `{"name":1,"source":{"repoURL":"x"}}`, 422, "body.name"},
		{"not JSON", "POST", deployments, `{"name":`, 400, "body"},
		{"nothing at all", "POST", deployments, ``, 400, "body is required"},
		{"too large", "POST", deployments, `{"name":"` + strings.Repeat("a", 1<<20) + `"}`, 413, "too large"},
		{"a limit beyond the maximum", "GET", deployments + "?limit=501", "", 422, "query.limit"},
		{"a limit of nothing", "GET", deployments + "?limit=0", "", 422, "query.limit"},
		{"a label that is none", "GET", deployments + "?label=a", "", 422, "query.label"},
		{"a label with two values", "GET", deployments + "?label=a=b&label=a=c", "", 422, "query.label"},
		{"a state that is none", "GET", deployments + "?sync=Sync", "", 422, "query.sync"},
		{"a time that is none", "GET", "/api/v1/audit?since=yesterday", "", 422, "query.since"},
		{"a page of the audit log that is none", "GET", "/api/v1/audit?after=x", "", 422, "query.after"},
		{"a page of runs that is none", "GET", deployments + "/web/runs?after=x", "", 422, "query.after"},
		{"an ETag without quotes", "DELETE", deployments + "/web", "", 422, "header.If-Match"},
		{"a role that is none", "POST", "/api/v1/tokens", `{"name":"a","role":"boss"}`, 422, "body.role"},
		{"a lifetime that is none", "POST", "/api/v1/tokens", `{"name":"a","role":"viewer","expiresIn":"soon"}`, 422, "body.expiresIn"},
		{"a member of a kind that is none", "PUT", "/api/v1/tenants/default/members/robot/x", `{"role":"viewer"}`, 422, "path.kind"},
		{"a quota below nothing", "POST", "/api/v1/tenants", `{"name":"a","quota":{"agents":-1}}`, 422, "body.quota.agents"},
		{"a kind of change that is none", "GET", "/api/v1/tenants/default/stream?kinds=agent,foo", "", 422, "query.kinds"},
		{"a mistyped filter of the stream", "GET", "/api/v1/tenants/default/stream?kind=agent", "", 422, "query.kind"},
		{"an id of an event that is none", "GET", "/api/v1/tenants/default/stream", "", 422, "header.Last-Event-ID"},
		{"a mistyped filter", "GET", "/api/v1/tenants/default/events?deploymnt=a", "", 422, "deploymnt"},
		{"a cursor that is no number", "GET", "/api/v1/tenants/default/stream?after=x", "", 422, "after"},
		{"a route that does not exist", "GET", "/api/v1/tenants/default/apps", "", 404, "/api/v1/openapi.json"},
		{"a method that a route does not take", "PUT", deployments, "{}", 405, "does not support PUT"},
		{"an address for a manifest that agents cannot use", "GET", "/api/v1/tenants/default/agents/prod/manifest?serverAddress=x", "", 422, "query.serverAddress"},
		{"an address that agents cannot use", "POST", "/api/v1/tenants/default/agents", `{"name":"a","serverAddress":"https://x"}`, 422, "serverAddress"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got := do(t, h, c.method, c.path, c.body, "If-Match", "5", "Last-Event-ID", lastEvent(c.says))
			if detail := got.detail(t); got.status != c.status || !strings.Contains(detail, c.says) {
				t.Errorf("got %d %q, want %d that says %q", got.status, detail, c.status, c.says)
			}
		})
	}
	if after := f.lastChange(t); after != before {
		t.Errorf("something was written: change %d before, %d after", before, after)
	}
}

// lastEvent is a bad one where the case is about it.
func lastEvent(says string) string {
	if strings.Contains(says, "Last-Event-ID") {
		return "x"
	}
	return ""
}

func TestPagesGoOnWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	const path = "/api/v1/tenants/default/environments?limit=2"
	if got := do(t, h, "GET", path, "").body; !strings.Contains(got, `"next":"eu"`) || !strings.Contains(got, `"name":"default"`) || strings.Contains(got, `"us"`) {
		t.Errorf("first page: %s", got)
	}
	if got := do(t, h, "GET", path+"&after=eu", "").body; !strings.Contains(got, `"next":""`) || !strings.Contains(got, `"name":"us"`) || strings.Contains(got, `"name":"eu"`) {
		t.Errorf("second page: %s", got)
	}
}

// covers: O2 (user mistakes are logged as such), invariant 9 (no token in a log)
func TestLogNamesMistakesAndNeverTheToken(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := config()
	cfg.Log = slog.New(slog.NewJSONHandler(&out, nil))
	h := restapi.New(cfg, fail(newFixture(t), "Deployment", errors.New("disk on fire")))
	do(t, h, "GET", "/api/v1/nothing?token="+token, "")
	do(t, h, "GET", deployments+"/web", "")
	log := out.String()
	for _, want := range []string{`"userError":true`, `"status":404`, `"status":500`, `"level":"ERROR"`, "disk on fire", `"principal":"admin"`, `"tenant":"default"`, `"deployment":"web"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not hold %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, token) {
		t.Errorf("the log contains the token:\n%s", log)
	}
}

func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), intercept(newFixture(t), "Deployment", func(string) error { panic("ouch") }))
	if got := do(t, h, "GET", deployments+"/web", ""); got.status != 500 || strings.Contains(got.body, "ouch") {
		t.Errorf("got %d %s", got.status, got.body)
	}
}
