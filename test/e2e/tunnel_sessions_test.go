package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// kubeletProgram builds the kubelet that serves the sessions of simulated nodes.
var kubeletProgram = sync.OnceValues(func() (string, error) {
	root, err := testkit.ModuleRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "kedge-kubelet-*")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "kubelet")
	cmd := exec.Command("go", "build", "-o", program, "./cmd/kubelet")
	cmd.Dir, cmd.Env = filepath.Join(root, "hack", "kube"), append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the kubelet: %w\n%s", err, out)
	}
	return program, nil
})

// startNode adds a node to a cluster whose kubelet serves sessions, and a pod on it. It returns the folder of the pod.
func startNode(tb testing.TB, cluster *testkit.Cluster, ns string) (dir string) {
	tb.Helper()
	dir = startKubelet(tb, cluster, "sessions")
	cluster.Apply(tb, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: %s}
spec:
  nodeName: sessions
  containers: [{name: web, image: web, stdin: true}]
  tolerations: [{operator: Exists}]
`, ns))
	cluster.Kubectl(tb, "-n", ns, "wait", "pod", "web", "--for=condition=Ready", "--timeout=60s")
	return dir
}

// startKubelet adds a node to a cluster whose kubelet serves sessions. It returns the folder of its commands and logs. Only
// pods that name the node are on it.
func startKubelet(tb testing.TB, cluster *testkit.Cluster, node string) (dir string) {
	tb.Helper()
	program, err := kubeletProgram()
	if err != nil {
		tb.Fatal(err)
	}
	dir = tb.TempDir()
	cmd := exec.Command(program, "-dir", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	cluster.Apply(tb, fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s}
spec: {taints: [{key: sessions, effect: NoSchedule}]}
`, node))
	tb.Cleanup(func() { _, _ = cluster.TryKubectl(tb, "delete", "node", node) })
	cluster.Kubectl(tb, "patch", "node", node, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, strings.TrimSpace(port)))
	return dir
}

// covers: P1
func TestSessionsThroughTheTunnel(t *testing.T) {
	t.Parallel()
	cluster := testkit.StartCluster(t)
	s := startServer(t, "--tls-host", "localhost")
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "sessions", Tunnel: true})
	bind(t, cluster, "kedge-admins", "admin", "cluster-admin")
	dir := startNode(t, cluster, ns)
	ada := newKubeUser(t, s, "ada", "admin", "sessions")
	allow(t, s, "ada", "ada", false)
	old := filepath.Join(testkit.OldKubectlDir(t), "kubectl")
	for _, client := range []struct{ name, kubectl, sockets string }{
		{"websockets", ada.kubectl, "true"},
		{"spdy", ada.kubectl, "false"},
		{"older kubectl", old, "false"},
		{"older kubectl, websockets", old, "true"},
	} {
		t.Run(client.name, func(t *testing.T) {
			u := *ada
			u.kubectl, u.env = client.kubectl, []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + client.sockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS=" + client.sockets}
			t.Run("exit code", func(t *testing.T) { execExitCode(t, &u, ns) })
			t.Run("input", func(t *testing.T) { execInput(t, &u, ns) })
			t.Run("copy", func(t *testing.T) { copyFiles(t, &u, ns, dir) })
			t.Run("attach", func(t *testing.T) { attach(t, &u, ns) })
			t.Run("port-forward", func(t *testing.T) { forwardPort(t, &u, ns) })
			t.Run("logs", func(t *testing.T) { followLogs(t, &u, ns, dir) })
		})
	}
	auditedInKedge(t, s, "kube.get", `pods/exec `+ns+`/web: begins, command ["sh" "-c" "echo out; echo err >&2; exit 3"]`)
}

func execExitCode(t *testing.T, u *kubeUser, ns string) {
	var out, errs bytes.Buffer
	cmd := u.command(t.Context(), "-n", ns, "exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); exitCode(err) != 3 || out.String() != "out\n" || !strings.HasPrefix(errs.String(), "err\n") {
		t.Errorf("%v: %q, %q", err, out.String(), errs.String())
	}
}

// execInput sends input to a command. The end of the input ends the command.
func execInput(t *testing.T, u *kubeUser, ns string) {
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	cmd := u.command(t.Context(), "-n", ns, "exec", "-i", "web", "--", "cat")
	cmd.Stdin = bytes.NewReader(sent)
	if got, err := cmd.Output(); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%v: got %d of %d bytes", err, len(got), len(sent))
	}
}

func copyFiles(t *testing.T, u *kubeUser, ns, dir string) {
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	local := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(local, sent, 0o600); err != nil {
		t.Fatal(err)
	}
	u.run(t, "-n", ns, "cp", local, "web:copied")
	if got, err := os.ReadFile(filepath.Join(dir, "copied")); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("into the pod: %v, %d of %d bytes", err, len(got), len(sent))
	}
	u.run(t, "-n", ns, "cp", "web:copied", local+".back")
	if got, err := os.ReadFile(local + ".back"); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("out of the pod: %v, %d of %d bytes", err, len(got), len(sent))
	}
}

func attach(t *testing.T, u *kubeUser, ns string) {
	cmd := u.command(t.Context(), "-n", ns, "attach", "-i", "web")
	cmd.Stdin = strings.NewReader("hello\n")
	if got, err := cmd.Output(); err != nil || !strings.Contains(string(got), "attached\nhello\n") {
		t.Errorf("%v: %q", err, got)
	}
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) ->`)

func forwardPort(t *testing.T, u *kubeUser, ns string) {
	page := bytes.Repeat([]byte("page"), 64<<10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	defer web.Close()
	_, port, _ := net.SplitHostPort(web.Listener.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	cmd := u.command(ctx, "-n", ns, "port-forward", "pod/web", ":"+port)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line, _ := bufio.NewReader(out).ReadString('\n')
	found := forwarding.FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("kubectl port-forward says %q", line)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			resp, err := http.Get("http://" + found[1])
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, page) {
				t.Errorf("%v: got %d of %d bytes", err, len(got), len(page))
			}
		})
	}
	all.Wait()
}

func followLogs(t *testing.T, u *kubeUser, ns, dir string) {
	file, err := os.Create(filepath.Join(dir, ns+"_web.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, _ = file.WriteString("one\n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	cmd := u.command(ctx, "-n", ns, "logs", "-f", "web")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	for _, want := range []string{"one", "two"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the log says %q, want %q", lines.Text(), want)
		}
		_, _ = file.WriteString("two\n")
	}
}
