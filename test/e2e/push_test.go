package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// pushed is a cluster without an agent, and a tenant whose agent has an Argo CD that can apply to it.
type pushed struct {
	*crTenant
	remote *testkit.Cluster
	ns     string // of the objects in the remote cluster
}

func startPush(t *testing.T) *pushed {
	t.Helper()
	c := startCRs(t)
	c.engine = c.cluster.Namespace(t)
	// By default, Argo CD watches all kinds and fails for one that the token may not list.
	argocd.Start(t, argocd.Config{Cluster: c.cluster, Namespace: c.engine, Settings: map[string]string{"resource.respectRBAC": "normal"}})
	p := &pushed{crTenant: c.tenant(t), remote: testkit.StartCluster(t)}
	p.ns = p.remote.Namespace(t)
	return p
}

// becomeInstance makes the agent an engine instance.
func (p *pushed) becomeInstance(tb testing.TB) {
	tb.Helper()
	p.register(tb, "engineInstance: true")
	p.installAgain(tb)
}

// account returns a kubeconfig of a new ServiceAccount in the remote cluster, with a ClusterRole in the given namespaces, or
// in all of them.
func (p *pushed) account(tb testing.TB, name, role string, namespaces ...string) string {
	tb.Helper()
	p.remote.Kubectl(tb, "-n", p.ns, "create", "serviceaccount", name)
	if len(namespaces) == 0 {
		p.remote.Kubectl(tb, "create", "clusterrolebinding", name, "--clusterrole="+role, "--serviceaccount="+p.ns+":"+name)
	}
	for _, ns := range namespaces {
		p.remote.Kubectl(tb, "-n", ns, "create", "rolebinding", name, "--clusterrole="+role, "--serviceaccount="+p.ns+":"+name)
	}
	return pushKubeconfig(p.remote.ServiceAccountConfig(tb, p.ns, name))
}

func pushKubeconfig(c *rest.Config) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: remote, context: {cluster: c, user: u}}]
`, c.Host, base64.StdEncoding.EncodeToString(c.CAData), c.BearerToken)
}

func (p *pushed) environment(name string) *v1alpha1.ManagedEnvironment {
	return &v1alpha1.ManagedEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.crTenant.ns, Name: name},
		Spec:       v1alpha1.ManagedEnvironmentSpec{APIURL: p.remote.URL(), CredentialsSecret: name},
	}
}

func (p *pushed) secret(name string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.crTenant.ns, Name: name}, StringData: data}
}

func (p *pushed) awaitReady(tb testing.TB, env *v1alpha1.ManagedEnvironment, status metav1.ConditionStatus, reason string) {
	tb.Helper()
	p.await(tb, env.Name, env, func() error { return hasCondition(env.Status.Conditions, v1alpha1.ConditionReady, status, reason) })
}

// remoteHas waits until the remote cluster has exactly these ConfigMaps.
func (p *pushed) remoteHas(tb testing.TB, want string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		if got := fmt.Sprint(values(tb, p.remote, p.ns)); got != want {
			return fmt.Errorf("the remote cluster has %s, want %s", got, want)
		}
		return nil
	})
}

// clusterSecrets returns the cluster Secrets of Kedge.
func (p *pushed) clusterSecrets(tb testing.TB) []corev1.Secret {
	tb.Helper()
	var secrets corev1.SecretList
	err := p.List(tb.Context(), &secrets, client.InNamespace(p.engine), client.MatchingLabels{"app.kubernetes.io/managed-by": "kedge", "argocd.argoproj.io/secret-type": "cluster"})
	if err != nil {
		tb.Fatal(err)
	}
	return secrets.Items
}

// awaitClusterSecret waits until there is exactly one cluster Secret, of the only project of Kedge, that contains a text.
func (p *pushed) awaitClusterSecret(tb testing.TB, text string) corev1.Secret {
	tb.Helper()
	var out corev1.Secret
	testkit.Eventually(tb, patience, func(context.Context) error {
		project := p.cluster.Kubectl(tb, "-n", p.engine, "get", "appprojects", "-l", "app.kubernetes.io/managed-by=kedge", "-o", "jsonpath={.items[*].metadata.name}")
		secrets := p.clusterSecrets(tb)
		if len(secrets) != 1 || !strings.Contains(string(secrets[0].Data["config"]), text) || string(secrets[0].Data["project"]) != project {
			return fmt.Errorf("the cluster Secrets do not have %q in project %q: %v", text, project, secrets)
		}
		out = secrets[0]
		return nil
	})
	return out
}

// Each mistake in a push environment has its own reason.
// covers: K7
func TestPushEnvironmentHasAReasonForEachMistake(t *testing.T) {
	t.Parallel()
	p := startPush(t)
	good := p.account(t, "deployer", "cluster-admin")
	env, secret := p.environment("customer"), p.secret("customer", map[string]string{"other": "key"})
	p.create(t, env)
	p.awaitReady(t, env, metav1.ConditionFalse, "SecretNotFound")
	p.create(t, secret)
	p.awaitReady(t, env, metav1.ConditionFalse, "KubeconfigMissing")
	content := func(text string) {
		t.Helper()
		edit(t, p, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"kubeconfig": []byte(text)} })
	}
	for _, test := range []struct{ text, reason string }{
		{"{{ garbage", "KubeconfigInvalid"},
		{strings.Replace(good, "user: {token:", "user: {exec: {command: id}, token:", 1), "KubeconfigUnsupported"},
		{strings.Replace(good, "user: {token:", "user: {tokenFile: /etc/passwd, token:", 1), "KubeconfigUnsupported"},
		{strings.Replace(good, p.remote.URL(), "https://other.example.com", 1), "ContextNotFound"},
		{good, "NoEngineInstance"},
	} {
		content(test.text)
		p.awaitReady(t, env, metav1.ConditionFalse, test.reason)
	}
	edit(t, p, env, func(e *v1alpha1.ManagedEnvironment) { e.Spec.Context = "absent" })
	p.awaitReady(t, env, metav1.ConditionFalse, "ContextNotFound")
	edit(t, p, env, func(e *v1alpha1.ManagedEnvironment) { e.Spec.Context = "remote" })
	p.becomeInstance(t)
	p.awaitReady(t, env, metav1.ConditionTrue, "EndpointReady")

	content(good[:strings.Index(good, "token: ")] + "token: wrong}}]\n" + good[strings.Index(good, "contexts:"):])
	p.awaitReady(t, env, metav1.ConditionFalse, "EndpointUnauthorized")
	other := pushKubeconfig(&rest.Config{Host: p.remote.URL(), BearerToken: "x", TLSClientConfig: rest.TLSClientConfig{CAData: p.cluster.RESTConfig().CAData}})
	content(other)
	p.awaitReady(t, env, metav1.ConditionFalse, "EndpointUntrusted")
	content(good)
	p.awaitReady(t, env, metav1.ConditionTrue, "EndpointReady")

	away := p.environment("away")
	away.Spec.APIURL = "https://127.0.0.1:1"
	p.create(t, p.secret("away", map[string]string{"kubeconfig": strings.Replace(good, p.remote.URL(), away.Spec.APIURL, 1)}))
	p.create(t, away)
	p.awaitReady(t, away, metav1.ConditionFalse, "EndpointUnreachable")
	if out, err := p.kedge(t, "describe", "environment", "away", "--tenant", p.crTenant.ns); err != nil || !strings.Contains(out, "EndpointUnreachable") || !strings.Contains(out, "my-internal-cluster") {
		t.Errorf("the description does not say why the environment cannot be used: %v\n%s", err, out)
	}
	if err := p.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	p.awaitReady(t, env, metav1.ConditionUnknown, "EngineInstanceDisconnected")
	for _, r := range p.remote.Requests(t) {
		if strings.Contains(r.UserAgent, "kedge-server") {
			t.Errorf("the server connected to the cluster: %+v", r)
		}
	}
}

// Argo CD applies to a cluster without an agent. Its Secret follows the credential, and is removed with the last deployment.
// covers: E5, K7
func TestPushEnvironmentDeploysAndFollowsItsCredential(t *testing.T) {
	t.Parallel()
	p := startPush(t)
	p.becomeInstance(t)
	first := p.account(t, "first", "cluster-admin")
	env, secret := p.environment("customer"), p.secret("customer", map[string]string{"kubeconfig": first})
	p.create(t, secret)
	p.create(t, env)
	p.awaitReady(t, env, metav1.ConditionTrue, "EndpointReady")
	if n := len(p.clusterSecrets(t)); n != 0 {
		t.Errorf("there are %d cluster Secrets without a deployment", n)
	}
	commit := p.repo.push(t, map[string]string{"app/cm.yaml": configMap(p.ns, "cm-app", "1")})
	d := p.deployment("app", "app")
	d.Spec.Destination = v1alpha1.Destination{Environment: "customer", Namespace: p.ns}
	p.create(t, d)
	p.awaitSynced(t, d, commit)
	p.remoteHas(t, "map[cm-app:1]")
	live := p.awaitClusterSecret(t, token(first))
	p.checkSecretPermissions(t)

	// Changes by hand are reverted.
	p.cluster.Kubectl(t, "-n", p.engine, "patch", "secret", live.Name, "--type=merge", "-p", `{"data":{"config":"e30=","project":null}}`)
	p.awaitClusterSecret(t, token(first))
	p.cluster.Kubectl(t, "-n", p.engine, "delete", "secret", live.Name)
	p.awaitClusterSecret(t, token(first))

	// Another account, and the first one has no permission any more.
	second := p.account(t, "second", "cluster-admin")
	edit(t, p, secret, func(s *corev1.Secret) { s.Data["kubeconfig"] = []byte(second) })
	p.awaitClusterSecret(t, token(second))
	p.remote.Kubectl(t, "delete", "clusterrolebinding", "first")
	commit = p.repo.push(t, map[string]string{"app/cm.yaml": configMap(p.ns, "cm-app", "2")})
	p.awaitSynced(t, d, commit)
	p.remoteHas(t, "map[cm-app:2]")
	p.awaitReady(t, env, metav1.ConditionTrue, "EndpointReady")

	// The URL cannot change, and the agent cannot leave, while there is a deployment.
	edit(t, p, env, func(e *v1alpha1.ManagedEnvironment) { e.Spec.APIURL = "https://other.example.com" })
	p.awaitReady(t, env, metav1.ConditionFalse, "InUse")
	edit(t, p, env, func(e *v1alpha1.ManagedEnvironment) { e.Spec.APIURL = p.remote.URL() })
	p.register(t)
	p.awaitEnvironment(t, v1alpha1.ConditionReady, metav1.ConditionFalse)
	p.register(t, "engineInstance: true")
	p.awaitEnvironment(t, v1alpha1.ConditionReady, metav1.ConditionTrue)
	p.remoteHas(t, "map[cm-app:2]")

	// The deletion of the environment waits for the deployment, whose deletion needs a credential that is replaced meanwhile.
	if err := p.Delete(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	p.await(t, env.Name, env, func() error {
		return hasCondition(env.Status.Conditions, v1alpha1.ConditionDeleted, metav1.ConditionFalse, "InUse")
	})
	third := p.account(t, "third", "cluster-admin")
	edit(t, p, secret, func(s *corev1.Secret) { s.Data["kubeconfig"] = []byte(third) })
	p.awaitClusterSecret(t, token(third))
	p.remote.Kubectl(t, "delete", "clusterrolebinding", "second")
	if err := p.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	p.remoteHas(t, "map[]")
	testkit.Eventually(t, patience, func(context.Context) error {
		if left := p.clusterSecrets(t); len(left) > 0 {
			return fmt.Errorf("%d cluster Secrets are left", len(left))
		}
		return nil
	})
	p.awaitGone(t, env.Name, env)
	whole := p.Log() + p.agent.Log()
	for _, kubeconfig := range []string{first, second, third} {
		if strings.Contains(whole, token(kubeconfig)) {
			t.Error("a log contains a token")
		}
	}
	for _, r := range p.remote.Requests(t) {
		if strings.Contains(r.UserAgent, "kedge-server") {
			t.Errorf("the server connected to the cluster: %+v", r)
		}
	}
}

func token(kubeconfig string) string {
	_, rest, _ := strings.Cut(kubeconfig, `token: "`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}

// A push environment that is limited to namespaces works with a token for these namespaces, and refuses others. It is created
// through the REST API.
// covers: K7, E5
func TestPushEnvironmentIsLimitedToNamespaces(t *testing.T) {
	t.Parallel()
	p := startPush(t)
	p.becomeInstance(t)
	kubeconfig := p.account(t, "limited", "admin", p.ns)
	ctx := t.Context()
	body := apiv1.CreateEnvironment{Name: "limited", Push: &apiv1.PushRequest{APIURL: p.remote.URL(), Kubeconfig: kubeconfig, Namespaces: []string{p.ns}}}
	var made apiv1.Environment
	if err := p.rest().Call(ctx, "POST", p.rest().path("environments"), body, &made); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		if err := p.rest().Call(ctx, "GET", p.rest().path("environments/limited"), nil, &made); err != nil {
			return err
		}
		if made.Push == nil || made.Push.Ready.Reason != "EndpointReady" || made.Push.EngineInstance != "my-internal-cluster" {
			return fmt.Errorf("the environment is not ready: %+v", made.Push)
		}
		return nil
	})
	elsewhere := p.remote.Namespace(t)
	commit := p.repo.push(t, map[string]string{
		"app/cm.yaml": configMap(p.ns, "cm-app", "1"), "other/cm.yaml": configMap(elsewhere, "cm-other", "1"),
	})
	good, other := p.deployment("app", "app"), p.deployment("other", "other")
	for _, d := range []*v1alpha1.GitOpsDeployment{good, other} {
		d.Spec.Destination = v1alpha1.Destination{Environment: "limited", Namespace: p.ns}
		p.create(t, d)
	}
	p.awaitSynced(t, good, commit)
	p.await(t, other.Name, other, func() error {
		return hasCondition(other.Status.Conditions, "Synced", metav1.ConditionFalse, "OutsideEnvironment")
	})
	p.remoteHas(t, "map[cm-app:1]")
	if got := fmt.Sprint(values(t, p.remote, elsewhere)); got != "map[]" {
		t.Errorf("the other namespace has %s", got)
	}
	live := p.awaitClusterSecret(t, token(kubeconfig))
	if string(live.Data["namespaces"]) != p.ns || string(live.Data["clusterResources"]) != "false" {
		t.Errorf("the cluster Secret has namespaces %q and clusterResources %q", live.Data["namespaces"], live.Data["clusterResources"])
	}
}
