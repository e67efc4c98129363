package argocd_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const limit = 2 * time.Minute

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example.invalid/web:1"}]}
`

func configMap(text string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {text: %s}\n", text)
}

// fixture is an Argo CD with a repository and a namespace to deploy to.
type fixture struct {
	*testing.T
	cluster *testkit.Cluster
	argo    *argocd.Instance
	git     *gitserver.Server
	repo    *gitserver.Repo
	url     string
	target  string // namespace
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := testkit.SharedCluster(t)
	f := &fixture{T: t, cluster: c, target: c.Namespace(t)}
	f.argo = argocd.Start(t, argocd.Config{Cluster: c, Namespace: c.Namespace(t)})
	f.startGit()
	return f
}

// startGit starts a Git server with a repository that has a Deployment and a ConfigMap.
func (f *fixture) startGit() {
	f.Helper()
	var err error
	if f.git, err = gitserver.Start(f.TempDir()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = f.git.Close() })
	if f.repo, err = f.git.CreateRepo(f.Context(), "app", f.TempDir()); err != nil {
		f.Fatal(err)
	}
	f.url = f.git.URL("app")
	push(f.T, f.repo, map[string]string{"web.yaml": web, "settings.yaml": configMap("one")})
}

func push(t *testing.T, repo *gitserver.Repo, files map[string]string) {
	t.Helper()
	if _, err := repo.CommitAndPush(t.Context(), files, "change"); err != nil {
		t.Fatal(err)
	}
}

// application creates an Application that syncs and heals by itself.
func (f *fixture) application(name, path, server, namespace string) {
	f.Helper()
	f.cluster.Apply(f, fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %s
  namespace: %s
  finalizers: [resources-finalizer.argocd.argoproj.io]
spec:
  project: default
  source: {repoURL: %q, path: %s, targetRevision: main}
  destination: {server: %q, namespace: %s}
  syncPolicy: {automated: {prune: true, selfHeal: true}}
`, name, f.argo.Namespace(), f.url, path, server, namespace))
}

// awaitState waits until an Application is at a commit, Synced, and Healthy.
func (f *fixture) awaitState(name, commit string) {
	f.Helper()
	want := commit + " Synced Healthy"
	testkit.Eventually(f, limit, func(context.Context) error {
		got := f.cluster.Kubectl(f, "-n", f.argo.Namespace(), "get", "application", name,
			"-o", "jsonpath={.status.sync.revision} {.status.sync.status} {.status.health.status}")
		if got != want {
			return fmt.Errorf("the Application is %q, want %q", got, want)
		}
		return nil
	})
}

func (f *fixture) awaitText(c *testkit.Cluster, want string) {
	f.Helper()
	testkit.Eventually(f, limit, func(context.Context) error {
		got, err := c.TryKubectl(f, "-n", f.target, "get", "configmap", "settings", "-o", "jsonpath={.data.text}")
		if err != nil || got != want {
			return fmt.Errorf("the ConfigMap has %q (%w), want %q", got, err, want)
		}
		return nil
	})
}

func (f *fixture) refresh(name string) {
	f.Helper()
	f.cluster.Kubectl(f, "-n", f.argo.Namespace(), "annotate", "application", name, "argocd.argoproj.io/refresh=normal")
}

func TestApplicationFollowsGit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application("app", ".", argocd.InCluster, f.target)
	f.awaitState("app", f.repo.Head())

	t.Log("an edit by hand is healed")
	f.cluster.Kubectl(t, "-n", f.target, "patch", "configmap", "settings", "--type=merge", "-p", `{"data":{"text":"edited"}}`)
	f.awaitText(f.cluster, "one")

	t.Log("a push is picked up after a refresh")
	push(t, f.repo, map[string]string{"settings.yaml": configMap("two")})
	f.refresh("app")
	f.awaitState("app", f.repo.Head())
	f.awaitText(f.cluster, "two")

	t.Log("the finalizer deletes what the Application has deployed")
	f.cluster.Kubectl(t, "-n", f.argo.Namespace(), "delete", "application", "app", "--timeout=120s")
	if left := f.cluster.Kubectl(t, "-n", f.target, "get", "deployments,configmaps", "-o", "name"); strings.Contains(left, "settings") || strings.Contains(left, "web") {
		t.Errorf("left: %s", left)
	}
}

func TestKilledPartsContinue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.application("app", ".", argocd.InCluster, f.target)
	f.awaitState("app", f.repo.Head())
	for i, killed := range [][]argocd.Part{{argocd.Controller}, {argocd.Redis}, {argocd.RepoServer}, nil} {
		f.argo.Kill(killed...)
		text := fmt.Sprint("after", i)
		push(t, f.repo, map[string]string{"settings.yaml": configMap(text)})
		f.argo.Start(t)
		f.refresh("app")
		f.awaitState("app", f.repo.Head())
		f.awaitText(f.cluster, text)
	}
	f.argo.Stop(t)
	f.argo.Start(t)
}

// Two instances have an Application of the same name in one cluster. Neither touches the objects of the other.
func TestInstancesAreIndependent(t *testing.T) {
	t.Parallel()
	one, two := newFixture(t), newFixture(t)
	for _, f := range []*fixture{one, two} {
		f.application("app", ".", argocd.InCluster, f.target)
	}
	for _, f := range []*fixture{one, two} {
		f.awaitState("app", f.repo.Head())
	}
	one.cluster.Kubectl(t, "-n", one.argo.Namespace(), "delete", "application", "app", "--timeout=120s")
	two.refresh("app")
	two.awaitState("app", two.repo.Head())
	two.awaitText(two.cluster, "one")
}

// An instance that has permissions in its own namespace only deploys to a namespace of another cluster, with a
// bearer token.
func TestClusterSecretNamesAnotherCluster(t *testing.T) {
	t.Parallel()
	c, remote := testkit.SharedCluster(t), testkit.StartCluster(t)
	f := &fixture{T: t, cluster: c, target: remote.Namespace(t)}
	f.argo = argocd.Start(t, argocd.Config{
		Cluster: c, Namespace: c.Namespace(t), NamespaceInstall: true,
		// By default, Argo CD watches all kinds and fails for one that the token may not list.
		Settings: map[string]string{"resource.respectRBAC": "normal"},
	})
	f.startGit()
	remote.Kubectl(t, "-n", f.target, "create", "serviceaccount", "deployer")
	remote.Kubectl(t, "-n", f.target, "create", "rolebinding", "deployer", "--clusterrole=admin", "--serviceaccount="+f.target+":deployer")
	config := remote.ServiceAccountConfig(t, f.target, "deployer")
	connection, err := json.Marshal(map[string]any{
		"bearerToken":     config.BearerToken,
		"tlsClientConfig": map[string]any{"caData": base64.StdEncoding.EncodeToString(config.CAData)},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.cluster.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata:
  name: remote
  namespace: %s
  labels: {argocd.argoproj.io/secret-type: cluster}
stringData:
  name: remote
  server: %s
  namespaces: %s
  config: '%s'
`, f.argo.Namespace(), remote.URL(), f.target, connection))
	f.application("app", ".", remote.URL(), f.target)
	f.awaitState("app", f.repo.Head())
	f.awaitText(remote, "one")
}

// The repo server runs the real kustomize and helm, and git gets the password of a repository Secret.
func TestRepoServerRendersPrivateRepository(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.git.Protect("app", map[string]string{"reader": "secret"})
	push(t, f.repo, map[string]string{
		"kustomize/kustomization.yaml": "namePrefix: k-\nresources: [settings.yaml]\n",
		"kustomize/settings.yaml":      configMap("kustomize"),
		"chart/Chart.yaml":             "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"chart/values.yaml":            "text: helm\n",
		"chart/templates/settings.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-settings"}
data: {text: "{{ .Values.text }}"}
`,
	})
	f.cluster.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata:
  name: repository
  namespace: %s
  labels: {argocd.argoproj.io/secret-type: repository}
stringData: {type: git, url: %q, username: reader, password: secret}
`, f.argo.Namespace(), f.url))
	for path, want := range map[string]string{"kustomize": "k-settings kustomize", "chart": "chart-settings helm"} {
		f.application(path, path, argocd.InCluster, f.target)
		f.awaitState(path, f.repo.Head())
		name, text, _ := strings.Cut(want, " ")
		if got := f.cluster.Kubectl(t, "-n", f.target, "get", "configmap", name, "-o", "jsonpath={.data.text}"); got != text {
			t.Errorf("ConfigMap %s has %q, want %q", name, got, text)
		}
	}
}
