package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// kedge runs the CLI with the token of the user.
func (u *kubeUser) kedge(ctx context.Context, s *testServer, args ...string) *exec.Cmd {
	home := filepath.Dir(u.kubeconfig)
	// The flags come first: what follows -- belongs to kedge exec.
	flags := []string{"--server", s.URL, "--ca-file", s.CAFile, "--token-file", filepath.Join(home, "token")}
	cmd := exec.CommandContext(ctx, filepath.Join(u.path, "kedge"), append(flags, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "NO_COLOR=1")
	return cmd
}

// liveFleet is a deployment with pods in two clusters.
type liveFleet struct {
	*testServer
	ns   string
	ada  *kubeUser
	near liveCluster // berlin
	far  liveCluster // paris
}

type liveCluster struct {
	*testkit.Cluster
	agent *testAgent
	dir   string // of the kubelet
	pod   string
}

const liveManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeName: live
      tolerations: [{operator: Exists}]
      containers: [{name: web, image: web}]
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: %[1]s}
stringData: {password: open-sesame}
`

func newLiveFleet(t *testing.T) *liveFleet {
	t.Helper()
	near, far := testkit.SharedCluster(t), testkit.StartCluster(t)
	f := &liveFleet{testServer: startServer(t, "--tls-host", "localhost"), ns: near.Namespace(t)}
	far.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+f.ns+"}\n")
	start := func(name string, cluster *testkit.Cluster) liveCluster {
		bind(t, cluster, "kedge-live", "admin", "cluster-admin")
		t.Cleanup(func() { _, _ = cluster.TryKubectl(t, "delete", "clusterrolebinding", "kedge-live") })
		return liveCluster{Cluster: cluster, agent: enroll(t, f.testServer, cluster, apiv1.EnrollAgent{Name: name, Tunnel: true}), dir: startKubelet(t, cluster, "live")}
	}
	f.near, f.far = start("berlin", near), start("paris", far)
	repo := newRepo(t)
	commit := repo.push(t, map[string]string{"web.yaml": fmt.Sprintf(liveManifest, f.ns)})
	f.deploy(t, apiv1.CreateDeployment{Name: "web", Source: apiv1.Source{RepoURL: repo.url}})
	f.awaitDeployment(t, "web", healthyAt(commit, 2))
	for _, c := range []*liveCluster{&f.near, &f.far} {
		// A pod with the same label that the deployment does not own.
		c.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: stranger, namespace: %s, labels: {app: web}}\nspec: {nodeName: live, containers: [{name: web, image: web}], tolerations: [{operator: Exists}]}\n", f.ns))
		c.Kubectl(t, "-n", f.ns, "wait", "pod", "stranger", "--for=condition=Ready", "--timeout=60s")
		c.log(t, f.ns, "stranger", "2026-11-17T10:00:00Z not ours\n")
		c.pod = c.Kubectl(t, "-n", f.ns, "get", "pods", "-o", `jsonpath={.items[?(@.metadata.name!="stranger")].metadata.name}`)
	}
	f.ada = newKubeUser(t, f.testServer, "ada", "admin", "paris")
	return f
}

// log appends to the log of a pod.
func (c *liveCluster) log(tb testing.TB, ns, pod, text string) {
	tb.Helper()
	file, err := os.OpenFile(filepath.Join(c.dir, ns+"_"+pod+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		tb.Fatal(err)
	}
}

// run runs kedge as ada and returns what it prints, also if it fails.
func (f *liveFleet) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := f.ada.kedge(t.Context(), f.testServer, args...).CombinedOutput()
	return string(out), err
}

// prints checks what kedge prints.
func (f *liveFleet) prints(t *testing.T, want string, args ...string) {
	t.Helper()
	if got, err := f.run(t, args...); err != nil || got != want {
		t.Errorf("kedge %s: %v\n%s\nwant\n%s", strings.Join(args, " "), err, got, want)
	}
}

// says checks that kedge fails and why.
func (f *liveFleet) says(t *testing.T, want string, args ...string) {
	t.Helper()
	if got, err := f.run(t, args...); err == nil || !strings.Contains(got, want) {
		t.Errorf("kedge %s: %v\n%s\nwant %q", strings.Join(args, " "), err, got, want)
	}
}

// covers: O4, P12, P2
func TestLiveViewOfADeployment(t *testing.T) {
	t.Parallel()
	f := newLiveFleet(t)
	f.near.log(t, f.ns, f.near.pod, "2026-11-17T10:00:01Z one\n2026-11-17T10:00:03Z three\n")
	f.far.log(t, f.ns, f.far.pod, "2026-11-17T10:00:02Z two\n")

	// Neither a role of the tenant nor permission in the cluster is enough.
	f.says(t, "none of the 2 clusters could be read", "logs", "web")
	f.says(t, "kedge access create", "logs", "web", "--agent", "paris")
	allow(t, f.testServer, "ada", "ada", false)
	t.Run("logs", func(t *testing.T) { liveLogs(t, f) })
	t.Run("follow", func(t *testing.T) { liveFollow(t, f) })
	t.Run("exec", func(t *testing.T) { liveExec(t, f) })
	t.Run("objects", func(t *testing.T) { liveObjects(t, f) })
	t.Run("events", func(t *testing.T) { liveEvents(t, f) })
	t.Run("lost cluster", func(t *testing.T) {
		f.near.agent.Kill()
		testkit.Eventually(t, patience, func(context.Context) error {
			out, err := f.run(t, "logs", "web", "--tail", "1")
			if err != nil || !strings.Contains(out, "Warning: the cluster of agent berlin cannot be read") || !strings.Contains(out, "paris "+f.far.pod+" | ") {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		})
	})
}

func liveLogs(t *testing.T, f *liveFleet) {
	berlin, paris := "berlin "+f.near.pod+" | ", "paris "+f.far.pod+" | "
	f.prints(t, berlin+"one\n"+paris+"two\n"+berlin+"three\n", "logs", "web")
	f.prints(t, paris+"two\n"+berlin+"three\n", "logs", "web", "--tail", "1", "--grep", "t(w|h)")
	f.prints(t, berlin+"2026-11-17T10:00:03Z three\n", "logs", "web", "--since", "2026-11-17T10:00:03Z", "--timestamps", "-c", "web")
	f.says(t, "has restarted", "logs", "web", "--previous")
	for _, c := range []liveCluster{f.far} {
		c.log(t, f.ns, c.pod+".previous", "2026-11-17T09:00:00Z crashed\n")
		c.Kubectl(t, "-n", f.ns, "patch", "pod", c.pod, "--subresource=status", "--type=json", "-p",
			`[{"op":"add","path":"/status/containerStatuses/0/lastState","value":{"terminated":{"exitCode":1}}}]`)
	}
	f.prints(t, paris+"crashed\n", "logs", "web", "--previous")
}

// liveFollow sees new lines and new pods.
func liveFollow(t *testing.T, f *liveFleet) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	cmd := f.ada.kedge(ctx, f.testServer, "logs", "web", "--follow", "--agent", "paris")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	want := func(pod, text string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != "paris "+pod+" | "+text {
			t.Fatalf("printed %q, want %q of %s", lines.Text(), text, pod)
		}
	}
	want(f.far.pod, "two")
	f.far.log(t, f.ns, f.far.pod, "2026-11-17T10:00:05Z five\n")
	want(f.far.pod, "five")
	f.far.Kubectl(t, "-n", f.ns, "scale", "deployment", "web", "--replicas=2")
	var pod string
	testkit.Eventually(t, patience, func(context.Context) error {
		for _, name := range strings.Fields(f.far.Kubectl(t, "-n", f.ns, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")) {
			if name != "stranger" && name != f.far.pod {
				pod = name
				return nil
			}
		}
		return fmt.Errorf("no new pod")
	})
	f.far.log(t, f.ns, pod, "2026-11-17T10:00:06Z six\n")
	want(pod, "six")
}

func liveExec(t *testing.T, f *liveFleet) {
	script := []string{"--", "sh", "-c", "echo out; echo err >&2; cat; exit 7"}
	var out, errs bytes.Buffer
	cmd := f.ada.kedge(t.Context(), f.testServer, append([]string{"exec", "web", "--agent", "berlin", "-i"}, script...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input\n"), &out, &errs
	if err := cmd.Run(); exitCode(err) != 7 || out.String() != "out\ninput\n" || errs.String() != "err\n" {
		t.Errorf("%v: %q, %q", err, out.String(), errs.String())
	}
	f.prints(t, "hello\n", "exec", "web", "--agent", "paris", "--pod", f.far.pod, "-c", "web", "--", "echo", "hello")
	f.says(t, "is in 2 clusters: berlin, paris", "exec", "web", "--", "true")
	f.says(t, `has no pod "stranger" there`, "exec", "web", "--agent", "paris", "--pod", "stranger", "--", "true")
	f.says(t, "no running pod there with such a container", "exec", "web", "--agent", "paris", "-c", "sidecar", "--", "true")
	auditedInKedge(t, f.testServer, "kube.get", `pods/exec `+f.ns+`/`+f.near.pod+`: begins, command ["sh" "-c" "echo out; echo err >&2; cat; exit 7"]`)

	// A read-only rule allows logs, and no commands.
	bob := newKubeUser(t, f.testServer, "bob", "admin", "paris")
	allow(t, f.testServer, "bob", "bob", true)
	if out, err := bob.kedge(t.Context(), f.testServer, "logs", "web", "--tail", "1", "--agent", "berlin").CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "| three\n") {
		t.Errorf("%v\n%s", err, out)
	}
	got, err := bob.kedge(t.Context(), f.testServer, "exec", "web", "--agent", "berlin", "--", "touch", "bob").CombinedOutput()
	if exitCode(err) != 1 || !strings.Contains(string(got), "read-only") {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := os.Stat(filepath.Join(f.near.dir, "bob")); err == nil {
		t.Error("the command ran")
	}
}

// liveObjects shows objects without the values of Secrets.
func liveObjects(t *testing.T, f *liveFleet) {
	f.near.Kubectl(t, "-n", f.ns, "annotate", "secret", "key", `kubectl.kubernetes.io/last-applied-configuration={"stringData":{"password":"open-sesame"}}`)
	got, err := f.run(t, "get", "objects", "web", "--no-headers")
	if lines := strings.Split(strings.TrimSpace(got), "\n"); err != nil || len(lines) != 4 || strings.Count(got, " Present ") != 4 {
		t.Errorf("%v\n%s", err, got)
	}
	for _, args := range [][]string{{"get", "objects", "web", "Secret/key", "--agent", "berlin", "-o", "yaml"}, {"get", "objects", "web", "-o", "json"}, {"describe", "object", "web", "secret/key"}} {
		got, err := f.run(t, args...)
		if err != nil || !strings.Contains(got, "(hidden)") || strings.Contains(got, "sesame") || strings.Contains(got, "b3Blbi1zZXNhbWU") {
			t.Errorf("kedge %s: %v\n%s", strings.Join(args, " "), err, got)
		}
	}
	f.prints(t, "web", "get", "objects", "web", "deployment/web", "--agent", "paris", "-o", "jsonpath={.spec.template.spec.containers[0].name}")
	got, err = f.run(t, "describe", "object", "web", "Deployment/web", "--agent", "paris")
	if err != nil || !strings.Contains(got, "kind: Deployment") || !strings.Contains(got, "ScalingReplicaSet") {
		t.Errorf("%v\n%s", err, got)
	}
	f.says(t, `has no object "Pod/stranger"`, "describe", "object", "web", "Pod/stranger")

	// The RBAC of the cluster decides for each object: the ClusterRole view has no Secrets.
	eve := newKubeUser(t, f.testServer, "eve", "viewer", "paris")
	allow(t, f.testServer, "eve", "eve", false)
	bind(t, f.far.Cluster, "kedge-live-view", "viewer", "view")
	out, err := eve.kedge(t.Context(), f.testServer, "get", "objects", "web", "--agent", "paris").CombinedOutput()
	if err != nil || strings.Count(string(out), " Present ") != 1 || !strings.Contains(string(out), `Unreadable`) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = eve.kedge(t.Context(), f.testServer, "describe", "object", "web", "Secret/key", "--agent", "paris").CombinedOutput()
	if exitCode(err) != 1 || !strings.Contains(string(out), `secrets "key" is forbidden: User "kedge:token:default:eve"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func liveEvents(t *testing.T, f *liveFleet) {
	emit := func(name, object, message string) {
		f.far.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Event
metadata: {name: %[1]s, namespace: %[2]s}
involvedObject: {apiVersion: v1, kind: Pod, namespace: %[2]s, name: %[3]s, uid: %[4]s}
type: Warning
reason: Tested
message: %[5]s
lastTimestamp: "2026-11-17T10:00:00Z"
`, name, f.ns, object, f.far.Kubectl(t, "-n", f.ns, "get", "pod", object, "-o", "jsonpath={.metadata.uid}"), message))
	}
	emit("ours", f.far.pod, "first")
	emit("theirs", "stranger", "not ours")
	got, err := f.run(t, "events", "web", "--live")
	if err != nil || !strings.Contains(got, "first") || strings.Contains(got, "not ours") || !strings.Contains(got, "ScalingReplicaSet") || !strings.Contains(got, "berlin") || !strings.Contains(got, "SuccessfulCreate") {
		t.Errorf("%v\n%s", err, got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	cmd := f.ada.kedge(ctx, f.testServer, "events", "web", "--live", "--follow", "--agent", "paris")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("no event %q", text)
	}
	until("first")
	emit("later", f.far.pod, "second")
	until("second")
}
