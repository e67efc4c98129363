package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// argoFleet is an agent that has a real Argo CD apply its deployments.
type argoFleet struct {
	*testServer
	cluster *testkit.Cluster
	engine  string // namespace of Argo CD
	repo    *testRepo
	ns      string // of the objects
}

func newArgoFleet(t *testing.T, agent string) *argoFleet {
	t.Helper()
	f := &argoFleet{testServer: startServer(t), cluster: testkit.SharedCluster(t), repo: newRepo(t)}
	f.engine, f.ns = f.cluster.Namespace(t), f.cluster.Namespace(t)
	argocd.Start(t, argocd.Config{Cluster: f.cluster, Namespace: f.engine})
	enroll(t, f.testServer, f.cluster, apiv1.EnrollAgent{Name: agent, EngineNamespace: f.engine})
	return f
}

// create creates the deployments of folders, and waits until they are at a commit.
func (f *argoFleet) create(t *testing.T, commit string, folders ...string) {
	t.Helper()
	for _, name := range folders {
		f.deploy(t, apiv1.CreateDeployment{Name: name, Namespace: f.ns, Source: apiv1.Source{RepoURL: f.repo.url, Path: name}})
		f.awaitDeployment(t, name, healthyAt(commit, 1))
	}
	f.repo.webhooks(t, f.testServer)
}

// deletedObjects returns the names of the objects in the namespace that anybody has deleted, sorted.
func (f *argoFleet) deletedObjects(t *testing.T) (out []string) {
	t.Helper()
	for _, r := range deletionsIn(f.cluster.Requests(t), f.ns) {
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// An object moves between two deployments by one commit, to and fro. Argo CD never deletes it.
// covers: A14, E3
func TestAnObjectMovesBetweenDeploymentsOfArgoCD(t *testing.T) {
	t.Parallel()
	f := newArgoFleet(t, "argo-moves")
	commit := f.repo.push(t, map[string]string{
		"a/own.yaml": configMap(f.ns, "cm-a", "1"), "b/own.yaml": configMap(f.ns, "cm-b", "1"), "a/moves.yaml": configMap(f.ns, "cm-moves", "1"),
	})
	f.create(t, commit, "a", "b")
	before := uids(t, f.cluster, f.ns)
	holder, taker := "a", "b"
	for i := range 4 {
		text := fmt.Sprint("move-", i)
		commit = f.repo.push(t, map[string]string{
			holder + "/moves.yaml": gitserver.Deleted, taker + "/moves.yaml": configMap(f.ns, "cm-moves", text),
		})
		for _, name := range []string{"a", "b"} {
			f.awaitDeployment(t, name, healthyAt(commit, 1))
		}
		if diff := cmp.Diff(before, uids(t, f.cluster, f.ns)); diff != "" {
			t.Fatalf("objects were deleted and created again (-before +after):\n%s", diff)
		}
		if got := valueOf(t, f.cluster, f.ns, "cm-moves"); got != text {
			t.Errorf("the object has %q, want %q", got, text)
		}
		if got := f.tracker(t, "cm-moves"); got != taker {
			t.Errorf("Argo CD tracks the object for deployment %q, want %q", got, taker)
		}
		holder, taker = taker, holder
	}
	// The deletion of the deployment that gave it away deletes what that has, and nothing else.
	if out, err := f.kedge(t, "deploy", "delete", taker, "--yes"); err != nil {
		t.Fatalf("kedge deploy delete: %v\n%s", err, out)
	}
	gone(t, f.cluster, "-n", f.ns, "get", "configmap", "cm-"+taker)
	if got, want := f.deletedObjects(t), []string{"cm-" + taker}; !slices.Equal(got, want) {
		t.Errorf("deleted were %v, want %v", got, want)
	}
}

// tracker returns the deployment whose Application Argo CD tracks a ConfigMap for.
func (f *argoFleet) tracker(t *testing.T, name string) string {
	t.Helper()
	id := f.cluster.Kubectl(t, "-n", f.ns, "get", "configmap", name, "-o", `jsonpath={.metadata.annotations.argocd\.argoproj\.io/tracking-id}`)
	application, _, _ := strings.Cut(id, ":")
	deployment := f.cluster.Kubectl(t, "-n", f.engine, "get", "application", application, "-o", `jsonpath={.metadata.annotations.kedge\.dev/deployment}`)
	_, deployment, _ = strings.Cut(deployment, "/")
	return deployment
}

// Deletions that the prune limit, or a protected kind, holds are listed at the server. Argo CD deletes exactly what a user
// confirms.
// covers: A6, E3
func TestArgoCDDeletesExactlyWhatIsConfirmed(t *testing.T) {
	t.Parallel()
	f := newArgoFleet(t, "argo-prunes")
	claim := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n", f.ns)
	files := map[string]string{"web/keep.yaml": configMap(f.ns, "cm-keep", "1"), "store/keep.yaml": configMap(f.ns, "cm-store", "1"), "store/claim.yaml": claim}
	for i := range 12 {
		files[fmt.Sprintf("web/old-%d.yaml", i)] = configMap(f.ns, fmt.Sprintf("cm-old-%d", i), "1")
	}
	commit := f.repo.push(t, files)
	f.deploy(t, apiv1.CreateDeployment{Name: "store", Namespace: f.ns, Source: apiv1.Source{RepoURL: f.repo.url, Path: "store"}})
	f.create(t, commit, "web")
	change := map[string]string{"store/claim.yaml": gitserver.Deleted}
	for i := range 12 {
		change[fmt.Sprintf("web/old-%d.yaml", i)] = gitserver.Deleted
	}
	removal := f.repo.push(t, change)
	f.awaitHeld(t, "web", removal, 12)
	f.awaitHeld(t, "store", removal, 1)
	f.listsPrunes(t, "web", "ConfigMap "+f.ns+"/cm-old-3", "ConfigMap "+f.ns+"/cm-old-11")
	f.listsPrunes(t, "store", "PersistentVolumeClaim "+f.ns+"/data")
	if out, err := f.kedge(t, "deploy", "confirm-prune", "web", "ConfigMap "+f.ns+"/cm-keep"); err == nil {
		t.Errorf("what is not held was confirmed:\n%s", out)
	}
	f.wasDeleted(t)
	// A commit that removes nothing changes nothing about it.
	commit = f.repo.push(t, map[string]string{"web/keep.yaml": configMap(f.ns, "cm-keep", "2")})
	f.awaitHeld(t, "web", commit, 12)
	f.wasDeleted(t)

	f.confirms(t, "web", "ConfigMap "+f.ns+"/cm-old-3", "ConfigMap "+f.ns+"/cm-old-5")
	f.awaitHeld(t, "web", commit, 10)
	f.wasDeleted(t, "cm-old-3", "cm-old-5")
	f.confirms(t, "store", "PersistentVolumeClaim "+f.ns+"/data")
	f.awaitDeployment(t, "store", healthyAt(removal, 1))
	f.wasDeleted(t, "cm-old-3", "cm-old-5", "data")
	f.confirms(t, "web", "--all", "--count=10")
	f.awaitDeployment(t, "web", healthyAt(commit, 1))
	all := []string{"data"}
	for i := range 12 {
		all = append(all, fmt.Sprintf("cm-old-%d", i))
	}
	f.wasDeleted(t, all...)
	for _, name := range []string{"cm-keep", "cm-store"} {
		f.cluster.Kubectl(t, "-n", f.ns, "get", "configmap", name)
	}
}

// awaitHeld waits until a deployment is at a commit with n held deletions.
func (f *argoFleet) awaitHeld(t *testing.T, name, commit string, n int) {
	t.Helper()
	f.awaitDeployment(t, name, func(v apiv1.Deployment) error {
		if len(v.Targets) != 1 || v.Commit != commit || v.Targets[0].Commit != commit || v.Targets[0].Generation != v.Targets[0].ObservedGeneration {
			return fmt.Errorf("not at commit %s yet", commit)
		}
		if v.Sync != "OutOfSync" || v.Targets[0].Reason != "PruneHeld" || v.Counts.HeldPrunes != n {
			return fmt.Errorf("want it OutOfSync with %d held deletions", n)
		}
		return nil
	})
}

// listsPrunes checks that the server lists held deletions.
func (f *argoFleet) listsPrunes(t *testing.T, deployment string, objects ...string) {
	t.Helper()
	out, err := f.kedge(t, "deploy", "prunes", deployment)
	for _, object := range objects {
		_, name, _ := strings.Cut(object, " ")
		if err != nil || !strings.Contains(out, name) {
			t.Fatalf("kedge deploy prunes %s does not list %s: %v\n%s", deployment, object, err, out)
		}
	}
}

func (f *argoFleet) confirms(t *testing.T, args ...string) {
	t.Helper()
	if out, err := f.kedge(t, append([]string{"deploy", "confirm-prune"}, args...)...); err != nil {
		t.Fatalf("kedge deploy confirm-prune %v: %v\n%s", args, err, out)
	}
}

// wasDeleted waits until exactly these objects were deleted.
func (f *argoFleet) wasDeleted(t *testing.T, names ...string) {
	t.Helper()
	slices.Sort(names)
	testkit.Eventually(t, patience, func(context.Context) error {
		if got := f.deletedObjects(t); !slices.Equal(got, names) {
			return fmt.Errorf("deleted were %v, want %v", got, names)
		}
		return nil
	})
}

// A custom resource of a kind without namespaces has one in its manifest, as Kustomize adds it, and an annotation that keeps it.
// Neither a commit that removes it nor the deletion of its deployment deletes it.
// covers: A6, E1, E3
func TestArgoCDKeepsAnObjectOfAKindWithoutNamespaces(t *testing.T) {
	t.Parallel()
	f := newArgoFleet(t, "argo-keeps")
	kind := "regions." + f.ns + ".example.com"
	f.cluster.Apply(t, strings.NewReplacer("Namespaced", "Cluster", "widget", "region", "Widget", "Region").Replace(fmt.Sprintf(widgetDefinition, f.ns)))
	t.Cleanup(func() { _, _ = f.cluster.TryKubectl(t, "delete", "crd", kind, "--wait=false") })
	f.cluster.Kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/"+kind)
	region := func(name string) string {
		return fmt.Sprintf("apiVersion: %[1]s.example.com/v1\nkind: Region\nmetadata: {name: %[2]s, annotations: {kedge.dev/prune: disabled}}\n", f.ns, name)
	}
	files := map[string]string{}
	for _, name := range []string{"ends", "shrinks"} {
		files[name+"/kustomization.yaml"] = "namespace: " + f.ns + "\nresources: [region.yaml, own.yaml]\n"
		files[name+"/region.yaml"], files[name+"/own.yaml"] = region(name), configMap(f.ns, "cm-"+name, "1")
	}
	f.create(t, f.repo.push(t, files), "ends", "shrinks")

	f.run(t, "deploy", "delete", "ends", "--yes")
	gone(t, f.cluster, "-n", f.ns, "get", "configmap", "cm-ends")
	commit := f.repo.push(t, map[string]string{"shrinks/kustomization.yaml": "namespace: " + f.ns + "\nresources: [own.yaml]\n", "shrinks/own.yaml": configMap(f.ns, "cm-shrinks", "2")})
	testkit.Eventually(t, patience, func(context.Context) error {
		if got := valueOf(t, f.cluster, f.ns, "cm-shrinks"); got != "2" {
			return fmt.Errorf("commit %s is not applied: %q", commit, got)
		}
		return nil
	})
	f.run(t, "deploy", "delete", "shrinks", "--yes")
	gone(t, f.cluster, "-n", f.ns, "get", "configmap", "cm-shrinks")
	gone(t, f.cluster, "-n", f.engine, "get", "applications", "-l", "app.kubernetes.io/managed-by=kedge")
	for _, r := range deletions(f.cluster.Requests(t)) {
		if r.Resource == "regions" {
			t.Errorf("a kept object was deleted: %+v", r)
		}
	}
	for _, name := range []string{"ends", "shrinks"} {
		f.cluster.Kubectl(t, "get", kind, name)
	}
}
