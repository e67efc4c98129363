package restapi_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

var (
	newID     = regexp.MustCompile(`\b([a-z]{3})-[a-z2-7]{20}\b`)
	newSecret = regexp.MustCompile(`\bkedge-(api|agent)-[A-Za-z0-9_-]{20,}`)
)

// masked replaces ids and tokens that are random.
func masked(text string) string {
	text = newSecret.ReplaceAllString(text, "kedge-$1-new")
	return newID.ReplaceAllString(text, "$1-new")
}

func TestAnswersAreAsRecorded(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Now = func() time.Time { return later }
	shared := restapi.New(cfg, newFixture(t))
	const base = "/api/v1/tenants/default/"
	cases := map[string]struct {
		method, path, body string
		status             int
	}{
		"whoami":             {"GET", "/api/v1/whoami", "", 200},
		"tenants":            {"GET", "/api/v1/tenants", "", 200},
		"fleet":              {"GET", "/api/v1/fleet", "", 200},
		"members":            {"GET", base + "members", "", 200},
		"people":             {"GET", "/api/v1/people", "", 200},
		"tokens":             {"GET", base + "tokens", "", 200},
		"token-create":       {"POST", base + "tokens", `{"name":"robot","role":"deployer"}`, 201},
		"agents":             {"GET", base + "agents", "", 200},
		"agent":              {"GET", base + "agents/prod", "", 200},
		"agent-tokens":       {"GET", base + "agents/prod/tokens", "", 200},
		"environments":       {"GET", base + "environments", "", 200},
		"environment-create": {"POST", base + "environments", `{"name":"asia","agents":["prod"],"matchLabels":{"region":"eu"}}`, 201},
		"access-rules":       {"GET", base + "access-rules", "", 200},
		"access-rule-create": {"POST", base + "access-rules", `{"name":"ci","subjects":[{"kind":"token","name":"ci"}],"allAgents":true,"readOnly":true}`, 201},
		"grants":             {"GET", base + "grants", "", 200},
		"deployments":        {"GET", base + "deployments", "", 200},
		"deployment":         {"GET", base + "deployments/web", "", 200},
		"run-waiting":        {"GET", base + "runs/run-1/waiting", "", 200},
		"diagnosis":          {"GET", base + "diagnosis", "", 200},
		"deletion":           {"GET", base + "deployments/web/deletion", "", 200},
		"held-prunes":        {"GET", base + "deployments/pod/held-prunes", "", 200},
		"confirm-prune":      {"POST", base + "deployments/pod/confirm-prune", `{"objects":["ConfigMap shop/old"]}`, 200},
		"revisions":          {"GET", base + "deployments/web/revisions", "", 200},
		"rollback":           {"POST", base + "deployments/pod/rollback", `{"revision":1}`, 202},
		"operation":          {"GET", base + "operations/opn-1", "", 200},
		"audit":              {"GET", "/api/v1/audit", "", 200},
		"repositories":       {"GET", base + "repositories", "", 200},
		"credentials":        {"GET", base + "credentials", "", 200},
		"webhook":            {"POST", base + "repositories/rep-1/webhook", "", 200},
		"events":             {"GET", base + "events?deployment=web&limit=5", "", 200},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := shared
			if c.method != "GET" {
				h = restapi.New(cfg, newFixture(t))
			}
			got := do(t, h, c.method, c.path, c.body)
			if got.status != c.status {
				t.Fatalf("status %d, want %d: %s", got.status, c.status, got.body)
			}
			testkit.Golden(t, name+".json", masked(got.pretty(t)))
		})
	}
}

func TestDeploymentIsAskedForAsWritten(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		body string
		want control.CreateDeployment
	}{
		"the least": {
			`{"name":"new","source":{"repoURL":"https://x/y"}}`,
			control.CreateDeployment{Name: "new", Source: fleet.Source{RepoURL: "https://x/y"}, Policy: &fleet.Policy{Prune: true}},
		},
		"a chart": {
			`{"name":"new","source":{"repoURL":"https://x/y","kind":"helm","helm":{"releaseName":"r","valuesFiles":["a.yaml","/b.yaml"],` +
				`"values":{"b":null,"a":{"n":1,"s":"x"}},"skipCRDs":true,"set":[{"expression":"a.n=2"},{"type":"json","expression":"b=[1]"}]}}}`,
			control.CreateDeployment{Name: "new", Policy: &fleet.Policy{Prune: true}, Source: fleet.Source{
				RepoURL: "https://x/y", Kind: fleet.SourceHelm,
				Helm: fleet.Helm{ReleaseName: "r", ValuesFiles: []string{"a.yaml", "/b.yaml"}, Values: `{"a":{"n":1,"s":"x"},"b":null}`, SkipCRDs: true,
					Set: []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: "a.n=2"}, {Type: fleet.HelmSetJSON, Expression: "b=[1]"}}},
			}},
		},
		"everything": {
			`{"name":"new","labels":{"a":"b"},"source":{"repoURL":"https://x/y","path":"p","revision":"v1","globs":["*.yaml"],"variables":{"k":"v"}},"environment":"eu",` +
				`"namespace":"web","policy":{"prune":false,"adopt":true,"allowEmpty":true,"manual":true,"pruneOnDetach":true,` +
				`"force":true,"replace":true,"previewOnly":true,"drift":"report","ignore":["*:/spec/replicas"],"serviceAccount":"web/deployer",` +
				`"propagation":"Orphan","pruneTimeout":"90s","readyTimeout":"1h30m","pruneLimit":{"objects":3,"percent":7}}}`,
			control.CreateDeployment{
				Name: "new", Labels: map[string]string{"a": "b"},
				Source:      fleet.Source{RepoURL: "https://x/y", Path: "p", Revision: "v1", Globs: []string{"*.yaml"}, Variables: map[string]string{"k": "v"}},
				Environment: "eu", Namespace: "web", Policy: &fleet.Policy{
					Adopt: true, AllowEmpty: true, Manual: true, PruneOnDetach: true, Force: true, Replace: true, DryRun: true,
					Drift: fleet.DriftReport, Ignore: []string{"*:/spec/replicas"}, ServiceAccount: "web/deployer", Propagation: fleet.PropagationOrphan,
					PruneTimeout: 90 * time.Second, ReadyTimeout: 90 * time.Minute, PruneLimit: fleet.PruneLimit{Objects: 3, Percent: 7},
				},
			},
		},
	}
	for name, c := range cases {
		var got []control.CreateDeployment
		h := restapi.New(config(), record(newFixtureOn(t, &awayGit{}), "CreateDeployment", &got))
		if a := do(t, h, "POST", deployments, c.body); a.status != 201 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		c.want.Check = true
		if diff := cmp.Diff([]control.CreateDeployment{c.want}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// covers: C4, C3 (the manifest holds address, token and certificate; the later one no token)
func TestEnrollReturnsTokenAndManifest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := restapi.New(config(), f)
	const agents = "/api/v1/tenants/default/agents"
	got := do(t, h, "POST", agents, `{"name":"new","namespaces":["dude"],"labels":{"a":"b"},"image":"my/agent:v2"}`)
	var enrolled apiv1.Enrollment
	if err := json.Unmarshal([]byte(got.body), &enrolled); err != nil {
		t.Fatalf("%v in %s", err, got.body)
	}
	agent, _, err := f.AuthenticateAgent(t.Context(), enrolled.Token)
	if err != nil || agent.Name != "new" || agent.Scope != fleet.ScopeNamespaced || !slices.Equal(agent.Namespaces, []string{"dude"}) {
		t.Errorf("the token is that of %+v, %v", agent, err)
	}
	for _, want := range []string{
		"token: " + enrolled.Token, "image: my/agent:v2",
		"--server-address=grpcs://kedge.example.com:443", "--ca-cert-file", "namespace: dude", `"labels":{"a":"b"}`,
	} {
		if got.status != 201 || !strings.Contains(got.body, want) {
			t.Fatalf("%d without %q: %s", got.status, want, got.body)
		}
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Error("a response with a token may be cached")
	}
	got = do(t, h, "GET", agents+"/prod/manifest?serverAddress=ws://10.0.0.1:80", "")
	if got.status != 200 || got.header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("got %d %v %s", got.status, got.header, got.body)
	}
	if !strings.HasPrefix(got.body, "apiVersion: v1\n") || strings.Contains(got.body, "kind: Secret") || !strings.Contains(got.body, "ws://10.0.0.1:80") {
		t.Errorf("manifest without the token: %s", got.body)
	}
}

// covers: C13 (an image that nobody has published is never named silently)
func TestNoImageIsNamedUnlessSomebodyNamesOne(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.DefaultImage = ""
	f := newFixture(t)
	h := restapi.New(cfg, f)
	before := f.lastChange(t)
	const agents = "/api/v1/tenants/default/agents"
	for _, got := range []answer{do(t, h, "POST", agents, `{"name":"new"}`), do(t, h, "GET", agents+"/prod/manifest", "")} {
		if got.status != 422 || !strings.Contains(got.body, "--agent-image") || strings.Contains(got.body, "kind: Deployment") {
			t.Errorf("without an image: %d %s", got.status, got.body)
		}
	}
	if f.lastChange(t) != before {
		t.Error("an agent was enrolled without a valid manifest")
	}
	for _, got := range []answer{
		do(t, h, "POST", agents, `{"name":"new","withoutDeployment":true}`), do(t, h, "GET", agents+"/prod/manifest?withoutDeployment=true", ""),
	} {
		if got.status >= 300 || !strings.Contains(got.body, "kind: ServiceAccount") || strings.Contains(got.body, "kind: Deployment") {
			t.Errorf("for an agent outside of its cluster: %d %s", got.status, got.body)
		}
	}
}
