package restapi_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
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
	f := newFixture(t)
	podDigest := f.useChart(t)
	h := restapi.New(config(), f)
	_, tag, err := f.Applications(t.Context(), fleet.Agent{ID: "agt-1", TenantID: "ten-1", Name: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	byHeader := do(t, h, "GET", cluster+"applications", "", asAgent...)
	byPath := do(t, h, "GET", cluster+url.PathEscape(agentToken)+"/applications", "", "Authorization", "")
	if byHeader.status != 200 || byHeader.header.Get("ETag") != `"`+tag+`"` || byPath.body != byHeader.body || byPath.status != 200 {
		t.Fatalf("got %d %v %s, and by path %d %s", byHeader.status, byHeader.header, byHeader.body, byPath.status, byPath.body)
	}
	var got apiv1.Applications
	if err := json.Unmarshal([]byte(byHeader.body), &got); err != nil {
		t.Fatal(err)
	}
	web, _ := f.target(t, "tgt-1")
	policy := apiv1.Policy{Prune: true, Drift: "correct", Propagation: "Background", PruneLimit: apiv1.PruneLimit{Objects: 10, Percent: 30}}
	want := apiv1.Applications{Agent: "prod", Items: []apiv1.Application{{
		ID: "tgt-3", Tenant: "default", Name: "pod", Environment: "default", Namespace: "shop",
		Source: apiv1.Source{
			RepoURL: "https://git.example.com/web", Path: "deploy", Revision: "main", Variables: map[string]string{"zone": "prod"},
			Helm: &apiv1.Helm{ReleaseName: "r", ValuesFiles: []string{"/env/prod.yaml"}, Values: map[string]any{"image": map[string]any{"tag": "v1"}}, SkipCRDs: true,
				Set: []apiv1.HelmSet{{Type: "string", Expression: "image.tag=1.10"}}},
		},
		Policy: policy, Epoch: 2, Generation: 1, Commit: podCommit, Digest: podDigest,
	}, {
		ID: "tgt-1", Tenant: "default", Name: "web", Environment: "eu", Namespace: "web",
		Source: apiv1.Source{RepoURL: "https://git.example.com/web", Path: "old"},
		Policy: policy, Epoch: 2, Generation: 1, Commit: "c0ffee", Digest: web.Desired.Digest,
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
		t.Errorf("a wrong token in the path and a valid one in the header: got %d %s", got.status, got.body)
	}
	if got := do(t, h, "GET", "/api/v1/whoami", "", asAgent...); got.status != 401 {
		t.Errorf("the token of an agent works in the user API: %d %s", got.status, got.body)
	}
}

// useChart gives the deployment pod the source of web, which is a chart with references to agents, and returns the
// digest of its target.
func (f fixture) useChart(t *testing.T) string {
	t.Helper()
	err := f.store.Update(t.Context(), func(tx store.Tx) error {
		pod, err := tx.Deployments().Get(t.Context(), "ten-1", "dep-2")
		if err != nil {
			return err
		}
		pod.Source = webSpec().Source
		return tx.Deployments().Update(t.Context(), pod)
	})
	if err != nil {
		t.Fatal(err)
	}
	pod, _ := f.target(t, "tgt-3")
	return pod.Desired.Digest
}

// covers: T9 (long poll)
func TestClusterWaitsForSomethingNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var waited []time.Duration
		change := func() {}
		f := newFixture(t)
		h := restapi.New(config(), intercept(f, "WaitApplications", func(wait time.Duration) error {
			waited = append(waited, wait)
			change()
			return nil
		}))
		tag := do(t, h, "GET", cluster+"applications", "", asAgent...).header.Get("ETag")
		have := append([]string{"If-None-Match", `"x", W/` + tag}, asAgent...)
		if got := do(t, h, "GET", cluster+"applications", "", have...); got.status != 304 || got.body != "" || len(waited) != 0 {
			t.Errorf("without waiting: got %d %s after %v", got.status, got.body, waited)
		}
		if got := do(t, h, "GET", cluster+"applications?wait=30s", "", asAgent...); got.status != 200 || len(waited) != 0 {
			t.Errorf("a first poll does not wait: got %d after %v", got.status, waited)
		}
		if got := do(t, h, "GET", cluster+"applications?wait=30s", "", have...); got.status != 304 || got.header.Get("ETag") != tag || got.body != "" {
			t.Errorf("nothing new: got %d %v %s", got.status, got.header, got.body)
		}
		change = func() { f.deletePod(t) }
		got := do(t, h, "GET", cluster+"applications?wait=50s", "", have...)
		if newTag := got.header.Get("ETag"); got.status != 200 || newTag == tag || newTag == "" || !strings.Contains(got.body, `"tombstone":true`) {
			t.Errorf("something new: got %d %v %s", got.status, got.header, got.body)
		}
		if diff := cmp.Diff([]time.Duration{30 * time.Second, 50 * time.Second}, waited); diff != "" {
			t.Error(diff)
		}
		for _, wait := range []string{"61s", "x", "-1s"} {
			if got := do(t, h, "GET", cluster+"applications?wait="+wait, "", have...); got.status != 422 || !strings.Contains(got.detail(t), "query.wait") {
				t.Errorf("%s: got %d %s", wait, got.status, got.body)
			}
		}
	})
}

// deletePod deletes the deployment pod.
func (f fixture) deletePod(t *testing.T) {
	t.Helper()
	if _, err := f.DeleteDeployment(t.Context(), admin, "default", "pod", control.Match{}); err != nil {
		t.Error(err)
	}
}

// covers: C7 (who waits with a token that is revoked meanwhile gets nothing)
func TestClusterWhoseTokenIsRevokedWhileItWaitsGetsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := restapi.New(config(), intercept(f, "WaitApplications", func(time.Duration) error {
		f.deletePod(t)
		return f.RevokeAgentToken(t.Context(), admin, "default", "prod", "tok-2")
	}))
	tag := do(t, h, "GET", cluster+"applications", "", asAgent...).header.Get("ETag")
	got := do(t, h, "GET", cluster+"applications?wait=30s", "", append([]string{"If-None-Match", tag}, asAgent...)...)
	if got.status != 401 || strings.Contains(got.body, "tgt-") {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

// covers: T9 (status back)
func TestClusterReportsItsStatus(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Now = func() time.Time { return later }
	f := newFixture(t)
	h := restapi.New(cfg, f)
	_, kept := f.target(t, "tgt-3")
	body := `{"items":[
		{"id":"tgt-1","epoch":2,"generation":1,"digest":"sha256:abc","sync":"Failed","health":"InProgress","reason":"ObjectsFailed","message":"no","asOf":"2026-11-15T12:00:30Z",
		 "objects":[{"group":"apps","version":"v1","kind":"Deployment","namespace":"web","name":"nginx","sync":"Failed","health":"NotFound","reason":"Forbidden","message":"forbidden"}]},
		{"id":"tgt-3","epoch":2,"generation":1,"sync":"Synced","health":"Current","asOf":"2030-01-01T00:00:00Z"}]}`
	if a := do(t, h, "POST", cluster+"status", body, asAgent...); a.status != 204 || a.body != "" {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	web, objects := f.target(t, "tgt-1")
	want := fleet.Observed{
		Version: first, Digest: "sha256:abc", Sync: fleet.SyncFailed, Health: fleet.HealthInProgress, Reason: fleet.ReasonObjectsFailed, Message: "no", AsOf: born.Add(30 * time.Second),
	}
	if diff := cmp.Diff(want, web.Observed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]fleet.ObjectStatus{{
		ObjectRef: fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "web", Name: "nginx"},
		Sync:      fleet.SyncFailed, Health: fleet.HealthNotFound, Reason: fleet.ReasonForbidden, Message: "forbidden",
	}}, objects); diff != "" {
		t.Error(diff)
	}
	pod, objects := f.target(t, "tgt-3")
	// A clock that is ahead would make a report newer than all later ones.
	want = fleet.Observed{Version: first, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: later}
	if diff := cmp.Diff(want, pod.Observed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(kept, objects); diff != "" || len(kept) == 0 {
		t.Errorf("a report without objects changes them: %s", diff)
	}
	if a := do(t, h, "POST", cluster+url.PathEscape(agentToken)+"/status", `{"items":[{"id":"t","epoch":1,"generation":1,"sync":"Great","health":"Current"}]}`, "Authorization", ""); a.status != 422 {
		t.Errorf("an invalid value: got %d %s", a.status, a.body)
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
	h := restapi.New(cfg, newFixture(t))
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
					t.Errorf("%s %s: the response contains the token: %s", method, path, got.body)
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
	do(t, restapi.New(cfg, newFixture(t)), "GET", "/api/v1/tenants/cluster/agents/prod", "")
	if !strings.Contains(out.String(), "/api/v1/tenants/cluster/agents/prod") {
		t.Errorf("the path is not in %s", out.String())
	}
}
