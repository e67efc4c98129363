package argocd_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/internal/testkit"
	argocdtest "github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// becomeInstance gives the agent the permissions of an engine instance.
func (w *world) becomeInstance() {
	w.Helper()
	manifest, err := install.Manifest(install.Options{
		Agent: fleet.Agent{
			ID: w.agent, Name: "edge", Scope: fleet.ScopeCluster, EngineNamespace: w.argo.Namespace(), Instance: true, DeliverGitCredentials: true,
		},
		TenantName: "default", ServerAddress: "grpcs://kedge.example.com", Token: "secret", WithSecret: true, WithoutDeployment: true, AgentNamespace: w.agentNS,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.cluster.Apply(w, string(manifest))
}

// secretOf returns a Secret in the namespace of Argo CD. agent is "" for one that Kedge did not write.
func (w *world) secretOf(name string, agent fleet.AgentID, project string) string {
	labels := "{}"
	if agent != "" {
		labels = fmt.Sprintf("{kedge.dev/agent: %s, app.kubernetes.io/managed-by: kedge}", agent)
	}
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata:\n  namespace: %s\n  name: %s\n  labels: %s\n  annotations: {kedge.dev/project: %q}\n",
		w.argo.Namespace(), name, labels, project)
}

func (w *world) secrets() string {
	w.Helper()
	out := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "secrets", "-o", `jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}`)
	var own []string
	for name := range strings.Lines(out) {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, w.agentNS) {
			own = append(own, strings.TrimPrefix(name, w.agentNS+"-"))
		}
	}
	return strings.Join(own, " ")
}

// Secrets of an earlier agent in the same namespace are deleted when no Application has their project any more. Argo CD may
// apply with the others, and what Kedge did not write stays.
// covers: E5
func TestSecretsOfAnEarlierAgentAreReleased(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	w := newWorld(t, argocdtest.Start(t, argocdtest.Config{Cluster: c, Namespace: c.Namespace(t)}))
	w.becomeInstance()
	earlier, name := fleet.NewAgentID(), func(n int) string { return agentnames.ClusterSecret(w.agentNS, n) }
	c.Apply(t, w.secretOf(name(0), earlier, "unused")+w.secretOf(name(1), earlier, "used")+w.secretOf(name(2), "", "unused")+w.secretOf(name(3), earlier, "")+
		w.secretOf(agentnames.RepositorySecret(w.agentNS, 7), earlier, "unused"))
	c.Apply(t, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {namespace: %s, name: theirs, labels: {kedge.dev/agent: %s}}
spec: {project: used, source: {repoURL: %q, path: ., targetRevision: main}, destination: {server: "https://kubernetes.default.svc", namespace: %s}}
`, w.argo.Namespace(), earlier, w.url, w.ns))
	e := w.start()
	await := func(want string) {
		t.Helper()
		w.eventually(func() error {
			if got := w.secrets(); got != want {
				return fmt.Errorf("the Secrets are %q, want %q", got, want)
			}
			return nil
		})
	}
	await("cluster-1 cluster-2 cluster-3")
	// After its last Application, a later end of a target releases the Secret.
	c.Kubectl(t, "-n", w.argo.Namespace(), "delete", "application", "theirs")
	e.Set(w.desired(w.push(map[string]string{"a.yaml": configMap("a", "1")})))
	w.await("Synced", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced })
	e.Set(w.tombstone())
	await("cluster-2 cluster-3")
}

// The agent reads 200 Secrets by name when it starts. If one of five requests fails, it still comes to an end: an error does not
// let it begin again.
// covers: E5
func TestSecretsAreReadDespiteErrors(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	w := newWorld(t, argocdtest.Start(t, argocdtest.Config{Cluster: c, Namespace: c.Namespace(t)}))
	w.becomeInstance()
	var reads atomic.Int64
	w.wrap = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/secrets/") && reads.Add(1)%5 == 0 {
				return nil, errCrash
			}
			return next.RoundTrip(r)
		})
	}
	w.source.Credential = &fleet.GitCredential{Kind: fleet.CredentialHTTPS, Username: "robot", Secret: fleet.NewSecretText("password")}
	e := w.start()
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "1")}))
	if got := w.secrets(); got != "repository-0" {
		t.Errorf("the Secrets are %q", got)
	}
	if n := reads.Load(); n > 500 {
		t.Errorf("%d requests read 200 Secrets", n)
	}
}

// If no Secret is free, the status says what they are counted for.
// covers: E5
func TestStatusSaysWhatTheSecretsOfClustersAreUsedFor(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	w := newWorld(t, argocdtest.Start(t, argocdtest.Config{Cluster: c, Namespace: c.Namespace(t)}))
	w.becomeInstance()
	var text strings.Builder
	for n := range agentnames.ClusterSecrets {
		text.WriteString(w.secretOf(agentnames.ClusterSecret(w.agentNS, n), "", ""))
	}
	c.Apply(t, text.String())
	e := w.start()
	env := fleet.PushEnvironment{ID: fleet.NewEnvironmentID(), Name: "customer", APIURL: "https://127.0.0.1:1"}
	e.Engine.(interface{ Serve([]fleet.PushEnvironment) }).Serve([]fleet.PushEnvironment{env})
	d := w.desired(w.push(map[string]string{"a.yaml": configMap("a", "1")}))
	d.Source.Environment = env.ID
	e.Set(d)
	s := w.await("Failed", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncFailed })
	if m := s.Observed.Message; !strings.Contains(m, "one Secret for each cluster of each AppProject, at most 100") || !strings.Contains(m, "100 by others") {
		t.Errorf("the message is %q", m)
	}
}
