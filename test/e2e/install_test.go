package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// piped runs the CLI and returns its standard output.
func (s *testServer) piped(tb testing.TB, args ...string) string {
	tb.Helper()
	cmd := exec.Command(binary(tb, "kedge"), append(args, "--server", s.URL)...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+tb.TempDir(), "KEDGE_TOKEN="+s.Token)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("kedge %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// site is a cluster as a platform engineer has it: kubectl, and a folder for the agent's files.
type site struct {
	rig.Cluster
	cluster *testkit.Cluster
}

func newSite(tb testing.TB, c *testkit.Cluster) site {
	tb.Helper()
	return site{rig.Cluster{Kubectl: filepath.Join(testkit.KubeBinDir(tb), "kubectl"), Kubeconfig: c.Kubeconfig()}, c}
}

// feed is kubectl with a manifest on its standard input.
func (s site) feed(tb testing.TB, manifest string, args ...string) string {
	tb.Helper()
	out, err := s.Run(tb.Context(), manifest, append(args, "-f", "-")...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// agent starts the installed agent according to its manifest.
func (s site) agent(tb testing.TB, server *testServer, name string) *testAgent {
	tb.Helper()
	pod, err := s.Pod(tb.Context(), name, binary(tb, "kedge-agent"), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	a := &testAgent{name: name, cluster: s.cluster, pod: pod}
	a.run(tb)
	a.awaitConnected(tb, server)
	return a
}

// enrollByHand runs the commands of the README: kedge agent enroll … | kubectl apply -f -
func (s site) enrollByHand(tb testing.TB, server *testServer, name string, flags ...string) (manifest string) {
	tb.Helper()
	manifest = server.piped(tb, append([]string{"agent", "enroll", name}, flags...)...)
	tb.Cleanup(func() {
		if err := s.Uninstall(context.WithoutCancel(tb.Context()), name); err != nil {
			tb.Error(err)
		}
	})
	// The API server validates every object of it. Objects in a namespace can be tried only when
	// that is there.
	s.cluster.Kubectl(tb, "create", "namespace", "kedge-agent-"+name)
	if out := s.feed(tb, manifest, "apply", "--dry-run=server"); !strings.Contains(out, "deployment.apps/kedge-agent created (server dry run)") {
		tb.Errorf("a dry run says:\n%s", out)
	}
	if out := s.cluster.Kubectl(tb, "-n", "kedge-agent-"+name, "get", "deployments,secrets", "-o", "name"); strings.TrimSpace(out) != "" {
		tb.Errorf("a dry run has left %s", out)
	}
	s.feed(tb, manifest, "apply")
	return manifest
}

// snapshot returns the identity of objects and everything that a user has put into them.
func snapshot(tb testing.TB, c *testkit.Cluster, args ...string) string {
	tb.Helper()
	const fields = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion} {.data}{"\n"}{end}`
	return c.Kubectl(tb, append([]string{"get", "-o", fields}, args...)...)
}

// covers: C3, C4
func TestInstallUpgradeUninstallAndInstallAgain(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	here, ns := newSite(t, cluster), cluster.Namespace(t)
	const home = "kedge-agent-lifecycle"
	enrolled := here.enrollByHand(t, s, "lifecycle")
	// The namespace enforces the strictest Pod Security Standard: the pod is let in.
	shows(t, cluster, "Running", "-n", home, "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
	a := here.agent(t, s, "lifecycle")
	first := repo.push(t, map[string]string{"a.yaml": configMap(ns, "a", "one"), "b.yaml": configMap(ns, "b", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url}})
	s.awaitDeployment(t, "app", healthyAt(first, 1))
	apps := func() string {
		return snapshot(t, cluster, "configmaps", "-n", ns, "--field-selector", "metadata.name!=kube-root-ca.crt")
	}
	own := func() string {
		return snapshot(t, cluster, "secrets,configmaps", "-n", home, "--field-selector", "metadata.name!=kube-root-ca.crt")
	}
	a.awaitKept(t, 1)
	appsBefore, ownBefore := apps(), own()

	// Upgrade, by one command, while the agent runs.
	upgrade := s.piped(t, "agent", "manifest", "lifecycle", "--image", "registry.example.com/kedge-agent:next")
	if strings.Contains(upgrade, "kind: Secret") {
		t.Errorf("the manifest for upgrades contains a Secret:\n%s", upgrade)
	}
	here.feed(t, upgrade, "apply")
	shows(t, cluster, ":next", "-n", home, "get", "deployment", "kedge-agent", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	if err := a.Stop(); err != nil { // the Deployment replaces its pod
		t.Error(err)
	}
	a = here.agent(t, s, "lifecycle")
	s.awaitDeployment(t, "app", healthyAt(first, 1))
	if diff := cmp.Diff(ownBefore, own()); diff != "" {
		t.Errorf("upgrading has changed token or inventory:\n%s", diff)
	}
	if diff := cmp.Diff(appsBefore, apps()); diff != "" {
		t.Errorf("upgrading has touched the application:\n%s", diff)
	}

	// Uninstall with one command. The agent keeps running: its behavior while its permissions and its inventory
	// are deleted must not harm anything.
	here.feed(t, s.piped(t, "agent", "manifest", "lifecycle"), "delete")
	if out := cluster.Kubectl(t, "get", "namespaces,clusterroles,clusterrolebindings", "-l", "kedge.dev/install=lifecycle", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("uninstalling has left %s", out)
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(appsBefore, apps()); diff != "" {
		t.Errorf("uninstalling has touched the application:\n%s", diff)
	}

	// Install again, from the stored manifest: the same agent, the same objects.
	here.feed(t, enrolled, "apply")
	here.agent(t, s, "lifecycle")
	s.awaitDeployment(t, "app", healthyAt(first, 1))
	uids := func(text string) (out []string) {
		for line := range strings.Lines(text) {
			out = append(out, strings.Join(strings.Fields(line)[:2], " "))
		}
		return out
	}
	if diff := cmp.Diff(uids(appsBefore), uids(apps())); diff != "" {
		t.Errorf("installing again has replaced objects:\n%s", diff)
	}
	repo.webhooks(t, s)
	second := repo.push(t, map[string]string{"a.yaml": configMap(ns, "a", "two"), "b.yaml": gitserver.Deleted})
	s.awaitDeployment(t, "app", healthyAt(second, 1))
	testkit.Eventually(t, patience, func(context.Context) error {
		if out := apps(); strings.Contains(out, "/b ") || !strings.Contains(out, "two") {
			return fmt.Errorf("the commit after the new installation has not arrived:\n%s", out)
		}
		return nil
	})
}

// covers: C4
func TestLimitedAgentWritesOnlyInItsNamespaces(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	one, two, foreign := cluster.Namespace(t), cluster.Namespace(t), cluster.Namespace(t)
	here := newSite(t, cluster)
	manifest := here.enrollByHand(t, s, "limited", "--namespaces", one+","+two)
	if strings.Contains(manifest, "ClusterRole") {
		t.Errorf("the manifest of a limited agent contains a ClusterRole:\n%s", manifest)
	}
	account := "system:serviceaccount:kedge-agent-limited:kedge-agent"
	for place, want := range map[string]string{one: "yes", two: "yes", foreign: "no", "kube-system": "no"} {
		out, _ := cluster.TryKubectl(t, "auth", "can-i", "create", "configmaps", "-n", place, "--as", account) // fails when the answer is no
		if strings.TrimSpace(out) != want {
			t.Errorf("may the agent write in %s: %q, want %q", place, strings.TrimSpace(out), want)
		}
	}
	here.agent(t, s, "limited")

	class := "class-" + one
	repo.push(t, map[string]string{
		"one.yaml":     configMap(one, "fine", "1"),
		"two.yaml":     configMap(two, "fine", "2"),
		"foreign.yaml": configMap(foreign, "refused", "3"),
		"class.yaml":   fmt.Sprintf("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata:\n  name: %s\nvalue: 7\n", class),
	})
	s.deploy(t, apiv1.CreateDeployment{Name: "limited", Source: apiv1.Source{RepoURL: repo.url}})
	d := s.awaitDeployment(t, "limited", func(d apiv1.Deployment) error {
		if d.Sync != "Failed" || len(d.Targets) != 1 || len(d.Targets[0].Objects) != 4 {
			return fmt.Errorf("not yet refused")
		}
		for _, o := range d.Targets[0].Objects {
			refused := o.Namespace == foreign || o.Kind == "PriorityClass"
			if refused && o.Sync != "Failed" || !refused && (o.Sync != "Synced" || o.Health != "Current") {
				return fmt.Errorf("%s %s/%s is %s/%s", o.Kind, o.Namespace, o.Name, o.Sync, o.Health)
			}
		}
		return nil
	})
	for _, o := range d.Targets[0].Objects {
		if o.Sync == "Failed" && !strings.Contains(o.Message, "limited to") {
			t.Errorf("%s %s/%s was refused because %q, which does not say why", o.Kind, o.Namespace, o.Name, o.Message)
		}
	}
	status, err := s.kedge(t, "status", "limited")
	if err == nil || !strings.Contains(status, foreign+"/refused") || !strings.Contains(status, "PriorityClass.scheduling.k8s.io "+class) {
		t.Errorf("kedge status does not name what is refused (%v):\n%s", err, status)
	}
	if out := cluster.Kubectl(t, "get", "configmaps", "-n", foreign, "--field-selector", "metadata.name=refused", "-o", "name"); out != "" {
		t.Errorf("the foreign namespace holds %s", out)
	}
	if out := cluster.Kubectl(t, "get", "priorityclass", class, "--ignore-not-found", "-o", "name"); out != "" {
		t.Errorf("the cluster holds %s", out)
	}

	before := snapshot(t, cluster, "configmaps", "-n", one) + snapshot(t, cluster, "configmaps", "-n", two)
	here.feed(t, s.piped(t, "agent", "manifest", "limited"), "delete")
	if diff := cmp.Diff(before, snapshot(t, cluster, "configmaps", "-n", one)+snapshot(t, cluster, "configmaps", "-n", two)); diff != "" {
		t.Errorf("uninstalling has touched the application:\n%s", diff)
	}
	if out := cluster.Kubectl(t, "get", "roles,rolebindings", "-A", "-l", "kedge.dev/install=limited", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("uninstalling has left %s", out)
	}
}
