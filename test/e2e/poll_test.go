package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// poll asks as a program does that knows nothing but HTTP, and returns status, ETag and body.
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

// covers: T9
func TestClusterThatPollsSeesItsOwnRowsLive(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *testServer) {
		d := s.tenantClient(t, "acme")
		repo, commit := pushTo(t, "one")
		mine := decode[apiv1.Enrollment](t, d.want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "mine", Labels: map[string]string{"a": "1"}}))
		theirs := decode[apiv1.Enrollment](t, d.want(t, 201, "POST", "agents", apiv1.EnrollAgent{Name: "theirs"}))
		d.want(t, 201, "POST", "environments", apiv1.CreateEnvironment{Name: "one", MatchLabels: map[string]string{"a": "1"}})
		base := d.URL + "/api/v1/cluster/" + mine.Token + "/applications"
		code, tag, body := poll(t, base, "")
		if code != 200 || tag == "" || !strings.Contains(body, `"items":[]`) {
			t.Fatalf("before the first deployment: %d %q %s", code, tag, body)
		}
		if code, _, _ := poll(t, base, tag); code != http.StatusNotModified {
			t.Errorf("with the tag of what it has: %d", code)
		}

		// A poll that waits is answered within a second of the change.
		type answer struct {
			code      int
			tag, body string
			at        time.Time
		}
		answers := make(chan answer, 1)
		wait := func(tag string) {
			go func() {
				code, tag, body := poll(t, base+"?wait=50s", tag)
				answers <- answer{code, tag, body, time.Now()}
			}()
		}
		heard := func(reason string, since time.Time) answer {
			t.Helper()
			select {
			case a := <-answers:
				took := a.at.Sub(since)
				t.Logf("%s: heard after %v", reason, took)
				if a.code != 200 || took > 10*time.Second { // ten times what is promised
					t.Errorf("%s: %d after %v", reason, a.code, took)
				}
				return a
			case <-time.After(patience):
				t.Fatalf("%s: not heard", reason)
				return answer{}
			}
		}
		wait(tag)
		at := time.Now()
		d.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "web", Environment: "one", Source: apiv1.Source{RepoURL: repo.url}})
		a := heard("a new deployment", at)
		for a.code == 200 && !strings.Contains(a.body, commit) { // rendered a moment later
			wait(a.tag)
			a = heard("its commit", time.Now())
		}
		if !strings.Contains(a.body, `"name":"web"`) || !strings.Contains(a.body, repo.url) || !strings.Contains(a.body, `"environment":"one"`) {
			t.Errorf("the row reads %s", a.body)
		}
		repo.announce(t, d)
		wait(a.tag)
		at = time.Now()
		second := repo.push(t, map[string]string{"cm.yaml": plainManifest("two")})
		if a = heard("a pushed commit", at); !strings.Contains(a.body, second) {
			t.Errorf("after the push the row reads %s", a.body)
		}

		// What it reports is seen, and of others it sees nothing and can report nothing.
		var apps apiv1.Applications
		who := tenantClient{Server: d.As(mine.Token), tenant: "acme"}
		apps = get[apiv1.Applications](t, who, "/cluster/applications")
		if len(apps.Items) != 1 {
			t.Fatalf("the rows are %+v", apps)
		}
		report := apiv1.ApplicationStatuses{Items: []apiv1.ApplicationStatus{{
			ID: apps.Items[0].ID, Epoch: apps.Items[0].Epoch, Generation: apps.Items[0].Generation, Digest: apps.Items[0].Digest, Sync: "Synced", Health: "Current",
			Objects: []apiv1.ApplicationObject{{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: "page", Sync: "Synced", Health: "Current"}},
		}}}
		who.want(t, 204, "POST", "/cluster/status", report)
		v := get[apiv1.Deployment](t, d, "deployments/web")
		if v.Targets[0].Sync != "Synced" || v.Targets[0].Health != "Current" || len(v.Targets[0].Objects) != 1 {
			t.Errorf("after its report the target reads %+v", v.Targets[0])
		}
		for name, want := range map[string]bool{"mine": true, "theirs": false} {
			if a := get[apiv1.Agent](t, d, "agents/"+name); a.Connected != want {
				t.Errorf("agent %s reads connected: %t", name, a.Connected)
			}
		}
		other := tenantClient{Server: d.As(theirs.Token), tenant: "acme"}
		if rows := get[apiv1.Applications](t, other, "/cluster/applications"); len(rows.Items) != 0 {
			t.Errorf("another cluster sees %+v", rows)
		}
		report.Items[0].Health = "Failed"
		_ = other.ask(t, "POST", "/cluster/status", report)
		if v := get[apiv1.Deployment](t, d, "deployments/web"); v.Targets[0].Health == "Failed" {
			t.Error("another cluster's report was believed")
		}
		// The token of an agent opens nothing else, and is written down nowhere.
		who.want(t, 401, "GET", "agents", nil)
		if code, _, _ := poll(t, d.URL+"/api/v1/cluster/kedge-agent-wrong/applications", ""); code != 401 {
			t.Errorf("a wrong token: %d", code)
		}
		_, metrics, err := fetch(t.Context(), d.HTTP, d.Health+"/metrics")
		if err != nil || strings.Contains(metrics, mine.Token) || strings.Contains(d.Log(), mine.Token) {
			t.Errorf("the token is in the log or the metrics, %v", err)
		}
	})
}
