package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

const foreignApplications = `apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: theirs, namespace: ENGINE}
spec: {sourceRepos: ["*"], destinations: [{server: "*", namespace: "*"}]}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop, namespace: ENGINE}
spec:
  project: theirs
  source: {repoURL: "http://robot:their-password@REPOSITORY", path: shop, targetRevision: main}
  destination: {server: "https://kubernetes.default.svc", namespace: TARGET}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web, namespace: ENGINE}
spec:
  project: theirs
  source: {repoURL: "http://REPOSITORY", path: web}
  destination: {server: "https://kubernetes.default.svc", namespace: TARGET}
  syncPolicy: {automated: {}}
`

// Somebody who runs Argo CD sees his Applications at the server. Kedge deploys beside them and never writes them.
// covers: E3
func TestForeignApplicationsAreListedAndNeverTouched(t *testing.T) {
	t.Parallel()
	c := startCRs(t)
	c.useArgoCD(t)
	theirs := c.cluster.Namespace(t)
	c.repo.push(t, map[string]string{"web/cm.yaml": configMap(theirs, "cm-web", "1"), "shop/cm.yaml": configMap(theirs, "cm-shop", "1")})
	c.cluster.Apply(t, strings.NewReplacer("ENGINE", c.engine, "TARGET", theirs, "REPOSITORY", strings.TrimPrefix(c.repo.url, "http://")).Replace(foreignApplications))
	tenant := c.tenant(t)
	listed := func(want ...string) {
		t.Helper()
		testkit.Eventually(t, patience, func(ctx context.Context) error {
			var l apiv1.AgentApplications
			if err := tenant.rest().Call(ctx, "GET", tenant.rest().path("agents/my-internal-cluster/applications"), nil, &l); err != nil {
				return err
			}
			var got []string
			for _, a := range l.Items {
				got = append(got, strings.Join([]string{a.Name, a.Project, a.RepoURL, a.Path, a.Revision, a.Namespace, a.Sync, a.Health}, " "))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || l.Total != len(want) {
				return fmt.Errorf("the server lists %q of %d, want %q", got, l.Total, want)
			}
			return nil
		})
	}
	shop := "shop theirs " + c.repo.url + " shop main " + theirs + " OutOfSync Missing"
	listed(shop, "web theirs "+c.repo.url+" web  "+theirs+" Synced Healthy")
	before := c.writers(t)
	d := tenant.deploy(t, "app")
	tenant.remove(t, d)
	if after := c.writers(t); after != before {
		t.Errorf("the managers of foreign objects were\n%s\nand are\n%s", before, after)
	}
	for _, r := range c.cluster.Requests(t) {
		if r.Write() && strings.HasSuffix(r.User, ":kedge-agent") && r.Namespace == c.engine && r.Name != "" && !strings.HasPrefix(r.Name, "kedge-") {
			t.Errorf("the agent wrote a foreign object: %+v", r)
		}
	}
	if got := fmt.Sprint(values(t, c.cluster, theirs)); got != "map[cm-web:1]" {
		t.Errorf("the foreign Applications have %s", got)
	}
	c.cluster.Kubectl(t, "-n", c.engine, "delete", "application", "web")
	listed(shop)
	out, err := c.kedge(t, "agent", "applications", "my-internal-cluster", "--tenant", tenant.ns)
	if err != nil || !strings.Contains(out, "shop") || strings.Contains(out, "their-password") || strings.Contains(c.Log(), "their-password") {
		t.Errorf("kedge agent applications: %v\n%s", err, out)
	}
}

// writers returns, for each foreign Application and AppProject, its generation, metadata and managers except those of Argo
// CD itself, which writes the status of Applications all the time.
func (c *crs) writers(tb testing.TB) string {
	tb.Helper()
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct {
				Name, UID     string
				Generation    int64
				Labels        map[string]string
				Finalizers    []string
				ManagedFields []struct{ Manager, Operation string }
			}
			Spec map[string]any
		}
	}
	text := c.cluster.Kubectl(tb, "-n", c.engine, "get", "applications,appprojects", "-l", "app.kubernetes.io/managed-by!=kedge", "--show-managed-fields", "-o", "json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		managers := map[string]bool{}
		for _, f := range o.Metadata.ManagedFields {
			managers[f.Manager] = true
		}
		out = append(out, fmt.Sprint(o.Kind, " ", o.Metadata.Name, o.Metadata.UID, o.Metadata.Labels, o.Metadata.Finalizers, o.Spec, managers))
	}
	return strings.Join(out, "\n")
}
