package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// valuesOf follows the value of a ConfigMap. The returned function waits until it is last, and returns all its
// values, in order.
func valuesOf(tb testing.TB, c *testkit.Cluster, namespace, name string) func(last string) []string {
	tb.Helper()
	client := c.Dynamic(tb).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)
	w, err := client.Watch(tb.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(w.Stop)
	return func(last string) (seen []string) {
		tb.Helper()
		for len(seen) == 0 || seen[len(seen)-1] != last {
			select {
			case e := <-w.ResultChan():
				if obj, ok := e.Object.(*unstructured.Unstructured); ok {
					value, _, _ := unstructured.NestedString(obj.Object, "data", "value")
					seen = append(seen, value)
				}
			case <-tb.Context().Done():
				tb.Fatalf("%s has had the values %v, never %q", name, seen, last)
			}
		}
		return slices.Compact(seen)
	}
}

// covers: A16
func TestRunsReachTheClusterOneAfterAnother(t *testing.T) {
	t.Parallel()
	const objects = 5
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "in-order"})
	proxy := a.through(t)
	a.run(t)
	a.awaitConnected(t, s)
	d := s.tenantClient(t, "default")
	var commits []string
	for i := range 3 {
		commits = append(commits, repo.push(t, map[string]string{"app/cm.yaml": many(ns, objects, fmt.Sprint(i+1))}))
	}
	policy := unlimited()
	policy.Manual = true
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: policy})
	d.await(t, "app", says("OutOfSync", "sync"))
	seen := valuesOf(t, cluster, ns, "cm-002")
	gate := newGate(t, proxy, ns, 1)
	var runs []apiv1.SyncRun
	for _, revision := range []string{commits[1], commits[0], ""} {
		runs = append(runs, d.run(t, "app", revision))
	}
	<-gate.reached
	d.awaitRun(t, runs[0].ID, "Running")
	if answer := d.ask(t, "PATCH", "runs/"+runs[0].ID, apiv1.UpdateRun{Revision: commits[2]}); answer.Code != 409 {
		t.Errorf("a run that has started is changed: %d %s", answer.Code, answer.Body)
	}
	for _, run := range runs[1:] {
		if got := get[apiv1.SyncRun](t, d, "runs/"+run.ID); got.Phase != "Pending" {
			t.Errorf("run %d is %s while run %d is being applied", got.Seq, got.Phase, runs[0].Seq)
		}
	}
	gate.open()
	for i := range runs {
		runs[i] = d.awaitRun(t, runs[i].ID, "Succeeded")
		if i > 0 && runs[i].StartedAt.Before(runs[i-1].FinishedAt) {
			t.Errorf("run %d started before run %d was done", runs[i].Seq, runs[i-1].Seq)
		}
	}
	if got := fmt.Sprint(seen("3")); got != "[2 1 3]" {
		t.Errorf("the cluster has had the values %s, want those of the runs in their order", got)
	}
	holds(t, cluster, ns, objects, "3")
	d.await(t, "app", healthyAt(commits[2], 1))
}

// covers: A17
func TestRollbackAndSuspensionsAreSeenInTheCluster(t *testing.T) {
	t.Parallel()
	const objects = 5
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "rolled-back"})
	d := s.tenantClient(t, "default")
	kedge := func(line string, more ...string) {
		t.Helper()
		if out, err := s.kedge(t, append(strings.Fields(line), more...)...); err != nil {
			t.Fatalf("kedge %s: %v\n%s", line, err, out)
		}
	}
	push := func(n int, value string) string {
		commit := repo.push(t, map[string]string{"app/cm.yaml": many(ns, n, value)})
		if value != "1" {
			d.look(t, repo.url)
		}
		return commit
	}
	first := push(objects, "1")
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: unlimited()})
	d.await(t, "app", healthyAt(first, 1))
	d.await(t, "app", healthyAt(push(objects+2, "2"), 1))
	holds(t, cluster, ns, objects+2, "2")

	t.Run("rollback without Git", func(t *testing.T) {
		repo.server.SetDown(true)
		kedge("rollback app --wait --commit", first)
		holds(t, cluster, ns, objects, "1") // newer objects are pruned
		repo.server.SetDown(false)
		newest := push(objects+1, "3")
		d.await(t, "app", func(v apiv1.Deployment) error {
			if v.Commit != newest || v.Pin == nil || v.Pin.Commit != first {
				return fmt.Errorf("the newer commit is not known, or the deployment is not pinned")
			}
			return nil
		})
		cluster.Kubectl(t, "-n", ns, "delete", "configmap", "cm-001")
		holds(t, cluster, ns, objects, "1") // drift is corrected to the revision that it is pinned to
		kedge("deploy release app")
		d.await(t, "app", healthyAt(newest, 1))
		holds(t, cluster, ns, objects+1, "3")
	})
	value := "3"
	for _, level := range []struct{ name, suspend, resume string }{
		{"deployment", "deploy suspend app", "deploy resume app"},
		{"environment", "env suspend default", "env resume default"},
		{"tenant", "tenant suspend default", "tenant resume default"},
		{"fleet", "fleet freeze", "fleet unfreeze"},
	} {
		t.Run("suspended "+level.name, func(t *testing.T) {
			kedge(level.suspend, "--reason", "test")
			newest := push(objects+1, level.name)
			d.await(t, "app", func(v apiv1.Deployment) error {
				if v.Commit != newest || v.Sync != "OutOfSync" || v.Held == nil || !strings.Contains(v.Held.Reason, "Suspended") && v.Held.Reason != "FleetFrozen" {
					return fmt.Errorf("the newer commit is not known, or not held back")
				}
				return nil
			})
			holds(t, cluster, ns, objects+1, value)
			kedge(level.resume)
			d.await(t, "app", healthyAt(newest, 1))
			holds(t, cluster, ns, objects+1, level.name)
			value = level.name
		})
	}
}
