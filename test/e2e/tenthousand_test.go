package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: A15
func TestADeploymentOfTenThousandObjects(t *testing.T) {
	t.Parallel()
	const objects, files = 10_000, 100
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "ten-thousand"})
	tree := map[string]string{}
	for f := range files {
		var b strings.Builder
		for i := range objects / files {
			fmt.Fprintf(&b, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm-%02d-%02d}\n---\n", f, i)
		}
		tree[fmt.Sprintf("app/%02d.yaml", f)] = b.String()
	}
	commit := repo.push(t, tree)
	begun := time.Now()
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Namespace: ns, Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: unlimited()})
	s.awaitLarge(t, "app", commit)
	t.Logf("%d objects took %v", objects, time.Since(begun))
	if got := len(uids(t, cluster, ns)); got != objects {
		t.Errorf("the cluster holds %d objects, want %d", got, objects)
	}
	repo.webhooks(t, s)

	// One change of ten thousand causes one write.
	before := len(writesTo(t, cluster, ns))
	commit = repo.push(t, map[string]string{"app/42.yaml": strings.Replace(tree["app/42.yaml"], "metadata: {name: cm-42-42}", "metadata: {name: cm-42-42}\ndata: {value: changed}", 1)})
	s.awaitLarge(t, "app", commit)
	if writes := writesTo(t, cluster, ns)[before:]; len(writes) != 1 || writes[0].Name != "cm-42-42" {
		t.Errorf("one change took %d writes", len(writes))
	}
}

// awaitLarge waits until a deployment is at a commit. It reads the listing, which has no objects.
func (s *testServer) awaitLarge(tb testing.TB, name, commit string) {
	tb.Helper()
	testkit.Eventually(tb, 5*patience, func(ctx context.Context) error {
		var list apiv1.List[apiv1.Deployment]
		if err := s.Call(ctx, http.MethodGet, tenantPath+"/deployments", nil, &list); err != nil {
			return err
		}
		for _, d := range list.Items {
			if d.Name == name && d.Commit == commit && d.Sync == "Synced" && d.Health == "Current" {
				return nil
			}
		}
		return fmt.Errorf("the deployments are %+v", list.Items)
	})
}
