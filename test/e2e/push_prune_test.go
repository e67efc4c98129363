package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// identities returns the UIDs of the ConfigMaps and claims in a namespace that tests create, by kind and name.
func identities(tb testing.TB, c *testkit.Cluster, namespace string) map[string]string {
	tb.Helper()
	out := map[string]string{}
	for line := range strings.Lines(c.Kubectl(tb, "-n", namespace, "get", "configmaps,persistentvolumeclaims",
		"-o", `jsonpath={range .items[*]}{.kind} {.metadata.name}={.metadata.uid}{.metadata.deletionTimestamp}{"\n"}{end}`)) {
		name, uid, _ := strings.Cut(strings.TrimSpace(line), "=")
		if name != "ConfigMap kube-root-ca.crt" {
			out[name] = uid
		}
	}
	return out
}

// pushSites are clusters that have objects of the same namespace and names.
type pushSites struct {
	names    []string // of the deployments
	clusters map[string]*testkit.Cluster
	ns       string
	before   map[string]map[string]string
}

// unchanged checks that all objects are those from before, except some in one cluster that must not exist any more.
func (p *pushSites) unchanged(tb testing.TB, what, site string, gone ...string) {
	tb.Helper()
	for _, name := range p.names {
		want := maps.Clone(p.before[name])
		if name == site {
			maps.DeleteFunc(want, func(object, _ string) bool { return slices.Contains(gone, object) })
		}
		if got := identities(tb, p.clusters[name], p.ns); !maps.Equal(got, want) {
			tb.Errorf("%s: the cluster of %s has %v, want %v", what, name, got, want)
		}
	}
}

// startPushSites deploys the same objects to two push environments and to the cluster of their engine instance.
func startPushSites(t *testing.T, s *testServer, repo *testRepo) *pushSites {
	t.Helper()
	p := &pushSites{names: []string{"customer", "other", "local"}, clusters: map[string]*testkit.Cluster{}, ns: "shop", before: map[string]map[string]string{}}
	files := map[string]string{}
	for _, name := range p.names {
		c := testkit.StartCluster(t)
		p.clusters[name] = c
		c.Kubectl(t, "create", "namespace", p.ns)
		c.Apply(t, configMap(p.ns, "cm-by-hand", "1"))
		files[name+"/keep.yaml"], files[name+"/gone.yaml"] = configMap(p.ns, "cm-keep", "1"), configMap(p.ns, "cm-gone", "1")
		files[name+"/data.yaml"] = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {namespace: shop, name: data}\n" +
			"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	}
	commit := repo.push(t, files)
	engines := p.clusters["local"]
	argo := engines.Namespace(t)
	argocd.Start(t, argocd.Config{Cluster: engines, Namespace: argo})
	enroll(t, s, engines, apiv1.EnrollAgent{Name: "engine", EngineNamespace: argo, EngineInstance: true})
	s.run(t, "env", "create", "local", "--agents", "engine")
	for _, name := range p.names {
		if c := p.clusters[name]; name != "local" {
			s.pushEnvironment(t, name, c.URL(), deployerKubeconfig(t, c, p.ns))
			s.awaitPush(t, name, "EndpointReady", "engine")
		}
		s.deploy(t, apiv1.CreateDeployment{Name: name, Environment: name, Namespace: p.ns, Source: apiv1.Source{RepoURL: repo.url, Path: name}})
	}
	for _, name := range p.names {
		s.awaitDeployment(t, name, syncedOn("engine", commit, "Synced"))
		p.before[name] = identities(t, p.clusters[name], p.ns)
		if len(p.before[name]) != 4 {
			t.Fatalf("the cluster of %s has %v", name, p.before[name])
		}
	}
	return p
}

// A commit that removes objects from one push environment deletes exactly these there: objects with the same names in the
// cluster of the engine instance and in another push environment stay, and so do objects of protected kinds. The deletion of
// the deployment deletes exactly what it has left.
// covers: K7, E3, E5
func TestPrunesStayInTheirPushEnvironment(t *testing.T) {
	t.Parallel()
	s, repo := startServer(t, "--git-poll-interval", "1s"), newRepo(t)
	p := startPushSites(t, s, repo)
	customer := p.clusters["customer"]

	commit := repo.push(t, map[string]string{"customer/gone.yaml": "", "customer/data.yaml": ""})
	s.awaitDeployment(t, "customer", func(v apiv1.Deployment) error {
		if err := syncedOn("engine", commit, "OutOfSync")(v); err != nil {
			return err
		}
		if o := objectNamed(targetOn(v, "engine"), "data"); v.Counts.HeldPrunes != 1 || o.Sync != "Held" || o.Reason != "ProtectedKind" {
			return fmt.Errorf("%d deletions are held, and the claim is %+v", v.Counts.HeldPrunes, o)
		}
		return nil
	})
	gone(t, customer, "-n", p.ns, "get", "configmap", "cm-gone")
	p.unchanged(t, "after the commit", "customer", "ConfigMap cm-gone")

	s.run(t, "deploy", "delete", "customer", "--yes")
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		if _, err := s.deployment(ctx, "customer"); err == nil {
			return errors.New("the deployment still exists")
		}
		return nil
	})
	p.unchanged(t, "after the deletion", "customer", "ConfigMap cm-gone", "ConfigMap cm-keep")

	// The others go on: their commits, and drift in them, have an effect.
	commit = repo.push(t, map[string]string{"other/keep.yaml": configMap(p.ns, "cm-keep", "2"), "local/keep.yaml": configMap(p.ns, "cm-keep", "2")})
	for _, name := range p.names[1:] {
		s.awaitDeployment(t, name, syncedOn("engine", commit, "Synced"))
	}
	p.unchanged(t, "after a commit for the others", "customer", "ConfigMap cm-gone", "ConfigMap cm-keep")
	deleted := map[string][]string{"customer": {"cm-gone", "cm-keep"}}
	for _, name := range p.names {
		var got []string
		for _, r := range deletionsIn(p.clusters[name].Requests(t), p.ns) {
			if r.Resource != "leases" && r.Code < 300 {
				got = append(got, r.Name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, deleted[name]) {
			t.Errorf("in the cluster of %s, %q were deleted, want %q", name, got, deleted[name])
		}
	}
}
