package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// repositorySecrets returns the passwords of the repository Secrets of Kedge, by URL. It also lists those that are not
// Secrets of the only AppProject of Kedge.
func (t *crTenant) repositorySecrets(tb testing.TB) map[string]string {
	tb.Helper()
	projects := t.cluster.Kubectl(tb, "-n", t.engine, "get", "appprojects", "-l", "app.kubernetes.io/managed-by=kedge", "-o", "jsonpath={.items[*].metadata.name}")
	var secrets corev1.SecretList
	if err := t.List(tb.Context(), &secrets, client.InNamespace(t.engine), client.MatchingLabels{"app.kubernetes.io/managed-by": "kedge"}); err != nil {
		tb.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range secrets.Items {
		if s.Labels["argocd.argoproj.io/secret-type"] != "repository" || string(s.Data["project"]) != projects || s.Labels["kedge.dev/agent"] == "" {
			out[s.Name] = fmt.Sprintf("has the labels %v and project %s, want %s", s.Labels, s.Data["project"], projects)
		}
		out[string(s.Data["url"])] = string(s.Data["password"])
	}
	return out
}

func (t *crTenant) awaitSecrets(tb testing.TB, want map[string]string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		if got := t.repositorySecrets(tb); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("the repository Secrets are %v, want %v", got, want)
		}
		return nil
	})
}

// Argo CD gets the credential of a private repository only after the user has enabled it, in a Secret of the project.
// covers: E2, E3
func TestArgoCDGetsCredentialsThatAreDelivered(t *testing.T) {
	t.Parallel()
	c := startCRs(t, "--git-allow", "https,http")
	c.useArgoCD(t)
	tenant := c.tenant(t)
	protect := func(password string) { c.repo.server.Protect(c.repo.name, map[string]string{"robot": password}) }
	protect("first-password")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "git"}, StringData: map[string]string{"username": "robot", "password": "first-password"}}
	tenant.create(t, secret)
	tenant.create(t, tenant.credential("web", c.repo.url, "git"))
	commit := c.repo.push(t, map[string]string{"app/cm.yaml": configMap(tenant.target, "cm-app", "1")})
	d := tenant.deployment("app", "app")
	tenant.create(t, d)
	tenant.await(t, "app", d, func() error {
		return hasCondition(d.Status.Conditions, "Synced", metav1.ConditionFalse, "CredentialNotDelivered")
	})
	tenant.awaitSecrets(t, map[string]string{})

	tenant.register(t, "deliverGitCredentials: true")
	tenant.installAgain(t)
	tenant.awaitSynced(t, d, commit)
	tenant.awaitSecrets(t, map[string]string{c.repo.url: "first-password"})
	tenant.checkSecretPermissions(t)

	name := strings.TrimSpace(c.cluster.Kubectl(t, "-n", c.engine, "get", "secrets", "-l", "argocd.argoproj.io/secret-type=repository", "-o", "jsonpath={.items[*].metadata.name}"))
	c.cluster.Kubectl(t, "-n", c.engine, "patch", "secret", name, "--type=merge", "-p", `{"data":{"password":"`+base64.StdEncoding.EncodeToString([]byte("other"))+`","project":null}}`)
	tenant.awaitSecrets(t, map[string]string{c.repo.url: "first-password"})
	c.cluster.Kubectl(t, "-n", c.engine, "delete", "secret", name)
	tenant.awaitSecrets(t, map[string]string{c.repo.url: "first-password"})

	protect("second-password") // rotated at the Git server and in the Secret of the user
	edit(t, tenant, secret, func(s *corev1.Secret) { s.Data["password"] = []byte("second-password") })
	tenant.awaitSecrets(t, map[string]string{c.repo.url: "second-password"})
	commit = c.repo.push(t, map[string]string{"app/cm.yaml": configMap(tenant.target, "cm-app", "2")})
	tenant.awaitSynced(t, d, commit)

	// The project and its Secrets follow the repositories of the deployments.
	public := newRepo(t)
	commit = public.push(t, map[string]string{"app/cm.yaml": configMap(tenant.target, "cm-app", "3")})
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.RepoURL = public.url })
	tenant.awaitSynced(t, d, commit)
	tenant.awaitSecrets(t, map[string]string{})
	if got := c.cluster.Kubectl(t, "-n", c.engine, "get", "appprojects", "-l", "app.kubernetes.io/managed-by=kedge", "-o", "jsonpath={.items[*].spec.sourceRepos}"); got != `["`+public.url+`"]` {
		t.Errorf("the AppProject allows %s, want %s only", got, public.url)
	}
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.RepoURL = c.repo.url })
	tenant.awaitSecrets(t, map[string]string{c.repo.url: "second-password"})

	// Without consent, the Secret goes.
	tenant.register(t, "deliverGitCredentials: false")
	tenant.awaitSecrets(t, map[string]string{})
	if whole := c.Log() + tenant.agent.Log(); strings.Contains(whole, "-password") {
		t.Error("a log contains the password")
	}
	if err := tenant.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	tenant.awaitGone(t, d.Name, d)
	tenant.has(t, "map[]")
}

// installAgain applies the manifest of the agent again, as an administrator does after a change of its settings.
func (t *crTenant) installAgain(tb testing.TB) {
	tb.Helper()
	manifest, err := t.kedge(tb, "agent", "manifest", "my-internal-cluster", "--tenant", t.ns, "--agent-namespace", t.agent.namespace, "--registration-secret", "my-internal-cluster-secret")
	if err != nil {
		tb.Fatal(err, manifest)
	}
	t.cluster.Apply(tb, manifest)
}

// checkSecretPermissions checks that the agent can use no Secret of Argo CD besides its own.
func (t *crTenant) checkSecretPermissions(tb testing.TB) {
	tb.Helper()
	agent := "--as=system:serviceaccount:" + t.agent.namespace + ":kedge-agent"
	for _, verb := range []string{"get", "update", "delete", "watch"} {
		if out, err := t.cluster.TryKubectl(tb, "-n", t.engine, "auth", "can-i", verb, "secrets/argocd-secret", agent); err == nil {
			tb.Errorf("the agent may %s the Secret of Argo CD: %s", verb, out)
		}
	}
	if out, err := t.cluster.TryKubectl(tb, "-n", t.engine, "auth", "can-i", "list", "secrets", agent); err == nil {
		tb.Errorf("the agent may list Secrets: %s", out)
	}
}
