package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// crs is a cluster with the custom resource definitions, and a server that serves them with exactly the rights of
// deploy/server-rbac.yaml. A server serves all resources of a cluster, so each has its own cluster.
type crs struct {
	*testServer
	client.Client
	cluster *testkit.Cluster
	repo    *testRepo
	owner   testing.TB // the server runs until its end
	engine  string     // namespace of the Argo CD that applies for the agents of new tenants; "" if they apply by themselves
}

// useArgoCD starts an Argo CD, which applies for the agents of new tenants.
func (c *crs) useArgoCD(tb testing.TB) {
	tb.Helper()
	c.engine = c.cluster.Namespace(tb)
	argocd.Start(tb, argocd.Config{Cluster: c.cluster, Namespace: c.engine})
}

// startCRs starts a cluster and a server.
func startCRs(tb testing.TB, args ...string) *crs {
	tb.Helper()
	c := newCRs(tb)
	c.testServer = startServer(tb, append([]string{"--kubeconfig", serverKubeconfig(tb, c.cluster), "--git-poll-interval", "1s"}, args...)...)
	return c
}

// onBothEngines runs a test with an agent that applies by itself, and with one that has Argo CD apply.
func onBothEngines(t *testing.T, run func(t *testing.T, tenant *crTenant)) {
	t.Helper()
	t.Run("builtin", func(t *testing.T) {
		t.Parallel()
		run(t, startCRs(t).tenant(t))
	})
	t.Run("argocd", func(t *testing.T) {
		t.Parallel()
		c := startCRs(t)
		c.useArgoCD(t)
		run(t, c.tenant(t))
	})
}

// newCRs is startCRs without a server.
func newCRs(tb testing.TB) *crs {
	tb.Helper()
	c := &crs{cluster: testkit.StartCluster(tb), repo: newRepo(tb), owner: tb}
	c.define(tb)
	c.cluster.Kubectl(tb, "apply", "-f", filepath.Join(moduleRoot(tb), "deploy", "server-rbac.yaml"))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.cluster.Kubeconfig())
	if err != nil {
		tb.Fatal(err)
	}
	config.QPS = -1
	if c.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		tb.Fatal(err)
	}
	return c
}

func moduleRoot(tb testing.TB) string {
	tb.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	return root
}

// define applies the custom resource definitions.
func (c *crs) define(tb testing.TB) {
	tb.Helper()
	c.cluster.Kubectl(tb, "apply", "--server-side", "-f", filepath.Join(moduleRoot(tb), "deploy", "crds"))
	c.cluster.Kubectl(tb, "wait", "--for=condition=Established", "crd/gitopsdeployments.gitops.kedge.dev", "crd/managedenvironments.gitops.kedge.dev",
		"crd/repositorycredentials.gitops.kedge.dev", "crd/syncruns.gitops.kedge.dev")
}

// serverKubeconfig writes a kubeconfig for the ServiceAccount of deploy/server-rbac.yaml.
func serverKubeconfig(tb testing.TB, cluster *testkit.Cluster) string {
	tb.Helper()
	config := cluster.ServiceAccountConfig(tb, "kedge-system", "kedge-server")
	path := filepath.Join(tb.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfigOf(config)), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func kubeconfigOf(c *rest.Config) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q, certificate-authority-data: %q}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, c.Host, c.CAFile, base64.StdEncoding.EncodeToString(c.CAData), c.BearerToken)
}

// crTenant is a namespace with a ManagedEnvironment whose agent runs, and a namespace for the objects.
type crTenant struct {
	*crs
	ns, target string
	token      string
	agent      *testAgent
}

// tenant creates a namespace with an environment and starts its agent.
func (c *crs) tenant(tb testing.TB) *crTenant {
	tb.Helper()
	t := &crTenant{crs: c, ns: c.cluster.Namespace(tb), target: c.cluster.Namespace(tb), token: randomToken()}
	t.register(tb)
	t.awaitEnvironment(tb, v1alpha1.ConditionReady, metav1.ConditionTrue)
	t.agent = installRegistered(tb, c.testServer, c.cluster, t.ns, t.token)
	t.agent.run(tb)
	t.awaitEnvironment(tb, v1alpha1.ConditionConnected, metav1.ConditionTrue)
	return t
}

// register applies the environment, with more fields of its cluster.
func (t *crTenant) register(tb testing.TB, fields ...string) {
	tb.Helper()
	if t.engine != "" {
		fields = append(fields, "gitopsEngineNamespace: "+t.engine)
	}
	text := registration(t.ns, t.token)
	for _, field := range fields {
		text += "    " + field + "\n"
	}
	t.cluster.Apply(tb, text)
}

func (t *crTenant) awaitEnvironment(tb testing.TB, condition string, status metav1.ConditionStatus) {
	tb.Helper()
	env := &v1alpha1.ManagedEnvironment{}
	t.await(tb, "my-internal-cluster", env, func() error { return hasCondition(env.Status.Conditions, condition, status, "") })
}

// await reads an object in the namespace of the tenant until check accepts it.
func (t *crTenant) await(tb testing.TB, name string, o client.Object, check func() error) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		if err := t.Get(ctx, types.NamespacedName{Namespace: t.ns, Name: name}, o); err != nil {
			return err
		}
		return check()
	})
}

// awaitGone waits until an object does not exist.
func (t *crTenant) awaitGone(tb testing.TB, name string, o client.Object) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		err := t.Get(ctx, types.NamespacedName{Namespace: t.ns, Name: name}, o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s exists (%w): %+v", name, err, o)
	})
}

// hasCondition checks a condition; an empty reason is any.
func hasCondition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) error {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil || c.Status != status || (reason != "" && c.Reason != reason) {
		return fmt.Errorf("condition %s is not %s %s: %+v", kind, status, reason, conditions)
	}
	return nil
}

// deployment returns a GitOpsDeployment of a path.
func (t *crTenant) deployment(name, path string) *v1alpha1.GitOpsDeployment {
	return &v1alpha1.GitOpsDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.ns, Name: name},
		Spec: v1alpha1.GitOpsDeploymentSpec{
			Source:      v1alpha1.Source{RepoURL: t.repo.url, Path: path},
			Destination: v1alpha1.Destination{Environment: "my-internal-cluster", Namespace: t.target},
		},
	}
}

// create creates an object.
func (c *crs) create(tb testing.TB, o client.Object) {
	tb.Helper()
	if err := c.Create(tb.Context(), o); err != nil {
		tb.Fatal(err)
	}
}

// edit changes an object, again if it changed meanwhile.
func edit[O client.Object](tb testing.TB, c client.Client, o O, change func(O)) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change(o)
		return c.Update(ctx, o)
	})
}

// forceDelete deletes an object and removes its finalizers before the server can act on the deletion.
func (c *crs) forceDelete(tb testing.TB, o client.Object) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error { // the server may set its finalizer again meanwhile
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		o.SetFinalizers(nil)
		if err := c.Update(ctx, o); err != nil {
			return err
		}
		return c.Delete(ctx, o, client.Preconditions{ResourceVersion: new(o.GetResourceVersion())})
	})
}

// deploy creates a GitOpsDeployment of one ConfigMap in its own folder and waits until it is Synced and Healthy.
func (t *crTenant) deploy(tb testing.TB, name string) *v1alpha1.GitOpsDeployment {
	tb.Helper()
	commit := t.repo.push(tb, map[string]string{name + "/cm.yaml": configMap(t.target, "cm-"+name, "1")})
	d := t.deployment(name, name)
	t.create(tb, d)
	t.awaitSynced(tb, d, commit)
	return d
}

// awaitSynced waits until a deployment is Synced and Healthy, at a commit unless that is "".
func (t *crTenant) awaitSynced(tb testing.TB, d *v1alpha1.GitOpsDeployment, commit string) {
	tb.Helper()
	t.await(tb, d.Name, d, func() error {
		st := d.Status
		if st.ObservedGeneration != d.Generation || st.Sync.Status != "Synced" || st.Health.Status != "Healthy" || (commit != "" && st.Sync.Revision != commit) {
			return fmt.Errorf("not Synced and Healthy at %q: %+v", commit, st)
		}
		return hasCondition(st.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
	})
}

// awaitRefused waits until a deployment is not accepted for a reason.
func (t *crTenant) awaitRefused(tb testing.TB, d *v1alpha1.GitOpsDeployment, reason string) {
	tb.Helper()
	t.await(tb, d.Name, d, func() error {
		return hasCondition(d.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason)
	})
}

// has reports the values of the ConfigMaps in the target namespace.
func (t *crTenant) has(tb testing.TB, want string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		if got := fmt.Sprint(values(tb, t.cluster, t.target)); got != want {
			return fmt.Errorf("the cluster has %s, want %s", got, want)
		}
		return nil
	})
}

// rest returns the REST API in the tenant of the namespace.
func (t *crTenant) rest() tenantClient { return tenantClient{Server: t.Server, tenant: t.ns} }

// deleted returns what the agent, or the Argo CD that applies for it, deleted in the target namespace.
func (t *crTenant) deleted(tb testing.TB) []testkit.Request {
	tb.Helper()
	var out []testkit.Request
	for _, r := range deletions(t.cluster.Requests(tb)) {
		if r.Namespace == t.target && (strings.HasSuffix(r.User, ":kedge-agent") || strings.HasSuffix(r.User, ":"+argocd.ServiceAccount)) {
			out = append(out, r)
		}
	}
	return out
}

// stopServer stops the server of the resources.
func (c *crs) stopServer(tb testing.TB) {
	tb.Helper()
	if err := c.Stop(); err != nil {
		tb.Fatal(err)
	}
}

// startAgain starts the stopped server again.
func (c *crs) startAgain(tb testing.TB) {
	tb.Helper()
	c.restart(c.owner)
}

// restore replaces the database of the stopped server.
func (c *crs) restore(tb testing.TB, backup string) {
	tb.Helper()
	dir := c.owner.TempDir()
	if err := rig.Admin(tb.Context(), binary(tb, "kedge-server"), "restore", "--data-dir", dir, "--in", backup); err != nil {
		tb.Fatal(err)
	}
	copyFile(tb, filepath.Join(c.dir, "keys"), filepath.Join(dir, "keys"))
	c.dir = dir
}
