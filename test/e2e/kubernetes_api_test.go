package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: K4, K5, K6, C5
func TestKubernetesAPI(t *testing.T) {
	t.Parallel()
	onBothEngines(t, kubernetesAPI)
}

func kubernetesAPI(t *testing.T, tenant *crTenant) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *crTenant)
	}{
		{"invalid specs are refused", invalidSpecs},
		{"no destination", noDestination},
		{"an environment that appears later", laterEnvironment},
		{"status", fullStatus},
		{"other APIs cannot change it", ownedByResource},
		{"names in use", namesInUse},
		{"sync runs", syncRuns},
		{"registration tokens", registrationTokens},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, tenant) })
	}
}

func invalidSpecs(t *testing.T, tenant *crTenant) {
	valid := tenant.deployment("valid", "nothing-here")
	tenant.create(t, valid)
	for want, change := range map[string]func(*v1alpha1.GitOpsDeployment){
		"environment must be set": func(d *v1alpha1.GitOpsDeployment) { d.Spec.Destination.Environment = "" },
		"spec.source.path":        func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.Path = "" },
		"path cannot be '/'":      func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.Path = "/" },
		"spec.type":               func(d *v1alpha1.GitOpsDeployment) { d.Spec.Type = "sometimes" },
		"syncOptions": func(d *v1alpha1.GitOpsDeployment) {
			d.Spec.SyncPolicy.SyncOptions = []v1alpha1.SyncOption{"Prune=false"}
		},
		"spec.destination.namespace": func(d *v1alpha1.GitOpsDeployment) { d.Spec.Destination.Namespace = "No" },
	} {
		d := tenant.deployment("invalid", "app")
		change(d)
		if err := tenant.Create(t.Context(), d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("create: %v, want %q", err, want)
		}
		testkit.Eventually(t, patience, func(ctx context.Context) error {
			if err := tenant.Get(ctx, client.ObjectKeyFromObject(valid), valid); err != nil {
				return err
			}
			change(valid)
			if err := tenant.Update(ctx, valid); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("update: %w, want %q", err, want)
			}
			return nil
		})
	}
	for want, o := range map[string]client.Object{
		"reserved":       &v1alpha1.ManagedEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "in-cluster"}, Spec: v1alpha1.ManagedEnvironmentSpec{Agents: &v1alpha1.AgentSelector{Names: []string{"a"}}}},
		"exactly one of": &v1alpha1.ManagedEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "none"}},
		"clusterRegistrationSecret": &v1alpha1.ManagedEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "path"},
			Spec: v1alpha1.ManagedEnvironmentSpec{DisconnectedCluster: &v1alpha1.DisconnectedCluster{ClusterRegistrationSecret: "../other/secret"}}},
		"must be https or ssh": &v1alpha1.RepositoryCredential{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "ftp"}, Spec: v1alpha1.RepositoryCredentialSpec{Repository: "ftp://x", Secret: "s"}},
		"spec.secret":          &v1alpha1.RepositoryCredential{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "path"}, Spec: v1alpha1.RepositoryCredentialSpec{Repository: "https://x", Secret: "other/s"}},
	} {
		if err := tenant.Create(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	tenant.remove(t, valid)
}

// remove deletes a deployment and waits until its objects are gone.
func (t *crTenant) remove(tb testing.TB, d *v1alpha1.GitOpsDeployment) {
	tb.Helper()
	if err := t.Delete(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	t.awaitGone(tb, d.Name, d)
	t.has(tb, "map[]")
}

func noDestination(t *testing.T, tenant *crTenant) {
	commit := tenant.repo.push(t, map[string]string{"own/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm-own}\ndata: {value: \"1\"}\n"})
	d := tenant.deployment("own", "own")
	d.Spec.Destination = v1alpha1.Destination{}
	tenant.create(t, d)
	tenant.awaitSynced(t, d, commit)
	if got := fmt.Sprint(values(t, tenant.cluster, tenant.ns)); got != "map[cm-own:1]" {
		t.Errorf("the namespace of the resource has %s", got)
	}
	tenant.remove(t, d)

	lonely := &crTenant{crs: tenant.crs, ns: tenant.cluster.Namespace(t), target: tenant.target}
	d = lonely.deployment("own", "own")
	d.Spec.Destination = v1alpha1.Destination{}
	lonely.create(t, d)
	lonely.awaitRefused(t, d, "NoAgentInCluster")
	lonely.remove(t, d)
}

func laterEnvironment(t *testing.T, tenant *crTenant) {
	commit := tenant.repo.push(t, map[string]string{"later/cm.yaml": configMap(tenant.target, "cm-later", "1")})
	d := tenant.deployment("later", "later")
	d.Spec.Destination.Environment = "prod"
	tenant.create(t, d)
	tenant.awaitRefused(t, d, "EnvironmentNotFound")
	for _, c := range d.Status.Conditions {
		if c.Type == v1alpha1.ConditionAccepted && !strings.Contains(c.Message, `"prod"`) {
			t.Errorf("the message does not name the environment: %q", c.Message)
		}
	}
	// K9: the environment of another namespace is not visible.
	other := &crTenant{crs: tenant.crs, ns: tenant.cluster.Namespace(t), target: tenant.target}
	for _, name := range []string{"my-internal-cluster", tenant.ns + "/my-internal-cluster"} {
		stranger := other.deployment("later", "later")
		stranger.Spec.Destination.Environment = name
		other.create(t, stranger)
		other.awaitRefused(t, stranger, "EnvironmentNotFound")
		other.remove(t, stranger)
	}
	env := &v1alpha1.ManagedEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "prod"},
		Spec:       v1alpha1.ManagedEnvironmentSpec{Agents: &v1alpha1.AgentSelector{Names: []string{"my-internal-cluster"}}},
	}
	tenant.create(t, env)
	tenant.awaitSynced(t, d, commit)
	if err := tenant.Delete(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	tenant.await(t, "prod", env, func() error {
		return hasCondition(env.Status.Conditions, v1alpha1.ConditionDeleted, metav1.ConditionFalse, "InUse")
	})
	tenant.remove(t, d)
	tenant.awaitGone(t, "prod", env)
}

func fullStatus(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "full")
	st := d.Status
	if len(st.Resources) != 1 || st.Resources[0].Kind != "ConfigMap" || st.Resources[0].Name != "cm-full" || st.Resources[0].Namespace != tenant.target ||
		st.Resources[0].Status != "Synced" || st.Resources[0].Health.Status != "Healthy" || st.ResourceCount != 1 {
		t.Errorf("resources %+v", st.Resources)
	}
	if r := st.ReconciledState; r == nil || r.Source.RepoURL != tenant.repo.url || r.Source.Path != "full" || r.Destination.Name != "my-internal-cluster" || r.Destination.Namespace != tenant.target {
		t.Errorf("reconciledState %+v", r)
	}
	if len(st.History) != 1 || st.History[0].Revision != st.Sync.Revision {
		t.Errorf("history %+v", st.History)
	}
	for _, kind := range []string{"Accepted", "Synced", "Healthy", "SourceReady"} {
		if err := hasCondition(st.Conditions, kind, metav1.ConditionTrue, ""); err != nil {
			t.Error(err)
		}
	}
	if out := tenant.cluster.Kubectl(t, "-n", tenant.ns, "get", "gitopsdepl"); !strings.Contains(out, "SYNC STATUS") || !strings.Contains(out, "Synced") || !strings.Contains(out, "Healthy") {
		t.Errorf("kubectl get prints\n%s", out)
	}
	if out := tenant.cluster.Kubectl(t, "-n", tenant.ns, "get", "gd", "-o", "wide"); !strings.Contains(out, st.Sync.Revision) || !strings.Contains(out, "my-internal-cluster") {
		t.Errorf("kubectl get -o wide prints\n%s", out)
	}
	if out := tenant.cluster.Kubectl(t, "explain", "gitopsdeployment.spec.destination"); !strings.Contains(out, "ManagedEnvironment") {
		t.Errorf("kubectl explain prints\n%s", out)
	}
	// REST and the resource agree; labels are followed although they have no generation.
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Labels = map[string]string{"team": "blue"} })
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		var got apiv1.Deployment
		err := tenant.Call(ctx, "GET", "/tenants/"+tenant.ns+"/deployments/full", nil, &got)
		if err == nil && (got.Labels["team"] != "blue" || got.Sync != st.Sync.Status || got.Commit != st.Sync.Revision) {
			err = fmt.Errorf("REST has %+v", got)
		}
		return err
	})
	tenant.remove(t, d)
}

func ownedByResource(t *testing.T, tenant *crTenant) {
	d := tenant.deploy(t, "owned")
	rest := tenant.rest()
	for _, request := range []struct {
		method, path string
		body         any
	}{
		{"PATCH", "deployments/owned", map[string]any{"namespace": "default"}},
		{"DELETE", "deployments/owned", nil},
		{"POST", "deployments/owned/suspend", map[string]any{}},
		{"POST", "deployments/owned/resume", nil},
		{"POST", "deployments/owned/rollback", map[string]any{"revision": 1}},
		{"PATCH", "environments/my-internal-cluster", map[string]any{"matchLabels": map[string]string{"a": "b"}}},
		{"DELETE", "environments/my-internal-cluster", nil},
		{"PATCH", "agents/my-internal-cluster", map[string]any{"labels": map[string]string{"a": "b"}}},
		{"DELETE", "agents/my-internal-cluster", nil},
		{"POST", "agents/my-internal-cluster/tokens", map[string]any{}},
		{"DELETE", "/tenants/" + tenant.ns, nil},
	} {
		answer := rest.ask(t, request.method, request.path, request.body)
		if named := strings.Contains(string(answer.Body), tenant.ns); answer.Code != 409 || !named {
			t.Errorf("%s %s: %d %s", request.method, request.path, answer.Code, answer.Body)
		}
	}
	tenant.awaitSynced(t, d, "")
	tenant.remove(t, d)
}

func namesInUse(t *testing.T, tenant *crTenant) {
	commit := tenant.repo.push(t, map[string]string{"taken/cm.yaml": configMap(tenant.target, "cm-taken", "1")})
	rest := tenant.rest()
	rest.want(t, 201, "POST", "deployments", apiv1.CreateDeployment{Name: "taken", Environment: "my-internal-cluster", Source: apiv1.Source{RepoURL: tenant.repo.url, Path: "taken"}})
	d := tenant.deployment("taken", "taken")
	tenant.create(t, d)
	tenant.awaitRefused(t, d, "NameInUse")
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.awaitGone(t, "taken", d)
	tenant.has(t, "map[cm-taken:1]") // the resource did not create it
	d = tenant.deployment("taken", "taken")
	tenant.create(t, d)
	tenant.awaitRefused(t, d, "NameInUse")
	rest.want(t, 202, "DELETE", "deployments/taken", nil)
	tenant.awaitSynced(t, d, commit)
	tenant.remove(t, d)
}

// defect: B8
func registrationTokens(t *testing.T, tenant *crTenant) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "my-internal-cluster-secret"}}
	put := func(token string) {
		t.Helper()
		edit(t, tenant, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"registrationToken": []byte(token)} })
	}
	ready := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		env := &v1alpha1.ManagedEnvironment{}
		tenant.await(t, "my-internal-cluster", env, func() error { return hasCondition(env.Status.Conditions, v1alpha1.ConditionReady, status, reason) })
	}
	put("weak")
	ready(metav1.ConditionFalse, "TokenRefused")
	put("")
	ready(metav1.ConditionFalse, "SecretInvalid")
	put(tenant.token)
	ready(metav1.ConditionTrue, "")

	// Rotated on the side of the server first, then on that of the agent.
	next := randomToken()
	put(next)
	ready(metav1.ConditionTrue, "")
	tenant.awaitEnvironment(t, v1alpha1.ConditionConnected, metav1.ConditionTrue)
	tenant.tokens(t, 2)
	tenant.cluster.Kubectl(t, "-n", tenant.agent.namespace, "patch", "secret", "my-internal-cluster-secret", "-p", fmt.Sprintf(`{"stringData":{"registrationToken":%q}}`, next))
	if err := tenant.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	tenant.agent.run(tenant.owner)
	tenant.tokens(t, 1)
	tenant.awaitEnvironment(t, v1alpha1.ConditionConnected, metav1.ConditionTrue)

	// The first token was revoked by the rotation.
	put(tenant.token)
	ready(metav1.ConditionFalse, "TokenRefused")
	if err := tenant.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	ready(metav1.ConditionFalse, "SecretNotFound")
	tenant.awaitEnvironment(t, v1alpha1.ConditionConnected, metav1.ConditionTrue)
}

// tokens waits until the agent has n valid tokens.
func (t *crTenant) tokens(tb testing.TB, n int) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		var list apiv1.List[apiv1.AgentToken]
		if err := t.Call(ctx, "GET", "/tenants/"+t.ns+"/agents/my-internal-cluster/tokens", nil, &list); err != nil {
			return err
		}
		valid := 0
		for _, token := range list.Items {
			if token.RevokedAt.IsZero() {
				valid++
			}
		}
		if valid != n {
			return fmt.Errorf("%d valid tokens, want %d: %+v", valid, n, list.Items)
		}
		return nil
	})
}
