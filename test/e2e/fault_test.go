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
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// many returns n ConfigMaps with a value each, in one file.
func many(namespace string, n int, value string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(configMap(namespace, fmt.Sprintf("cm-%03d", i), value) + "---\n")
	}
	return b.String()
}

// values reads the ConfigMaps cm-* of a namespace.
func values(tb testing.TB, c *testkit.Cluster, namespace string) map[string]string {
	tb.Helper()
	out := map[string]string{}
	for line := range strings.Lines(c.Kubectl(tb, "-n", namespace, "get", "configmaps",
		"-o", `jsonpath={range .items[*]}{.metadata.name}={.data.value}{"\n"}{end}`)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(name, "cm-") {
			out[name] = value
		}
	}
	return out
}

// holds waits until a namespace has exactly n ConfigMaps with a value.
func holds(tb testing.TB, c *testkit.Cluster, namespace string, n int, value string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(context.Context) error {
		got := values(tb, c, namespace)
		distinct := slices.Compact(slices.Sorted(maps.Values(got)))
		if len(got) != n || !slices.Equal(distinct, []string{value}) {
			return fmt.Errorf("%d ConfigMaps with values %v, want %d with %q", len(got), distinct, n, value)
		}
		return nil
	})
}

// covers: A12, A9
func TestBadCommitsDisturbNothingAndAreSeenWhereUsersLook(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "bad-commits"})
	good := repo.push(t, map[string]string{"app/cm.yaml": configMap(ns, "cm-a", "good")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: unlimited()})
	s.awaitDeployment(t, "app", healthyAt(good, 1))
	repo.webhooks(t, s)
	seen := func(t *testing.T, text string) {
		t.Helper()
		s.awaitDeployment(t, "app", func(d apiv1.Deployment) error {
			if d.Sync != "Failed" || !strings.Contains(d.Message, text) {
				return fmt.Errorf("no failure that names %q", text)
			}
			return nil
		})
		if out, _ := s.kedge(t, "status", "app"); !strings.Contains(out, text) {
			t.Errorf("kedge status does not show %q:\n%s", text, out)
		}
		if got := values(t, cluster, ns); got["cm-a"] != "good" {
			t.Errorf("the running state changed: %v", got)
		}
	}
	t.Run("a manifest that is not YAML", func(t *testing.T) {
		repo.push(t, map[string]string{"app/cm.yaml": configMap(ns, "cm-a", "bad"), "app/broken.yaml": "a: [1"})
		seen(t, "app/broken.yaml")
	})
	t.Run("an empty tree deletes nothing", func(t *testing.T) {
		repo.push(t, map[string]string{"app/cm.yaml": gitserver.Deleted, "app/broken.yaml": gitserver.Deleted, "app/README.md": "empty"})
		seen(t, "allowEmpty")
	})
	t.Run("a missing folder deletes nothing", func(t *testing.T) {
		repo.push(t, map[string]string{"app/README.md": gitserver.Deleted, "elsewhere/cm.yaml": configMap(ns, "cm-a", "moved")})
		seen(t, "app")
	})
	t.Run("a deleted repository deletes nothing", func(t *testing.T) {
		repo.server.SetDown(true)
		hook := s.webhook(t, repo.url)
		if _, err := sendHook(t.Context(), hook.URL, hook.Secret, ""); err != nil {
			t.Fatal(err)
		}
		seen(t, repo.url)
		repo.server.SetDown(false)
	})
	t.Run("a fix recovers without help", func(t *testing.T) {
		fixed := repo.push(t, map[string]string{"app/cm.yaml": configMap(ns, "cm-a", "fixed")})
		s.awaitDeployment(t, "app", healthyAt(fixed, 1))
		holds(t, cluster, ns, 1, "fixed")
	})
}

// covers: A12, A3
func TestRefusedObjectFailsAloneAndNothingIsPrunedMeanwhile(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "refused"})
	group := "things" + strings.ReplaceAll(ns, "-", "") + ".example.com"
	first := repo.push(t, map[string]string{"app/a.yaml": configMap(ns, "cm-a", "1"), "app/b.yaml": configMap(ns, "cm-b", "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Namespace: ns, Source: apiv1.Source{RepoURL: repo.url, Path: "app"}})
	s.awaitDeployment(t, "app", healthyAt(first, 1))
	repo.webhooks(t, s)

	thing := "apiVersion: " + group + "/v1\nkind: Thing\nmetadata: {name: one}\nspec: {size: 3}\n"
	repo.push(t, map[string]string{"app/a.yaml": configMap(ns, "cm-a", "2"), "app/b.yaml": gitserver.Deleted, "app/0-thing.yaml": thing})
	s.awaitDeployment(t, "app", func(d apiv1.Deployment) error {
		if d.Sync != "Failed" || !strings.Contains(d.Message, "Thing") {
			return errors.New("the unknown kind is not named")
		}
		return nil
	})
	if got := values(t, cluster, ns); got["cm-a"] != "2" || got["cm-b"] != "1" {
		t.Errorf("want the others applied and nothing pruned: %v", got)
	}

	crd := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group)
	// The CRD is in the same bundle now, in a file that sorts after its resource.
	healed := repo.push(t, map[string]string{"app/z-crd.yaml": crd})
	t.Cleanup(func() {
		_, _ = cluster.TryKubectl(t, "delete", "crd", "things."+group, "--wait=false")
	})
	s.awaitDeployment(t, "app", healthyAt(healed, 1))
	shows(t, cluster, "3", "-n", ns, "get", "things."+group, "one", "-o", "jsonpath={.spec.size}")
	testkit.Eventually(t, patience, func(context.Context) error {
		if got := values(t, cluster, ns); len(got) != 1 {
			return fmt.Errorf("the held prune was not executed later: %v", got)
		}
		return nil
	})
}

// A server that is killed during a sync loses nothing, and its restart keeps everything.
func TestServerKilledInTheMiddleOfASync(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "server-killed"})
	repo.push(t, map[string]string{"app/cm.yaml": many(ns, 200, "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: unlimited()})
	testkit.Eventually(t, patience, func(context.Context) error {
		if len(values(t, cluster, ns)) == 0 {
			return errors.New("not begun")
		}
		return nil
	})
	s.Kill()
	second := repo.push(t, map[string]string{"app/cm.yaml": many(ns, 150, "2")}) // without a webhook
	s.restart(t)
	a.awaitConnected(t, s)
	s.awaitDeployment(t, "app", healthyAt(second, 1))
	holds(t, cluster, ns, 150, "2")
}

// An agent that is killed during an apply, with a new bundle arriving while it is down, leaves no orphan and
// deletes nothing wrongly.
func TestAgentKilledInTheMiddleOfAnApply(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "agent-killed"})
	cluster.Apply(t, configMap(ns, "mine", "untouched"))
	repo.push(t, map[string]string{"app/cm.yaml": many(ns, 200, "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: unlimited()})
	testkit.Eventually(t, patience, func(context.Context) error {
		if len(values(t, cluster, ns)) == 0 {
			return errors.New("not begun")
		}
		return nil
	})
	a.Kill()
	repo.webhooks(t, s)
	repo.push(t, map[string]string{"app/cm.yaml": many(ns, 180, "2")})
	newest := repo.push(t, map[string]string{"app/cm.yaml": many(ns, 100, "3")})
	s.awaitDeployment(t, "app", func(d apiv1.Deployment) error {
		if d.Commit != newest || d.Health != "Stale" || d.Targets[0].StaleSince.IsZero() {
			return errors.New("a dead agent's target is not stale")
		}
		return nil
	})
	a.run(t)
	s.awaitDeployment(t, "app", healthyAt(newest, 1))
	holds(t, cluster, ns, 100, "3")
	shows(t, cluster, "untouched", "-n", ns, "get", "configmap", "mine", "-o", "jsonpath={.data.value}")
}

// covers: G6, D5
func TestAbsenceCostsOneTransferAndIrrelevantCommitsCostNothing(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "absent"})
	first := repo.push(t, map[string]string{"app/cm.yaml": configMap(ns, "cm-a", "0")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: unlimited()})
	s.awaitDeployment(t, "app", healthyAt(first, 1))
	repo.webhooks(t, s)
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	var newest string
	for i := range 20 {
		newest = repo.push(t, map[string]string{"app/cm.yaml": configMap(ns, "cm-a", fmt.Sprint(i+1))})
	}
	s.awaitDeployment(t, "app", func(d apiv1.Deployment) error {
		if d.Commit != newest {
			return errors.New("not rendered")
		}
		return nil
	})
	before := len(writesTo(t, cluster, ns))
	a.run(t)
	s.awaitDeployment(t, "app", healthyAt(newest, 1))
	if writes := writesTo(t, cluster, ns)[before:]; len(writes) != 1 {
		t.Errorf("20 missed commits caused %d writes, not one: %+v", len(writes), writes)
	}

	before = len(writesTo(t, cluster, ns))
	repo.push(t, map[string]string{"README.md": "irrelevant", "docs/cm.yaml": configMap(ns, "cm-b", "not ours")})
	relevant := repo.push(t, map[string]string{"app/cm.yaml": configMap(ns, "cm-a", "last")})
	s.awaitDeployment(t, "app", healthyAt(relevant, 1))
	if writes := writesTo(t, cluster, ns)[before:]; len(writes) != 1 {
		t.Errorf("a relevant and an irrelevant commit caused %d writes, not one: %+v", len(writes), writes)
	}
}

// writesTo are the requests of agents that were meant to change a namespace.
func writesTo(tb testing.TB, c *testkit.Cluster, namespace string) []testkit.Request {
	tb.Helper()
	return slices.DeleteFunc(c.Requests(tb), func(r testkit.Request) bool {
		return !r.Write() || r.Namespace != namespace || !strings.Contains(r.UserAgent, "kedge-agent")
	})
}
