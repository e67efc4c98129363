package restapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

const inDefault = "/api/v1/tenants/default/"

// covers: T1 (ETag)
func TestReadsCarryTheETagThatWritesAreBoundTo(t *testing.T) {
	t.Parallel()
	cases := []struct{ path, etag, edit, body, remove string }{
		{inDefault + "agents/prod", `"agt-1.5"`, "PATCH", `{"labels":{"a":"b"}}`, "DELETE"},
		{inDefault + "environments/us", `"env-3.2"`, "PATCH", `{"agents":["prod"]}`, "DELETE"},
		{inDefault + "repositories/rep-3", `"rep-3.2"`, "PATCH", `{"credential":"robot"}`, "DELETE"},
		{inDefault + "credentials/spare", `"crd-2.7"`, "PATCH", `{"secret":"hush"}`, "DELETE"},
		{inDefault + "deployments/pod", `"dep-2.1"`, "PATCH", `{"source":{"path":"p"}}`, "DELETE"},
		{"/api/v1/tenants/empty", "", "PATCH", `{"quota":{"agents":1}}`, "DELETE"},
		{inDefault + "grants/grt-1", "", "PUT", `{"limits":{}}`, "DELETE"},
		{inDefault + "runs/run-1", "", "PATCH", `{"revision":"v2"}`, "POST terminate"},
	}
	for _, c := range cases {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			f := newFixtureOn(t, &awayGit{})
			h := restapi.New(config(), f)
			if c.etag == "" {
				c.etag = f.stateTag(t, c.path)
			}
			current := func() string { return do(t, h, "GET", c.path, "").header.Get("ETag") }
			if got := current(); got != c.etag {
				t.Errorf("ETag %s, want %s", got, c.etag)
			}
			for _, m := range []struct {
				match func(id, number string) string
				want  int
			}{
				{func(id, number string) string { return `"` + id + "." + number + `"` }, 200},
				{func(id, number string) string { return `W/"` + id + "." + number + `"` }, 200},
				{func(string, string) string { return "*" }, 200},
				{func(string, string) string { return "" }, 200},
				{func(id, _ string) string { return `"` + id + `.99"` }, 412},
				{func(_, number string) string { return `"other.` + number + `"` }, 412}, // the name was used again
			} {
				id, number, _ := strings.Cut(strings.Trim(current(), `"`), ".")
				match := m.match(id, number)
				got := do(t, h, c.edit, c.path, c.body, "If-Match", match)
				if got.status != m.want {
					t.Errorf("%s with If-Match %s: got %d %s, want %d", c.edit, match, got.status, got.body, m.want)
				}
				if m.want == 412 && !strings.Contains(got.detail(t), "read it again") {
					t.Errorf("it does not contain the remedy: %s", got.body)
				}
			}
			now := current()
			method, action, _ := strings.Cut(c.remove, " ")
			place := strings.TrimSuffix(c.path+"/"+action, "/")
			if got := do(t, h, method, place, "", "If-Match", now[:strings.Index(now, ".")]+`.99"`); got.status != 412 {
				t.Errorf("%s of another state: got %d %s", c.remove, got.status, got.body)
			}
			if got := do(t, h, method, place, "", "If-Match", now); got.status >= 300 {
				t.Errorf("%s of this state: got %d %s", c.remove, got.status, got.body)
			}
		})
	}
}

// stateTag returns the ETag of the resource at a path whose state has no number in the database.
func (f fixture) stateTag(t *testing.T, path string) string {
	t.Helper()
	tenant, err := f.Tenant(t.Context(), admin, "empty")
	if err != nil {
		t.Fatal(err)
	}
	grant, err := f.Grant(t.Context(), admin, "default", "grt-1")
	if err != nil {
		t.Fatal(err)
	}
	run, err := f.Run(t.Context(), admin, "default", "run-1")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]control.Match{"empty": control.TenantState(tenant), "grt-1": control.GrantState(grant.Grant), "run-1": control.RunState(run)}[path[strings.LastIndex(path, "/")+1:]]
	return fmt.Sprintf(`"%s.%d"`, m.ID, m.SpecRevision)
}

// covers: T1, T4 (what a change leaves out stays as it is)
func TestDeploymentIsChangedAsWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	was, err := f.Deployment(t.Context(), admin, "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	path := "p"
	manual := was.Policy
	manual.Manual, manual.Adopt = false, true
	whole := was.Policy
	whole.Force, whole.Replace, whole.DryRun, whole.Drift, whole.Ignore = true, true, true, fleet.DriftReport, []string{}
	whole.ServiceAccount, whole.Propagation, whole.PruneTimeout, whole.ReadyTimeout = "web/deployer", fleet.PropagationForeground, 90*time.Second, 0
	whole.PruneLimit = fleet.PruneLimit{Objects: 1, Percent: 2}
	cases := []struct {
		reason, body, match string
		want                control.UpdateDeployment
		bound               control.Match
		status              int
	}{
		{"labels alone need no reading", `{"labels":{"a":"b"}}`, "", control.UpdateDeployment{Labels: &map[string]string{"a": "b"}}, control.Match{}, 200},
		{"no labels are not the same as none given", `{"labels":{}}`, `"dep-1.3"`, control.UpdateDeployment{Labels: &map[string]string{}}, control.Match{ID: "dep-1", SpecRevision: 3}, 412},
		{"a part of the source keeps the rest, and depends on the state that was read", `{"source":{"path":"p","globs":[]}}`, "",
			control.UpdateDeployment{Source: &fleet.Source{
				RepoURL: was.Source.RepoURL, Path: path, Revision: was.Source.Revision, Globs: []string{}, Variables: was.Source.Variables, Helm: was.Source.Helm,
			}}, control.Match{ID: "dep-1", SpecRevision: 6}, 200},
		{"the settings of a chart are replaced whole", `{"source":{"kind":"kustomize","helm":{}}}`, "",
			control.UpdateDeployment{Source: &fleet.Source{
				RepoURL: was.Source.RepoURL, Path: was.Source.Path, Revision: was.Source.Revision, Variables: was.Source.Variables, Kind: fleet.SourceKustomize,
			}}, control.Match{ID: "dep-1", SpecRevision: 6}, 200},
		{"a part of the policy keeps the rest", `{"policy":{"manual":false,"adopt":true}}`, `"dep-1.6"`, control.UpdateDeployment{Policy: &manual}, control.Match{ID: "dep-1", SpecRevision: 6}, 200},
		{"every other part of the policy", `{"policy":{"force":true,"replace":true,"previewOnly":true,"drift":"report","ignore":[],"serviceAccount":"web/deployer",` +
			`"propagation":"Foreground","pruneTimeout":"1m30s","readyTimeout":"","pruneLimit":{"objects":1,"percent":2}}}`, "", control.UpdateDeployment{Policy: &whole}, control.Match{ID: "dep-1", SpecRevision: 6}, 200},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			var got []deploymentEdit
			h := restapi.New(config(), record(newFixtureOn(t, &awayGit{}), "UpdateDeployment", &got))
			if a := do(t, h, "PATCH", deployments+"/web", c.body, "If-Match", c.match); a.status != c.status || len(got) != 1 {
				t.Fatalf("got %d %s after %d requests", a.status, a.body, len(got))
			}
			c.want.Check = true // unless the request says otherwise
			if diff := cmp.Diff(c.want, got[0].UpdateDeployment); diff != "" || got[0].match != c.bound {
				t.Errorf("bound to %v, want %v; %s", got[0].match, c.bound, diff)
			}
		})
	}
}

func TestChangeOfAPartIsTriedAgainWhenOthersChangeTheRest(t *testing.T) {
	t.Parallel()
	tries, others := 0, 2
	f := newFixtureOn(t, &awayGit{})
	h := restapi.New(config(), intercept(f, "UpdateDeployment", func(deploymentEdit) error {
		if tries++; tries > others {
			return nil
		}
		labels := map[string]string{"edit": fmt.Sprint(tries)}
		_, err := f.UpdateDeployment(t.Context(), admin, "default", "pod", control.UpdateDeployment{Labels: &labels}, control.Match{})
		return err
	}))
	got := do(t, h, "PATCH", deployments+"/pod", `{"source":{"path":"p"}}`)
	if got.status != 200 || tries != 3 || !strings.Contains(got.body, `"edit":"2"`) || !strings.Contains(got.body, `"path":"p"`) {
		t.Errorf("got %d %s after %d tries", got.status, got.body, tries)
	}
	tries, others = 0, 1
	if got := do(t, h, "PATCH", deployments+"/pod", `{"source":{"path":"q"}}`, "If-Match", got.header.Get("ETag")); got.status != 412 || tries != 1 {
		t.Errorf("with an ETag: got %d %s after %d tries", got.status, got.body, tries)
	}
}

// covers: T2 (a 202 links to its operation)
func TestWhatGoesOnLinksToItsOperation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, path, body, state string }{
		{"DELETE", "deployments/pod", "", "InProgress"},
		{"POST", "deployments/pod/runs", "", "Waiting"},
		{"POST", "deployments/pod/runs", `{"revision":"v1"}`, "Waiting"},
		{"POST", "deployments/pod/rollback", `{"revision":1}`, "InProgress"},
		{"POST", "agents/prod/rotate-token", "", "Waiting"},
	} {
		h := restapi.New(config(), newFixture(t))
		got := do(t, h, c.method, inDefault+c.path, c.body)
		at := got.header.Get("Location")
		if got.status != 202 || !strings.HasPrefix(at, inDefault+"operations/opn-") {
			t.Errorf("%s %s: got %d at %q: %s", c.method, c.path, got.status, at, got.body)
			continue
		}
		name := strings.Split(c.path, "/")[1]
		if got := do(t, h, "GET", at, ""); got.status != 200 || !strings.Contains(got.body, `"state":"`+c.state+`"`) || !strings.Contains(got.body, `"name":"`+name+`"`) {
			t.Errorf("%s: got %d %s", at, got.status, got.body)
		}
	}
}

func TestReasonsMayBeLeftOut(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), newFixture(t))
	for _, path := range []string{"/api/v1/fleet/freeze", inDefault + "suspend", inDefault + "environments/eu/suspend", inDefault + "deployments/web/suspend", inDefault + "agents/prod/tokens"} {
		if got := do(t, h, "POST", path, ""); got.status >= 300 {
			t.Errorf("%s: got %d %s", path, got.status, got.body)
		}
	}
}
