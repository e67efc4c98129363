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
	tag := func(m control.Match) string { return fmt.Sprintf(`"%s.%d"`, m.ID, m.Spec) }
	cases := []struct{ path, etag, edit, body, remove string }{
		{"agents/prod", `"agt-1.5"`, "PATCH", `{"labels":{"a":"b"}}`, "DELETE"},
		{"environments/eu", `"env-1.4"`, "PATCH", `{"agents":["prod"]}`, "DELETE"},
		{"repositories/rep-1", `"rep-1.2"`, "PATCH", `{"credential":"robot"}`, "DELETE"},
		{"credentials/robot", `"crd-1.7"`, "PATCH", `{"secret":"hush"}`, "DELETE"},
		{"deployments/web", `"dep-1.6"`, "PATCH", `{"source":{"path":"p"}}`, "DELETE"},
		{"", tag(control.TenantState(aTenant())), "PATCH", `{"quota":{"agents":1}}`, "DELETE"},
		{"grants/grt-1", tag(control.GrantState(aGrant())), "PUT", `{"limits":{}}`, "DELETE"},
		{"runs/run-1", tag(control.RunState(aRun())), "PATCH", `{"revision":"v2"}`, "POST terminate"},
	}
	for _, c := range cases {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			h := restapi.New(config(), fake{standin: newStandin()})
			place := strings.TrimSuffix(inDefault+c.path, "/")
			id, number, _ := strings.Cut(c.etag, ".")
			otherState, recreated := id+`.99"`, `"other.`+number // the name was given anew since
			if got := do(t, h, "GET", place, "").header.Get("ETag"); got != c.etag {
				t.Errorf("ETag %s, want %s", got, c.etag)
			}
			for match, want := range map[string]int{c.etag: 200, "W/" + c.etag: 200, "*": 200, "": 200, otherState: 412, recreated: 412} {
				got := do(t, h, c.edit, place, c.body, "If-Match", match)
				if got.status != want {
					t.Errorf("%s with If-Match %s: got %d %s, want %d", c.edit, match, got.status, got.body, want)
				}
				if want == 412 && !strings.Contains(got.detail(t), "read it again") {
					t.Errorf("it does not say what to do: %s", got.body)
				}
			}
			method, action, _ := strings.Cut(c.remove, " ")
			place = strings.TrimSuffix(place+"/"+action, "/")
			if got := do(t, h, method, place, "", "If-Match", otherState); got.status != 412 {
				t.Errorf("%s of another state: got %d %s", c.remove, got.status, got.body)
			}
			if got := do(t, h, method, place, "", "If-Match", c.etag); got.status >= 300 {
				t.Errorf("%s of this state: got %d %s", c.remove, got.status, got.body)
			}
		})
	}
}

// covers: T1, T4 (what a change leaves out stays as it is)
func TestDeploymentIsChangedAsWritten(t *testing.T) {
	t.Parallel()
	was := deploymentView()
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
	}{
		{"labels alone need no reading", `{"labels":{"a":"b"}}`, "", control.UpdateDeployment{Labels: &map[string]string{"a": "b"}}, control.Match{}},
		{"no labels are not the same as none given", `{"labels":{}}`, `"dep-1.3"`, control.UpdateDeployment{Labels: &map[string]string{}}, control.Match{ID: "dep-1", Spec: 3}},
		{"a part of the source keeps the rest, and is bound to what was read", `{"source":{"path":"p","globs":[]}}`, "",
			control.UpdateDeployment{Source: &fleet.Source{
				RepoURL: was.Source.RepoURL, Path: path, Revision: was.Source.Revision, Globs: []string{}, Variables: was.Source.Variables, Helm: was.Source.Helm,
			}}, control.Match{ID: "dep-1", Spec: 6}},
		{"the settings of a chart are replaced whole", `{"source":{"kind":"kustomize","helm":{}}}`, "",
			control.UpdateDeployment{Source: &fleet.Source{
				RepoURL: was.Source.RepoURL, Path: was.Source.Path, Revision: was.Source.Revision, Variables: was.Source.Variables, Kind: fleet.SourceKustomize,
			}}, control.Match{ID: "dep-1", Spec: 6}},
		{"a part of the policy keeps the rest", `{"policy":{"manual":false,"adopt":true}}`, `"dep-1.6"`, control.UpdateDeployment{Policy: &manual}, control.Match{ID: "dep-1", Spec: 6}},
		{"every other part of the policy", `{"policy":{"force":true,"replace":true,"previewOnly":true,"drift":"report","ignore":[],"serviceAccount":"web/deployer",` +
			`"propagation":"Foreground","pruneTimeout":"1m30s","readyTimeout":"","pruneLimit":{"objects":1,"percent":2}}}`, "", control.UpdateDeployment{Policy: &whole}, control.Match{ID: "dep-1", Spec: 6}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			var got control.UpdateDeployment
			var bound control.Match
			h := restapi.New(config(), fake{standin: newStandin(), update: func(req control.UpdateDeployment, match control.Match) (control.DeploymentView, error) {
				got, bound = req, match
				return deploymentView(), nil
			}})
			if a := do(t, h, "PATCH", deployments+"/web", c.body, "If-Match", c.match); a.status != 200 {
				t.Fatalf("got %d %s", a.status, a.body)
			}
			c.want.Check = true // unless the request says otherwise
			if diff := cmp.Diff(c.want, got); diff != "" || bound != c.bound {
				t.Errorf("bound to %v, want %v; %s", bound, c.bound, diff)
			}
		})
	}
}

func TestChangeOfAPartIsTriedAgainWhenOthersChangeTheRest(t *testing.T) {
	t.Parallel()
	tries := 0
	h := restapi.New(config(), fake{standin: newStandin(), update: func(control.UpdateDeployment, control.Match) (control.DeploymentView, error) {
		if tries++; tries < 3 {
			return control.DeploymentView{}, control.ErrStale
		}
		return deploymentView(), nil
	}})
	if got := do(t, h, "PATCH", deployments+"/web", `{"source":{"path":"p"}}`); got.status != 200 || tries != 3 {
		t.Errorf("got %d %s after %d tries", got.status, got.body, tries)
	}
	tries = 0
	if got := do(t, h, "PATCH", deployments+"/web", `{"source":{"path":"p"}}`, "If-Match", `"dep-1.6"`); got.status != 412 || tries != 1 {
		t.Errorf("bound to an ETag: got %d %s after %d tries", got.status, got.body, tries)
	}
}

// covers: T2 (a 202 links to its operation)
func TestWhatGoesOnLinksToItsOperation(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{standin: newStandin()})
	for _, c := range []struct{ method, path, body string }{
		{"DELETE", "deployments/web", ""},
		{"POST", "deployments/web/runs", ""},
		{"POST", "deployments/web/runs", `{"revision":"v1"}`},
		{"POST", "deployments/web/rollback", `{"revision":9}`},
		{"POST", "agents/prod/rotate-token", ""},
	} {
		got := do(t, h, c.method, inDefault+c.path, c.body)
		at := got.header.Get("Location")
		if got.status != 202 || at != inDefault+"operations/opn-1" {
			t.Errorf("%s %s: got %d at %q: %s", c.method, c.path, got.status, at, got.body)
			continue
		}
		if got := do(t, h, "GET", at, ""); got.status != 200 || !strings.Contains(got.body, `"state":"InProgress"`) {
			t.Errorf("%s: got %d %s", at, got.status, got.body)
		}
	}
}

func TestReasonsMayBeLeftOut(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{standin: newStandin()})
	for _, path := range []string{"/api/v1/fleet/freeze", inDefault + "suspend", inDefault + "environments/eu/suspend", inDefault + "deployments/web/suspend", inDefault + "agents/prod/tokens"} {
		if got := do(t, h, "POST", path, ""); got.status >= 300 {
			t.Errorf("%s: got %d %s", path, got.status, got.body)
		}
	}
}
