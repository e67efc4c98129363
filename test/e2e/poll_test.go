package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// poll polls with plain HTTP, and returns status, ETag, and body.
func poll(tb testing.TB, url, tag string) (int, string, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("ETag"), string(body)
}

// pollingCluster is a cluster that polls with plain HTTP, and another one that sees nothing of it.
type pollingCluster struct {
	tenantClient
	mine, theirs apiv1.Enrollment
	base         string // the URL of its applications
	answers      chan pollAnswer
}

// pollAnswer is the response to a waiting poll.
type pollAnswer struct {
	code      int
	tag, body string
	at        time.Time
}

func newPollingCluster(t *testing.T, s *testServer) *pollingCluster {
	t.Helper()
	p := &pollingCluster{tenantClient: s.tenantClient(t, "acme"), answers: make(chan pollAnswer, 1)}
	p.mine = decode[apiv1.Enrollment](t, p.want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "mine", Labels: map[string]string{"a": "1"}}))
	p.theirs = decode[apiv1.Enrollment](t, p.want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "theirs"}))
	p.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: "one", MatchLabels: map[string]string{"a": "1"}})
	p.base = p.URL + "/api/v1/cluster/" + p.mine.Token + "/applications"
	return p
}

// covers: T9
func TestClusterThatPollsSeesItsOwnRowsLive(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		p := newPollingCluster(t, s)
		code, tag, body := poll(t, p.base, "")
		if code != 200 || tag == "" || !strings.Contains(body, `"items":[]`) {
			t.Fatalf("before the first deployment: %d %q %s", code, tag, body)
		}
		if code, _, _ := poll(t, p.base, tag); code != http.StatusNotModified {
			t.Errorf("with the tag of what it has: %d", code)
		}
		p.hearsOfChanges(t, tag)
		p.reports(t)
		p.keepsItsToken(t)
	})
}

// wait starts a poll that waits for something else than tag.
func (p *pollingCluster) wait(t *testing.T, tag string) {
	go func() {
		code, tag, body := poll(t, p.base+"?wait=50s", tag)
		p.answers <- pollAnswer{code, tag, body, time.Now()}
	}()
}

// heard returns the response to the waiting poll.
func (p *pollingCluster) heard(t *testing.T, reason string, since time.Time) pollAnswer {
	t.Helper()
	select {
	case a := <-p.answers:
		took := a.at.Sub(since)
		t.Logf("%s: heard after %v", reason, took)
		if a.code != 200 || took > 10*time.Second { // ten times the promised time
			t.Errorf("%s: %d after %v", reason, a.code, took)
		}
		return a
	case <-time.After(patience):
		t.Fatalf("%s: not heard", reason)
		return pollAnswer{}
	}
}

// hearsOfChanges shows that a waiting poll gets a response within a second of a change.
func (p *pollingCluster) hearsOfChanges(t *testing.T, tag string) {
	t.Helper()
	repo, commit := pushTo(t, "one")
	p.wait(t, tag)
	at := time.Now()
	p.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Environment: "one", Source: apiv1.Source{RepoURL: repo.url}})
	a := p.heard(t, "a new deployment", at)
	for a.code == 200 && !strings.Contains(a.body, commit) { // rendered a moment later
		p.wait(t, a.tag)
		a = p.heard(t, "its commit", time.Now())
	}
	if !strings.Contains(a.body, `"name":"web"`) || !strings.Contains(a.body, repo.url) || !strings.Contains(a.body, `"environment":"one"`) {
		t.Errorf("the row reads %s", a.body)
	}
	repo.announce(t, p.tenantClient)
	p.wait(t, a.tag)
	at = time.Now()
	second := repo.push(t, map[string]string{"cm.yaml": plainManifest("two")})
	if a = p.heard(t, "a pushed commit", at); !strings.Contains(a.body, second) {
		t.Errorf("after the push the row reads %s", a.body)
	}
}

// reports shows that its reports are visible, and that it neither sees nor reports for others.
func (p *pollingCluster) reports(t *testing.T) {
	t.Helper()
	who := tenantClient{Server: p.As(p.mine.Token), tenant: "acme"}
	apps := get[apiv1.Applications](t, who, "/cluster/applications")
	if len(apps.Items) != 1 {
		t.Fatalf("the rows are %+v", apps)
	}
	app := apps.Items[0]
	report := apiv1.ApplicationStatuses{Items: []apiv1.ApplicationStatus{{
		ID: app.ID, Epoch: app.Epoch, Generation: app.Generation, Digest: app.Digest, Sync: "Synced", Health: "Current",
		Objects: []apiv1.ApplicationObject{{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "page", Sync: "Synced", Health: "Current"}},
	}}}
	who.want(t, 204, "POST", "/cluster/status", report)
	v := get[apiv1.Deployment](t, p.tenantClient, "deployments/web")
	if v.Targets[0].Sync != "Synced" || v.Targets[0].Health != "Current" || len(v.Targets[0].Objects) != 1 {
		t.Errorf("after its report the target reads %+v", v.Targets[0])
	}
	for name, want := range map[string]bool{"mine": true, "theirs": false} {
		if a := get[apiv1.Agent](t, p.tenantClient, "agents/"+name); a.Connected != want {
			t.Errorf("agent %s reads connected: %t", name, a.Connected)
		}
	}
	other := tenantClient{Server: p.As(p.theirs.Token), tenant: "acme"}
	if rows := get[apiv1.Applications](t, other, "/cluster/applications"); len(rows.Items) != 0 {
		t.Errorf("another cluster sees %+v", rows)
	}
	report.Items[0].Health = "Failed"
	_ = other.ask(t, "POST", "/cluster/status", report)
	if v := get[apiv1.Deployment](t, p.tenantClient, "deployments/web"); v.Targets[0].Health == "Failed" {
		t.Error("another cluster's report was believed")
	}
}

// keepsItsToken shows that the token of an agent works nowhere else, and is not stored.
func (p *pollingCluster) keepsItsToken(t *testing.T) {
	t.Helper()
	tenantClient{Server: p.As(p.mine.Token), tenant: "acme"}.want(t, 401, "GET", "agents", nil)
	if code, _, _ := poll(t, p.URL+"/api/v1/cluster/kedge-agent-wrong/applications", ""); code != 401 {
		t.Errorf("a wrong token: %d", code)
	}
	_, metrics, err := fetch(t.Context(), p.HTTP, p.Health+"/metrics")
	if err != nil || strings.Contains(metrics, p.mine.Token) || strings.Contains(p.Log(), p.mine.Token) {
		t.Errorf("the token is in the log or the metrics, %v", err)
	}
}
