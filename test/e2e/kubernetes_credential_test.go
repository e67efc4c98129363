package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// credential returns a RepositoryCredential.
func (t *crTenant) credential(name, url, secret string) *v1alpha1.RepositoryCredential {
	return &v1alpha1.RepositoryCredential{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.ns, Name: name}, Spec: v1alpha1.RepositoryCredentialSpec{Repository: url, Secret: secret},
	}
}

// valid waits until the credential is valid or not, with its conditions. A False or Unknown URL counts as not valid.
func (t *crTenant) valid(tb testing.TB, c *v1alpha1.RepositoryCredential, status metav1.ConditionStatus, reason string) {
	tb.Helper()
	t.await(tb, c.Name, c, func() error {
		if len(c.Status.Conditions) != 3 || c.Status.ObservedGeneration != c.Generation {
			return fmt.Errorf("conditions %+v", c.Status.Conditions)
		}
		return hasCondition(c.Status.Conditions, v1alpha1.ConditionValidRepositoryCredential, status, reason)
	})
}

// covers: K8, K9
// defect: B3, B4, B7
func TestRepositoryCredentials(t *testing.T) {
	t.Parallel()
	c := startCRs(t, "--git-allow", "https,http,ssh")
	tenant := c.tenant(t)
	shell, err := c.repo.server.ServeSSH()
	if err != nil {
		t.Fatal(err)
	}
	private, public, err := gitserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	shell.Authorize(public)
	protect := func(password string) { c.repo.server.Protect(c.repo.name, map[string]string{"robot": password}) }
	protect("first-password")
	commit := c.repo.push(t, map[string]string{"app/cm.yaml": configMap(tenant.target, "cm-app", "1")})
	d := tenant.deployment("app", "app")
	tenant.create(t, d)

	web := tenant.credential("web", c.repo.url, "git")
	tenant.create(t, web)
	tenant.valid(t, web, metav1.ConditionFalse, "SecretNotFound")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.ns, Name: "git"}, StringData: map[string]string{"username": "robot"}}
	tenant.create(t, secret)
	tenant.valid(t, web, metav1.ConditionFalse, "SecretInvalid")
	put := func(password string) {
		t.Helper()
		edit(t, tenant, secret, func(s *corev1.Secret) { s.Data["password"] = []byte(password) })
	}
	put("wrong-password")
	tenant.valid(t, web, metav1.ConditionFalse, "")
	put("first-password")
	tenant.valid(t, web, metav1.ConditionTrue, "")
	tenant.awaitSynced(t, d, commit)
	put("wrong-password")
	tenant.valid(t, web, metav1.ConditionFalse, "")
	put("first-password")
	tenant.valid(t, web, metav1.ConditionTrue, "")
	protect("second-password") // rotated at the Git server and in the Secret
	put("second-password")
	tenant.valid(t, web, metav1.ConditionTrue, "")
	commit = c.repo.push(t, map[string]string{"app/cm.yaml": configMap(tenant.target, "cm-app", "2")})
	tenant.awaitSynced(t, d, commit)

	// Two resources for one repository: the second one waits, and takes the place of the first.
	rival := tenant.credential("rival", c.repo.url, "git")
	tenant.create(t, rival)
	tenant.await(t, "rival", rival, func() error {
		return hasCondition(rival.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "InUse")
	})
	// The other scheme, under the same name.
	edit(t, tenant, web, func(c *v1alpha1.RepositoryCredential) { c.Spec.Repository = shell.URL(tenant.repo.name) })
	tenant.valid(t, web, metav1.ConditionFalse, "SecretInvalid")
	edit(t, tenant, secret, func(s *corev1.Secret) {
		s.Data["sshPrivateKey"], s.Data["knownHosts"] = private, shell.KnownHosts()
	})
	tenant.valid(t, web, metav1.ConditionTrue, "")
	tenant.await(t, "rival", rival, func() error {
		return hasCondition(rival.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
	})
	edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.RepoURL = shell.URL(tenant.repo.name) })
	tenant.awaitSynced(t, d, commit)
	// A rotated key is used.
	if private, public, err = gitserver.NewKey(); err != nil {
		t.Fatal(err)
	}
	shell.Authorize(public)
	edit(t, tenant, secret, func(s *corev1.Secret) { s.Data["sshPrivateKey"] = private })
	tenant.valid(t, web, metav1.ConditionTrue, "")
	commit = c.repo.push(t, map[string]string{"app/cm.yaml": configMap(tenant.target, "cm-app", "3")})
	tenant.awaitSynced(t, d, commit)

	// Another namespace cannot use the Secret, and cannot read the repository.
	other := &crTenant{crs: c, ns: c.cluster.Namespace(t), target: tenant.target}
	stranger := other.credential("web", c.repo.url, "git")
	other.create(t, stranger)
	other.valid(t, stranger, metav1.ConditionFalse, "SecretNotFound")
	blind := other.deployment("blind", "app")
	blind.Spec.Destination = v1alpha1.Destination{}
	other.create(t, blind)
	other.awaitRefused(t, blind, "NoAgentInCluster")

	for _, o := range []*v1alpha1.RepositoryCredential{web, rival} {
		if err := tenant.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		tenant.awaitGone(t, o.Name, o)
	}
	tenant.await(t, "app", d, func() error {
		if d.Status.Sync.Revision != commit {
			return errors.New("the deployed commit changed")
		}
		return hasCondition(d.Status.Conditions, "SourceReady", metav1.ConditionFalse, "")
	})
	tenant.remove(t, d)
	if strings.Contains(c.Log(), "-password") {
		t.Error("the log of the server has a password")
	}
}
