package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// pushEnvironment creates a push environment and returns the agent that serves it.
func (s *testServer) pushEnvironment(tb testing.TB, name, url, kubeconfig string) string {
	tb.Helper()
	var made apiv1.Environment
	s.call(tb, http.MethodPost, tenantPath+"/environments", apiv1.CreateEnvironment{Name: name, Push: &apiv1.PushRequest{APIURL: url, Kubeconfig: kubeconfig}}, &made)
	return made.Push.EngineInstance
}

// deployerKubeconfig creates a ServiceAccount that may do everything in a cluster and returns a kubeconfig of it.
func deployerKubeconfig(tb testing.TB, c *testkit.Cluster, ns string) string {
	tb.Helper()
	c.Kubectl(tb, "-n", ns, "create", "serviceaccount", "deployer")
	c.Kubectl(tb, "create", "clusterrolebinding", "deployer", "--clusterrole=cluster-admin", "--serviceaccount="+ns+":deployer")
	return pushKubeconfig(c.ServiceAccountConfig(tb, ns, "deployer"))
}

// awaitPush waits until a push environment has a reason and an engine instance.
func (s *testServer) awaitPush(tb testing.TB, name, reason, instance string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		var v apiv1.Environment
		err := s.Call(ctx, http.MethodGet, tenantPath+"/environments/"+name, nil, &v)
		if err == nil && (v.Push.Ready.Reason != reason || v.Push.EngineInstance != instance) {
			err = fmt.Errorf("environment %s is on %q: %+v", name, v.Push.EngineInstance, v.Push.Ready)
		}
		return err
	})
}

// A push environment is placed on the engine instance with the least load. When that one is drained, the environment moves:
// the second Argo CD gets the Application only after the first one has lost it, and nothing is deleted, although the
// deployment prunes what it leaves.
// covers: E4
func TestPushEnvironmentMovesWithoutDoubleApply(t *testing.T) {
	t.Parallel()
	s, repo := startServer(t, "--git-poll-interval", "1s"), newRepo(t)
	engines, remote := testkit.StartCluster(t), testkit.StartCluster(t)
	agents := map[string]*testAgent{}
	namespaces := map[string]string{}
	for _, name := range []string{"one", "two"} {
		namespaces[name] = engines.Namespace(t)
		argocd.Start(t, argocd.Config{Cluster: engines, Namespace: namespaces[name]})
		agents[name] = enroll(t, s, engines, apiv1.EnrollAgent{Name: name, EngineNamespace: namespaces[name], EngineInstance: true})
	}
	ns := remote.Namespace(t)
	first := s.pushEnvironment(t, "customer", remote.URL(), deployerKubeconfig(t, remote, ns))
	second := s.pushEnvironment(t, "other", engines.URL(), deployerKubeconfig(t, engines, namespaces["one"]))
	if first == second || agents[first] == nil || agents[second] == nil {
		t.Fatalf("the environments of two clusters are on %q and %q, want one on each", first, second)
	}
	s.awaitPush(t, "customer", "EndpointReady", first)

	repo.push(t, map[string]string{"cm.yaml": configMap(ns, "cm-app", "1")})
	s.deploy(t, apiv1.CreateDeployment{
		Name: "app", Environment: "customer", Namespace: ns, Source: apiv1.Source{RepoURL: repo.url}, Policy: apiv1.NewPolicy{PruneOnDetach: true},
	})
	has := func(want string) {
		t.Helper()
		testkit.Eventually(t, patience, func(context.Context) error {
			if got := fmt.Sprint(values(t, remote, ns)); got != want {
				return fmt.Errorf("the remote cluster has %s, want %s", got, want)
			}
			return nil
		})
	}
	has("map[cm-app:1]")
	uid := remote.Kubectl(t, "-n", ns, "get", "configmap", "cm-app", "-o", "jsonpath={.metadata.uid}")
	applications := func(agent string) string {
		return strings.TrimSpace(engines.Kubectl(t, "-n", namespaces[agent], "get", "applications", "-l", "app.kubernetes.io/managed-by=kedge", "-o", "name"))
	}
	app := applications(first)
	if app == "" || applications(second) != "" {
		t.Fatalf("the Applications are %q and %q", app, applications(second))
	}

	// The former instance is away: the move waits, and the next one gets nothing.
	if err := agents[first].Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := s.kedge(t, "agent", "drain", first); err != nil {
		t.Fatal(err, out)
	}
	s.awaitPush(t, "customer", "EngineInstanceMoving", "")
	if got := s.Call(t.Context(), http.MethodDelete, tenantPath+"/deployments/app", nil, nil); got == nil {
		t.Error("a deployment was deleted while its environment moved")
	}
	if got := applications(second); got != "" || applications(first) != app {
		t.Errorf("while the former instance is away the Applications are %q and %q", applications(first), got)
	}
	agents[first].run(t)
	s.awaitPush(t, "customer", "EndpointReady", second)
	repo.push(t, map[string]string{"cm.yaml": configMap(ns, "cm-app", "2")})
	has("map[cm-app:2]")
	if applications(first) != "" || applications(second) != app {
		t.Errorf("after the move the Applications are %q and %q, want only %q on the second", applications(first), applications(second), app)
	}
	if got := remote.Kubectl(t, "-n", ns, "get", "configmap", "cm-app", "-o", "jsonpath={.metadata.uid}"); got != uid {
		t.Error("the object was deleted and created again")
	}
	for _, r := range deletions(remote.Requests(t)) {
		if r.Namespace == ns && r.Resource == "configmaps" {
			t.Errorf("the move deleted an object: %+v", r)
		}
	}
	deleted, created := -1, -1
	for i, r := range engines.Requests(t) {
		if r.Resource != "applications" || r.Code >= 300 {
			continue
		}
		if r.Verb == "delete" && r.Namespace == namespaces[first] {
			deleted = i
		}
		if r.Verb == "create" && r.Namespace == namespaces[second] && created < 0 {
			created = i
		}
	}
	if deleted < 0 || created < deleted {
		t.Errorf("the second Application was created (request %d) before the first was deleted (request %d)", created, deleted)
	}
}
