package restapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const cluster = "/api/v1/cluster/"

var asAgent = []string{"Authorization", "Bearer " + agentToken}

// covers: T9
func TestClusterPollsItsApplications(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{standin: newStandin()})
	byHeader := do(t, h, "GET", cluster+"applications", "", asAgent...)
	byPath := do(t, h, "GET", cluster+url.PathEscape(agentToken)+"/applications", "", "Authorization", "")
	if byHeader.status != 200 || byHeader.header.Get("ETag") != `"tag-1"` || byPath.body != byHeader.body || byPath.status != 200 {
		t.Fatalf("got %d %v %s, and by path %d %s", byHeader.status, byHeader.header, byHeader.body, byPath.status, byPath.body)
	}
	var got apiv1.Applications
	if err := json.Unmarshal([]byte(byHeader.body), &got); err != nil {
		t.Fatal(err)
	}
	want := apiv1.Applications{Agent: "prod", Items: []apiv1.Application{{
		ID: "tgt-1", Tenant: "default", Name: "web", Environment: "default", Namespace: "web",
		Source: apiv1.Source{
			RepoURL: "https://git.example.com/web", Path: "deploy", Revision: "main", Variables: map[string]string{"zone": "{agent.name}"},
			Helm: &apiv1.Helm{ReleaseName: "r", ValuesFiles: []string{"/env/{agent.name}.yaml"}, Values: map[string]any{"image": map[string]any{"tag": "v1"}}, SkipCRDs: true,
				Set: []apiv1.HelmSet{{Type: "string", Expression: "image.tag=1.10"}}},
		},
		Policy: apiv1.Policy{Drift: "correct", Propagation: "Background", PruneLimit: apiv1.PruneLimit{Objects: 10, Percent: 30}},
		Epoch:  1, Generation: 4, Commit: "c0ffee", Digest: "sha256:abc",
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range [][]string{{"Authorization", "Bearer " + token}, {"Authorization", ""}, {"Authorization", "Bearer wrong"}} {
		if got := do(t, h, "GET", cluster+"applications", "", bad...); got.status != 401 {
			t.Errorf("%v: got %d %s", bad, got.status, got.body)
		}
	}
	if got := do(t, h, "GET", cluster+"wrong/applications", "", asAgent...); got.status != 401 {
		t.Errorf("a wrong token in the path beside a good one: got %d %s", got.status, got.body)
	}
	if got := do(t, h, "GET", "/api/v1/whoami", "", asAgent...); got.status != 401 {
		t.Errorf("the token of an agent opens another door: %d %s", got.status, got.body)
	}
}

// covers: T9 (long poll)
func TestClusterWaitsForSomethingNew(t *testing.T) {
	t.Parallel()
	var waited time.Duration
	changed := true
	h := restapi.New(config(), fake{standin: newStandin(), wait: func(_ context.Context, tag string, wait time.Duration) ([]control.Application, string, bool, error) {
		waited = wait
		if tag != "tag-1" {
			t.Errorf("waited for another tag than %q", tag)
		}
		if !changed {
			return nil, tag, false, nil
		}
		return nil, "tag-2", true, nil
	}})
	have := append([]string{"If-None-Match", `"x", W/"tag-1"`}, asAgent...)
	if got := do(t, h, "GET", cluster+"applications", "", have...); got.status != 304 || got.body != "" || waited != 0 {
		t.Errorf("without waiting: got %d %s after %s", got.status, got.body, waited)
	}
	if got := do(t, h, "GET", cluster+"applications?wait=30s", "", asAgent...); got.status != 200 || waited != 0 {
		t.Errorf("who has nothing waits for nothing: got %d after %s", got.status, waited)
	}
	got := do(t, h, "GET", cluster+"applications?wait=30s", "", have...)
	if got.status != 200 || got.header.Get("ETag") != `"tag-2"` || waited != 30*time.Second || !strings.Contains(got.body, `"items":[]`) {
		t.Errorf("something new: got %d %v %s after %s", got.status, got.header, got.body, waited)
	}
	changed = false
	if got := do(t, h, "GET", cluster+"applications?wait=50s", "", have...); got.status != 304 || got.header.Get("ETag") != `"tag-1"` {
		t.Errorf("nothing new: got %d %v %s", got.status, got.header, got.body)
	}
	for _, wait := range []string{"61s", "x", "-1s"} {
		if got := do(t, h, "GET", cluster+"applications?wait="+wait, "", have...); got.status != 422 || !strings.Contains(got.detail(t), "query.wait") {
			t.Errorf("%s: got %d %s", wait, got.status, got.body)
		}
	}
}

// covers: C7 (who waits with a token that is revoked meanwhile gets nothing)
func TestClusterWhoseTokenIsRevokedWhileItWaitsGetsNothing(t *testing.T) {
	t.Parallel()
	revoked := false
	h := restapi.New(config(), revocable{fake{standin: newStandin(), wait: func(context.Context, string, time.Duration) ([]control.Application, string, bool, error) {
		revoked = true
		return []control.Application{anApplication()}, "tag-2", true, nil
	}}, &revoked})
	got := do(t, h, "GET", cluster+"applications?wait=30s", "", append([]string{"If-None-Match", `"tag-1"`}, asAgent...)...)
	if got.status != 401 || strings.Contains(got.body, "tgt-1") {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

// revocable is a fake whose agent token can be revoked.
type revocable struct {
	fake
	revoked *bool
}

func (r revocable) AuthenticateAgent(ctx context.Context, given string) (fleet.Agent, fleet.Tenant, error) {
	if *r.revoked {
		given = "revoked"
	}
	return r.fake.AuthenticateAgent(ctx, given)
}

// covers: T9 (status back)
func TestClusterReportsItsStatus(t *testing.T) {
	t.Parallel()
	var got []control.AgentReports
	cfg := config()
	cfg.Now = func() time.Time { return later }
	h := restapi.New(cfg, fake{standin: newStandin(), report: func(batch []control.AgentReports) error {
		got = append(got, batch...)
		return nil
	}})
	body := `{"items":[
		{"id":"tgt-1","epoch":1,"generation":4,"digest":"sha256:abc","sync":"Failed","health":"InProgress","message":"no","asOf":"2026-11-15T12:00:00Z",
		 "objects":[{"group":"apps","version":"v1","kind":"Deployment","namespace":"web","name":"nginx","sync":"Failed","health":"NotFound","message":"forbidden"}]},
		{"id":"tgt-2","epoch":1,"generation":3,"sync":"Synced","health":"Current","asOf":"2030-01-01T00:00:00Z"}]}`
	if a := do(t, h, "POST", cluster+"status", body, asAgent...); a.status != 204 || a.body != "" {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	want := []control.AgentReports{{Agent: agentView().Agent, Reports: []store.Report{
		{
			Target: "tgt-1", Full: true,
			Observed: fleet.Observed{
				Version: fleet.Version{Epoch: 1, Generation: 4}, Digest: "sha256:abc", Sync: fleet.SyncFailed, Health: fleet.HealthInProgress, Message: "no", AsOf: born,
			},
			Objects: []fleet.ObjectStatus{{
				ObjectRef: fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "web", Name: "nginx"},
				Sync:      fleet.SyncFailed, Health: fleet.HealthNotFound, Message: "forbidden",
			}},
		},
		// A clock that is ahead would make a report newer than anything that comes after it.
		{Target: "tgt-2", Observed: fleet.Observed{Version: fleet.Version{Epoch: 1, Generation: 3}, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: later}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if a := do(t, h, "POST", cluster+url.PathEscape(agentToken)+"/status", `{"items":[{"id":"t","epoch":1,"generation":1,"sync":"Great","health":"Current"}]}`, "Authorization", ""); a.status != 422 {
		t.Errorf("a word that is none: got %d %s", a.status, a.body)
	}
}

// covers: T9, invariant 9 (the token in the path is in no log and no metric)
func TestTokenInThePathIsWrittenDownNowhere(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := config()
	reg := prometheus.NewRegistry()
	cfg.Metrics = reg
	cfg.Log = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := restapi.New(cfg, fake{standin: newStandin()})
	const plain = "Tr0ub4dor-and-3-more-words"
	escaped := url.PathEscape(agentToken)
	for _, path := range []string{
		cluster + escaped + "/applications", cluster + escaped + "/applications?wait=x", cluster + escaped + "/status",
		cluster + plain + "/applications", cluster + plain + "/application", cluster + plain, cluster + plain + "/",
		"/api/v1//cluster/" + plain + "/applications", "/api/v1/x/../cluster/" + plain + "/applications",
		"/api/v1/cluster//" + plain + "/applications", "/api/cluster/" + plain + "/applications", "/api/v1/Cluster/" + plain + "/applications",
		"/cluster/" + plain, "/api/v1/cluster/" + plain + "%2Fx/applications/" + plain, cluster + "applications/" + plain,
	} {
		for _, method := range []string{"GET", "POST", "PUT", "BREW"} {
			for _, header := range []string{"", "Bearer " + token, "Bearer " + agentToken} {
				got := do(t, h, method, path, "", "Authorization", header)
				if strings.Contains(got.body, plain) {
					t.Errorf("%s %s: the answer holds the token: %s", method, path, got.body)
				}
			}
		}
	}
	out.WriteString(scrape(t, reg))
	for _, secret := range []string{plain, agentToken, escaped, "kedge-agent-right", "with a slash"} {
		if i := strings.Index(out.String(), secret); i >= 0 {
			t.Errorf("%q is written down: …%.300s…", secret, out.String()[max(0, i-200):])
		}
	}
	for _, want := range []string{`"path":"/api/v1/cluster/REDACTED/applications"`, `route="/api/v1/cluster/{token}/applications"`, `"agent":"prod"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %.2000s", want, out.String())
		}
	}
}

func TestNamesBelowATenantAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := config()
	cfg.Log = slog.New(slog.NewJSONHandler(&out, nil))
	do(t, restapi.New(cfg, fake{standin: newStandin()}), "GET", "/api/v1/tenants/cluster/agents/prod", "")
	if !strings.Contains(out.String(), "/api/v1/tenants/cluster/agents/prod") {
		t.Errorf("the path is not in %s", out.String())
	}
}
