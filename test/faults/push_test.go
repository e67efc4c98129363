package faults_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// Names of the resources of a tenant with a push environment.
const (
	engine   = "engine"   // the environment of the engine instance
	customer = "customer" // the push environment, and its Secret
	pushed   = "push"     // an app in the push environment
)

// pushEnv is the push environment of a tenant. A real Argo CD, without faults, applies to it: the faults are in the calls of
// Kedge. Its API server is that of the resources, because the ledger needs one order of everything.
type pushEnv struct {
	argocd   string // namespace of Argo CD
	accounts string // namespace of the ServiceAccounts that credentials are of
	account  string // that of the credential
}

// addPush starts an engine instance, and creates the push environment.
func (t *tenant) addPush() {
	w := t.w
	w.tb.Helper()
	t.pushEnv = &pushEnv{argocd: t.name + "-argocd", accounts: t.name + "-accounts"}
	w.namespace(t.pushEnv.argocd)
	w.namespace(t.pushEnv.accounts)
	// By default, Argo CD fails for a kind that the token may not list.
	argocd.Start(w.tb, argocd.Config{Cluster: w.cluster, Namespace: t.pushEnv.argocd, Settings: map[string]string{"resource.respectRBAC": "normal"}})
	t.register(engine, v1alpha1.DisconnectedCluster{GitOpsEngineNamespace: t.pushEnv.argocd, DeliverGitCredentials: true, EngineInstance: true})
	t.awaitEnvironment(engine, v1alpha1.ConditionReady)
	t.startAgent(engine, "engine")
	t.awaitEnvironment(engine, v1alpha1.ConditionConnected)
	ctx := w.tb.Context()
	kubeconfig, err := t.newAccount(ctx)
	w.must(err)
	w.must(w.Create(ctx, t.secret(customer, map[string]string{"kubeconfig": kubeconfig})))
	w.must(w.Create(ctx, t.pushEnvironment()))
	t.awaitEnvironment(customer, v1alpha1.ConditionReady)
}

func (t *tenant) pushEnvironment() *v1alpha1.ManagedEnvironment {
	return &v1alpha1.ManagedEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: customer},
		Spec:       v1alpha1.ManagedEnvironmentSpec{APIURL: t.w.cluster.URL(), CredentialsSecret: customer, Namespaces: t.targets[:2]},
	}
}

// newAccount creates a ServiceAccount that may write to the target namespaces, and returns its kubeconfig.
func (t *tenant) newAccount(ctx context.Context) (kubeconfig string, err error) {
	meta := metav1.ObjectMeta{Namespace: t.pushEnv.accounts, Name: t.next("account")}
	objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: meta}}
	for _, ns := range t.targets[:2] {
		objects = append(objects, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: meta.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}},
		})
	}
	for _, o := range objects {
		if err := t.w.Create(ctx, o); err != nil {
			return "", err
		}
	}
	t.pushEnv.account = meta.Name
	c := t.w.cluster.ServiceAccountConfig(t.w.tb, meta.Namespace, meta.Name)
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
`, c.Host, base64.StdEncoding.EncodeToString(c.CAData), c.BearerToken), nil
}

// pushScript are the steps with the push environment. The specs in them are random.
var pushScript = []string{"create", "rotate", "mistakes", "edit", "recreate", "create", "commit", "rotate", "edit", "delete", "create"}

// pushStep does a step with the push environment and its app.
func (t *tenant) pushStep(ctx context.Context, rng *rand.Rand, step string) error {
	if err := t.bringBack(ctx, wait); err != nil {
		return err
	}
	a := t.apps[pushed]
	var err error
	switch {
	case step == "rotate":
		err = t.rotatePush(ctx, rng)
	case step == "recreate":
		err = t.recreatePush(ctx)
	case step == "mistakes":
		err = t.pushMistakes(ctx)
	case !a.exists: // or an earlier step could not create it
		err = t.creates(ctx, rng, a)
	case step == "commit":
		_, err = t.push(t.repos[a.spec.repo], a.spec.branch)
		t.note("push a commit for the push environment")
	case step == "edit":
		s := t.another(rng, a.spec)
		t.note("edit %s: %+v", a.name, s)
		err = t.edit(ctx, a, s)
	case step == "delete":
		t.note("delete %s", a.name)
		err = t.remove(ctx, a)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if step != "rotate" && step != "commit" { // the next step comes while it is under way
		t.waits(ctx, a)
	}
	return nil
}

// pushSites are call sites that had a fault before the faults end. The last step creates an app, which needs them.
var pushSites = []string{"kubernetes, engine: create appprojects", "kubernetes, engine: create secrets", "kubernetes, engine: create applications"}

// pushFaults waits until the calls of the engine instance had faults. Programs that are killed all the time would not come so far.
func (t *tenant) pushFaults(ctx context.Context, rng *rand.Rand) error {
	if t.pushEnv == nil {
		return nil
	}
	t.w.sites.killsEnd.Store(true)
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !t.w.sites.has(pushSites...) {
		if bounded.Err() != nil {
			return fmt.Errorf("not all of %q had a fault: %w", pushSites, t.settled(ctx, t.apps[pushed]))
		}
		if !t.apps[pushed].exists { // the last step could not create it
			if err := t.pushStep(ctx, rng, "create"); err != nil {
				return err
			}
		}
		pause(bounded, 50*time.Millisecond)
	}
	return nil
}

// rotatePush gives the push environment the credential of another account, with a mistake in between, and deletes the former
// account, so that its token is not valid any more.
func (t *tenant) rotatePush(ctx context.Context, rng *rand.Rand) error {
	former := t.pushEnv.account
	kubeconfig, err := t.newAccount(ctx)
	if err != nil {
		return err
	}
	t.note("rotate the push environment to %s", t.pushEnv.account)
	if rng.IntN(2) == 0 {
		if err := t.putKey(ctx, customer, "kubeconfig", "{{ garbage"); err != nil {
			return err
		}
	}
	if err := t.putKey(ctx, customer, "kubeconfig", kubeconfig); err != nil {
		return err
	}
	return t.w.Delete(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: t.pushEnv.accounts, Name: former}})
}

// pushMistakes makes mistakes in the credentials Secret, each of which has its reason. The objects must stay meanwhile.
func (t *tenant) pushMistakes(ctx context.Context) error {
	t.note("mistakes in the push environment")
	var secret corev1.Secret
	if err := t.w.Get(ctx, types.NamespacedName{Namespace: t.name, Name: customer}, &secret); err != nil {
		return err
	}
	good := string(secret.Data["kubeconfig"])
	for _, mistake := range []struct{ kubeconfig, reason string }{
		{"", "KubeconfigMissing"},
		{"{{ garbage", "KubeconfigInvalid"},
		{strings.Replace(good, "user: {token:", "user: {exec: {command: id}, token:", 1), "KubeconfigUnsupported"},
		{strings.Replace(good, t.w.cluster.URL(), "https://other.example.com", 1), "ContextNotFound"},
	} {
		if err := t.putKey(ctx, customer, "kubeconfig", mistake.kubeconfig); err != nil {
			return err
		}
		if err := t.pushRefused(ctx, mistake.reason); err != nil {
			return err
		}
	}
	return t.putKey(ctx, customer, "kubeconfig", good)
}

// pushRefused waits until the push environment has a reason.
func (t *tenant) pushRefused(ctx context.Context, reason string) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		env := t.pushEnvironment()
		if err := t.w.Get(bounded, client.ObjectKeyFromObject(env), env); err != nil {
			return err
		}
		c := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.ConditionReady)
		if c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason {
			return nil
		}
		if bounded.Err() != nil {
			return fmt.Errorf("the push environment is not %s: %+v", reason, env.Status.Conditions)
		}
		pause(bounded, 20*time.Millisecond)
	}
}

// recreatePush deletes the push environment with what is deployed to it, and creates it again.
func (t *tenant) recreatePush(ctx context.Context) error {
	t.note("delete the push environment")
	if a := t.apps[pushed]; a.exists {
		if err := t.remove(ctx, a); err != nil {
			return err
		}
	}
	if err := t.w.Delete(ctx, t.pushEnvironment()); err != nil {
		return err
	}
	return t.bringBack(ctx, 2*wait)
}

// bringBack creates the push environment if it was deleted and is gone. A later call does it if that takes too long.
func (t *tenant) bringBack(ctx context.Context, limit time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		env := t.pushEnvironment()
		err := t.w.Get(ctx, client.ObjectKeyFromObject(env), env)
		switch {
		case err == nil && env.DeletionTimestamp.IsZero():
			return nil
		case apierrors.IsNotFound(err):
			t.note("create the push environment")
			return t.w.Create(ctx, t.pushEnvironment())
		case err != nil:
			return err
		case bounded.Err() != nil:
			t.note("the push environment is still being deleted: %+v", env.Status.Conditions)
			return nil
		}
		pause(bounded, 20*time.Millisecond)
	}
}

// pushSettled says why the push environment is not ready; nil if it is.
func (t *tenant) pushSettled(ctx context.Context) error {
	if t.pushEnv == nil {
		return nil
	}
	env := &v1alpha1.ManagedEnvironment{}
	if err := t.w.Get(ctx, types.NamespacedName{Namespace: t.name, Name: customer}, env); err != nil {
		return err
	}
	if err := hasCondition(env.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue); err != nil {
		return fmt.Errorf("push environment of %s: %w", t.name, err)
	}
	if !t.apps[pushed].exists {
		return t.inArgoCD(ctx)
	}
	return t.hasCredential(ctx)
}

// hasCredential checks that Argo CD has one cluster Secret, with the newest credential.
func (t *tenant) hasCredential(ctx context.Context) error {
	var secrets corev1.SecretList
	if err := t.w.List(ctx, &secrets, client.InNamespace(t.pushEnv.argocd), client.MatchingLabels{"argocd.argoproj.io/secret-type": "cluster"}); err != nil {
		return err
	}
	var credential corev1.Secret
	if err := t.w.Get(ctx, types.NamespacedName{Namespace: t.name, Name: customer}, &credential); err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(credential.Data["kubeconfig"]), `token: "`)
	token, _, _ := strings.Cut(after, `"`)
	if len(secrets.Items) != 1 || token == "" || !strings.Contains(string(secrets.Items[0].Data["config"]), token) {
		return fmt.Errorf("the Argo CD of %s has %d cluster Secrets, want one with the token of %s", t.name, len(secrets.Items), t.pushEnv.account)
	}
	return nil
}

// inArgoCD says what Kedge has left in the namespace of Argo CD; nil for nothing.
func (t *tenant) inArgoCD(context.Context) error {
	if t.pushEnv == nil {
		return nil
	}
	left, err := t.w.cluster.TryKubectl(t.w.tb, "-n", t.pushEnv.argocd, "get", "applications,appprojects,secrets", "-l", "app.kubernetes.io/managed-by=kedge", "-o", "name")
	if err == nil && left != "" {
		err = fmt.Errorf("the namespace of Argo CD of %s has %s", t.name, left)
	}
	return err
}
