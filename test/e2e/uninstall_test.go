package e2e_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: C4 (unless asked: one command deletes what an agent has deployed)
// defect: B9
func TestAgentIsUninstalledWithItsObjects(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	here, there := cluster.Namespace(t), cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "going", Namespaces: []string{here}})
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "staying", Namespaces: []string{there}})
	claim := "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: " + here + "}\n" +
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	commit := repo.push(t, map[string]string{
		"going/a.yaml": configMap(here, "page", "one") + claim, "staying/a.yaml": configMap(there, "page", "one"),
	})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "{agent.name}"}})
	s.awaitDeployment(t, "app", func(v apiv1.Deployment) error {
		if v.Commit != commit || len(v.Targets) != 2 || v.Targets[0].Sync != "Synced" || v.Targets[1].Sync != "Synced" {
			return errors.New("not synced")
		}
		return nil
	})
	uid := cluster.Kubectl(t, "-n", there, "get", "configmap", "page", "-o", "jsonpath={.metadata.uid}")

	for _, args := range [][]string{{"going"}, {"nobody", "--delete-objects", "--yes"}, {"going", "--delete-objects"}} { // the last one gets no answer
		out, _ := s.kedge(t, append([]string{"agent", "uninstall"}, args...)...)
		if strings.Contains(out, "its objects are gone") {
			t.Errorf("kedge agent uninstall %v: %s", args, out)
		}
		cluster.Kubectl(t, "-n", here, "get", "configmap", "page")
	}
	out, err := s.kedge(t, "agent", "uninstall", "going", "--delete-objects", "--yes")
	if err != nil || !strings.Contains(out, "PersistentVolumeClaim "+here+"/data") || !strings.Contains(out, "kedge agent manifest going | kubectl delete -f -") {
		t.Fatalf("kedge agent uninstall: %v\n%s", err, out)
	}
	gone(t, cluster, "-n", here, "get", "configmap", "page")
	cluster.Kubectl(t, "-n", here, "get", "pvc", "data") // a protected kind is kept
	if got := cluster.Kubectl(t, "-n", there, "get", "configmap", "page", "-o", "jsonpath={.metadata.uid}"); got != uid {
		t.Errorf("the object on the other agent was %s and is %q", uid, got)
	}
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
}
