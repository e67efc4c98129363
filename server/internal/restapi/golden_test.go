package restapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func agentView() control.AgentView {
	return control.AgentView{
		Agent: fleet.Agent{
			ID: "agt-1", Name: "prod", Labels: map[string]string{"region": "eu"}, Scope: fleet.ScopeNamespaced,
			Namespaces: []string{"dude"}, Spec: 5, CreatedAt: born,
		},
		Connected: true, LastSeenAt: later, Targets: 2, Warnings: []string{"replica pod-b runs version v1.0.0, the server runs v1.2.3"},
		Connections: []fleet.Connection{
			{Replica: "pod-b", Version: "v1.0.0", KubeVersion: "v1.36.3", RemoteAddr: "10.0.0.2:1", ConnectedAt: born, LastSeenAt: later},
			// Times of any zone read as UTC.
			{Replica: "pod-a", Version: "v1.2.3", ClusterUID: "uid", ConnectedAt: born.In(time.FixedZone("x", 3600)), LastSeenAt: later, DisconnectedAt: later},
		},
	}
}

func deploymentView() control.DeploymentView {
	target := func(id, agent string, observed int64, v fleet.View, objects ...fleet.ObjectStatus) control.TargetView {
		return control.TargetView{
			Target: fleet.Target{
				ID: fleet.TargetID(id), AgentName: agent,
				Desired:  fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 4}, Commit: "c0ffee"},
				Observed: fleet.Observed{Version: fleet.Version{Epoch: 1, Generation: observed}},
			},
			View: v, Objects: objects,
		}
	}
	return control.DeploymentView{
		Deployment: fleet.Deployment{
			ID: "dep-1", Name: "web", Labels: map[string]string{"team": "shop"}, RepositoryID: "rep-1",
			Source: fleet.Source{RepoURL: "https://git.example.com/web", Path: "deploy", Revision: "main", Variables: map[string]string{"zone": "{agent.name}"},
				Helm: fleet.Helm{ReleaseName: "r", ValuesFiles: []string{"/env/{agent.name}.yaml"}, Values: `{"image":{"tag":"v1"}}`, SkipCRDs: true,
					Set: []fleet.HelmSet{{Type: fleet.HelmSetString, Expression: "image.tag=1.10"}}}},
			Detected:    fleet.SourceHelm,
			Environment: "default", Namespace: "web", CreatedAt: born,
			Policy:     fleet.Policy{Prune: true, Manual: true, Drift: fleet.DriftIgnore, Ignore: []string{"*:/spec/replicas"}, ReadyTimeout: 5 * time.Minute, PruneTimeout: time.Hour},
			Suspension: held, Pin: fleet.Pin{Revision: 9, Commit: "c0ffee", At: later, By: "anna"}, Spec: 6,
			Rendered: fleet.Rendered{Commit: "c0ffee", Digest: "sha256:abc", At: later, Volatile: true}, SourceReason: fleet.ReasonRenderFailed, SourceError: "deploy/a.yaml: not YAML",
		},
		Pending: &fleet.PendingSpec{Spec: 6, Reason: fleet.PendingUnrendered, Problem: "deploy/b.yaml: not YAML", By: "anna"},
		InForce: &fleet.Deployment{
			Source: fleet.Source{RepoURL: "https://git.example.com/web", Path: "old"}, Environment: "staging", Namespace: "web", Policy: fleet.Policy{Prune: true},
		},
		Sync: fleet.SyncFailed, Health: fleet.HealthStale, Reason: fleet.ReasonRenderFailed, Message: "deploy/a.yaml: not YAML", Held: "suspended by anna",
		Operations: []fleet.Operation{anOperation()},
		Counts: control.TargetCounts{
			Targets: 3, Stale: 1, StaleSince: later, Sync: map[fleet.SyncState]int{fleet.SyncFailed: 2, fleet.SyncSynced: 1},
			Health: map[fleet.Health]int{fleet.HealthInProgress: 2, fleet.HealthStale: 1},
		},
		Targets: []control.TargetView{
			target("tgt-2", "lost", 3, fleet.View{Sync: fleet.SyncSynced, Health: fleet.HealthStale, Reason: fleet.ReasonAgentDisconnected, AsOf: born, StaleSince: later}),
			target("tgt-1", "prod", 4, fleet.View{Sync: fleet.SyncFailed, Health: fleet.HealthInProgress, Reason: fleet.ReasonObjectsFailed, Message: "1 object failed", AsOf: later},
				fleet.ObjectStatus{
					ObjectRef: fleet.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "naww", Name: "nginx"},
					Sync:      fleet.SyncFailed, Health: fleet.HealthNotFound, Reason: fleet.ReasonForbidden, Message: "forbidden",
				}),
		},
	}
}

func TestAnswersAreAsRecorded(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{
		standin: newStandin(),
		agents: func(string, store.AgentFilter) ([]control.AgentView, error) {
			return []control.AgentView{agentView(), {}}, nil
		},
		environments: func(string, store.Page) ([]control.EnvironmentView, error) { return nil, nil },
	})
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
		"token-create":       {"POST", base + "tokens", `{"name":"ci","role":"deployer"}`, 201},
		"agents":             {"GET", base + "agents", "", 200},
		"agent":              {"GET", base + "agents/prod", "", 200},
		"agent-tokens":       {"GET", base + "agents/prod/tokens", "", 200},
		"environments":       {"GET", base + "environments", "", 200},
		"environment-create": {"POST", base + "environments", `{"name":"eu","agents":["prod"],"matchLabels":{"region":"eu"}}`, 201},
		"grants":             {"GET", base + "grants", "", 200},
		"deployments":        {"GET", base + "deployments", "", 200},
		"deployment":         {"GET", base + "deployments/web", "", 200},
		"run-waiting":        {"GET", base + "runs/run-1/waiting", "", 200},
		"diagnosis":          {"GET", base + "diagnosis", "", 200},
		"deletion":           {"GET", base + "deployments/web/deletion", "", 200},
		"held-prunes":        {"GET", base + "deployments/web/held-prunes", "", 200},
		"confirm-prune":      {"POST", base + "deployments/web/confirm-prune", `{"objects":["ConfigMap shop/old"]}`, 200},
		"revisions":          {"GET", base + "deployments/web/revisions", "", 200},
		"rollback":           {"POST", base + "deployments/web/rollback", `{"revision":9}`, 202},
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
			got := do(t, h, c.method, c.path, c.body)
			if got.status != c.status {
				t.Fatalf("status %d, want %d: %s", got.status, c.status, got.body)
			}
			testkit.Golden(t, name+".json", got.pretty(t))
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
			`{"name":"web","source":{"repoURL":"https://x/y"}}`,
			control.CreateDeployment{Name: "web", Source: fleet.Source{RepoURL: "https://x/y"}, Policy: &fleet.Policy{Prune: true}},
		},
		"a chart": {
			`{"name":"web","source":{"repoURL":"https://x/y","kind":"helm","helm":{"releaseName":"r","valuesFiles":["a.yaml","/b.yaml"],` +
				`"values":{"b":null,"a":{"n":1,"s":"x"}},"skipCRDs":true,"set":[{"expression":"a.n=2"},{"type":"json","expression":"b=[1]"}]}}}`,
			control.CreateDeployment{Name: "web", Policy: &fleet.Policy{Prune: true}, Source: fleet.Source{
				RepoURL: "https://x/y", Kind: fleet.SourceHelm,
				Helm: fleet.Helm{ReleaseName: "r", ValuesFiles: []string{"a.yaml", "/b.yaml"}, Values: `{"a":{"n":1,"s":"x"},"b":null}`, SkipCRDs: true,
					Set: []fleet.HelmSet{{Type: fleet.HelmSetValue, Expression: "a.n=2"}, {Type: fleet.HelmSetJSON, Expression: "b=[1]"}}},
			}},
		},
		"everything": {
			`{"name":"web","labels":{"a":"b"},"source":{"repoURL":"https://x/y","path":"p","revision":"v1","globs":["*.yaml"],"variables":{"k":"v"}},"environment":"eu",` +
				`"namespace":"web","policy":{"prune":false,"adopt":true,"allowEmpty":true,"manual":true,"pruneOnDetach":true,` +
				`"force":true,"replace":true,"previewOnly":true,"drift":"report","ignore":["*:/spec/replicas"],"serviceAccount":"web/deployer",` +
				`"propagation":"Orphan","pruneTimeout":"90s","readyTimeout":"1h30m","pruneLimit":{"objects":3,"percent":7}}}`,
			control.CreateDeployment{
				Name: "web", Labels: map[string]string{"a": "b"},
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
		var got control.CreateDeployment
		h := restapi.New(config(), fake{create: func(_ string, r control.CreateDeployment) (control.DeploymentView, error) {
			got = r
			return deploymentView(), nil
		}})
		if a := do(t, h, "POST", deployments, c.body); a.status != 201 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		c.want.Check = true
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// covers: C4, C3 (the manifest holds address, token and certificate; the later one no token)
func TestEnrolAnswersWithTokenAndManifest(t *testing.T) {
	t.Parallel()
	h := restapi.New(config(), fake{
		enroll: func(_ string, r control.EnrollAgent) (control.Enrollment, error) {
			a := fleet.Agent{ID: "agt-1", Name: r.Name, Scope: fleet.ScopeNamespaced, Namespaces: r.Namespaces, Labels: r.Labels}
			return control.Enrollment{Agent: a, Token: "kedge-agent-fresh"}, nil
		},
		agent: func(tenant, name string) (control.AgentView, error) {
			if tenant != "default" || name != "prod" {
				return control.AgentView{}, store.ErrNotFound
			}
			return agentView(), nil
		},
	})
	const agents = "/api/v1/tenants/default/agents"
	got := do(t, h, "POST", agents, `{"name":"prod","namespaces":["dude"],"labels":{"a":"b"},"image":"my/agent:v2"}`)
	for _, want := range []string{
		`"token":"kedge-agent-fresh"`, "token: kedge-agent-fresh", "image: my/agent:v2",
		"--server-address=grpcs://kedge.example.com:443", "--ca-cert-file", "namespace: dude", `"labels":{"a":"b"}`,
	} {
		if got.status != 201 || !strings.Contains(got.body, want) {
			t.Fatalf("%d without %q: %s", got.status, want, got.body)
		}
	}
	if got.header.Get("Cache-Control") != "no-store" {
		t.Error("an answer with a token may be cached")
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
	enrolled := 0
	h := restapi.New(cfg, fake{
		enroll: func(_ string, r control.EnrollAgent) (control.Enrollment, error) {
			enrolled++
			return control.Enrollment{Agent: fleet.Agent{ID: "agt-1", Name: r.Name}, Token: "kedge-agent-fresh"}, nil
		},
		agent: func(string, string) (control.AgentView, error) { return agentView(), nil },
	})
	const agents = "/api/v1/tenants/default/agents"
	for _, got := range []answer{do(t, h, "POST", agents, `{"name":"prod"}`), do(t, h, "GET", agents+"/prod/manifest", "")} {
		if got.status != 422 || !strings.Contains(got.body, "--agent-image") || strings.Contains(got.body, "kind: Deployment") {
			t.Errorf("without an image: %d %s", got.status, got.body)
		}
	}
	if enrolled > 0 {
		t.Error("an agent was enrolled whose manifest could not be made")
	}
	for _, got := range []answer{
		do(t, h, "POST", agents, `{"name":"prod","withoutDeployment":true}`), do(t, h, "GET", agents+"/prod/manifest?withoutDeployment=true", ""),
	} {
		if got.status >= 300 || !strings.Contains(got.body, "kind: ServiceAccount") || strings.Contains(got.body, "kind: Deployment") {
			t.Errorf("for an agent outside of its cluster: %d %s", got.status, got.body)
		}
	}
}
