package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// network is a network namespace with one cable to this one, and no route to anywhere else.
type network struct{ name, inside, outside string }

// newNetwork creates a network, or skips the test if that is not possible. It is removed at the end.
func newNetwork(tb testing.TB) network {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("making a network namespace needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		tb.Skip("making a network namespace needs the program ip of iproute2")
	}
	id := strings.ToLower(rand.Text()[:8])
	n := network{name: "kedge-e2e-" + id}
	near, far := "kdg-"+id+"-n", "kdg-"+id+"-f"
	n.outside, n.inside = freeSubnet(tb)
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		tb.Skipf("making a network namespace is refused here: %v: %s", err, out)
	}
	tb.Cleanup(func() {
		// Removing the namespace removes its end of the cable and thereby the other one; an interrupted test
		// has only one of them.
		_ = exec.Command("ip", "link", "del", near).Run()
		if out, err := exec.Command("ip", "netns", "del", n.name).CombinedOutput(); err != nil {
			tb.Errorf("removing network namespace %s: %v: %s", n.name, err, out)
		}
	})
	for _, command := range []string{
		"link add " + near + " type veth peer name " + far,
		"link set " + far + " netns " + n.name,
		"addr add " + n.outside + "/30 dev " + near,
		"link set " + near + " up",
		"-n " + n.name + " addr add " + n.inside + "/30 dev " + far,
		"-n " + n.name + " link set " + far + " up",
		"-n " + n.name + " link set lo up",
	} {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			tb.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	return n
}

// freeSubnet returns the two addresses of a /30 that no interface of this machine is in.
func freeSubnet(tb testing.TB) (one, two string) {
	tb.Helper()
	taken, err := net.InterfaceAddrs()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		var b [2]byte
		_, _ = rand.Read(b[:]) // never fails
		first := net.IPv4(10, 203, b[0], b[1]&^3|1)
		free := true
		for _, a := range taken {
			if own, ok := a.(*net.IPNet); ok && own.Contains(first) {
				free = false
			}
		}
		if free {
			return first.String(), net.IPv4(10, 203, b[0], b[1]&^3|2).String()
		}
	}
}

// enter runs a command inside, without environment variables that could lead it to a cluster.
func (n network) enter(cmd *exec.Cmd) *exec.Cmd {
	inside := exec.Command("ip", append([]string{"netns", "exec", n.name}, cmd.Args...)...)
	inside.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}
	return inside
}

// cutOff fails the test unless the API server, which answers here, is out of reach from inside.
func (n network) cutOff(tb testing.TB, c *testkit.Cluster) {
	tb.Helper()
	c.Kubectl(tb, "get", "--raw", "/livez")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(c.URL(), "https://"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", n.outside} {
		kubectl := exec.Command(filepath.Join(testkit.KubeBinDir(tb), "kubectl"), "--kubeconfig", c.Kubeconfig(),
			"--server", "https://"+net.JoinHostPort(host, port), "--tls-server-name", "127.0.0.1", "--request-timeout", "10s", "get", "--raw", "/livez")
		out, err := n.enter(kubectl).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "refused") {
			tb.Errorf("the API server at %s:%s is not out of reach from inside: %v: %s", host, port, err, out)
		}
	}
}

// holds fails the test unless the process is in the namespace.
func (n network) holds(tb testing.TB, pid int) {
	tb.Helper()
	space, err := os.Stat("/run/netns/" + n.name)
	if err != nil {
		tb.Fatal(err)
	}
	its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		tb.Fatal(err)
	}
	if !os.SameFile(space, its) {
		tb.Fatalf("process %d is not in network namespace %s", pid, n.name)
	}
}

// covers: C1, C2 (gRPC with TLS), C3
func TestServerWithoutARouteToTheClusterDeploysToIt(t *testing.T) {
	t.Parallel()
	cluster, repo, network := testkit.SharedCluster(t), newRepo(t), newNetwork(t)
	ns := cluster.Namespace(t)
	network.cutOff(t, cluster)
	// The repository is a folder: the Git server listens on the loopback of this side.
	source := apiv1.Source{RepoURL: repo.server.FileURL(repo.name), Path: "app"}
	s := &testServer{dir: t.TempDir(), args: []string{"--git-allow=file", "--git-poll-interval=500ms"}, wrap: network.enter}
	s.startAt(t, net.JoinHostPort(network.inside, "0"))
	network.holds(t, s.PID())

	a := enroll(t, s, cluster, apiv1.EnrollAgent{Name: "behind-a-wall"})
	if address := a.flag(t, "server-address"); !strings.HasPrefix(address, "grpcs://"+network.inside+":") {
		t.Errorf("the manifest leads to %s, not to the server by gRPC with TLS", address)
	}
	if carried, err := os.ReadFile(a.flag(t, "ca-cert-file")); err != nil || !sameFile(t, carried, s.CAFile) {
		t.Errorf("the manifest does not carry the server's CA: %v", err)
	}

	first := repo.push(t, map[string]string{"app/a.yaml": configMap(ns, "a", "one"), "app/b.yaml": configMap(ns, "b", "one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "walled", Source: source})
	s.awaitDeployment(t, "walled", healthyAt(first, 1))
	cluster.Kubectl(t, "-n", ns, "patch", "configmap", "a", "--type=merge", "-p", `{"data":{"value":"edited"}}`)
	s.awaitEvent(t, "DriftHealed", ns+"/a")
	shows(t, cluster, "one", "-n", ns, "get", "configmap", "a", "-o", "jsonpath={.data.value}")
	second := repo.push(t, map[string]string{"app/a.yaml": configMap(ns, "a", "two"), "app/b.yaml": gitserver.Deleted})
	s.awaitDeployment(t, "walled", healthyAt(second, 1))
	shows(t, cluster, "two", "-n", ns, "get", "configmap", "a", "-o", "jsonpath={.data.value}")
	testkit.Eventually(t, patience, func(context.Context) error {
		out, err := cluster.TryKubectl(t, "-n", ns, "get", "configmap", "b", "--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("not pruned: %q", out)
		}
		return err
	})
	if out, err := s.kedge(t, "get", "agents", "--ca-file", s.CAFile); err != nil || !strings.Contains(out, "Connected") {
		t.Errorf("kedge get agents: %v\n%s", err, out)
	}
	checkNoClusterCredential(t, s, a, ns)
	network.cutOff(t, cluster) // as it was at the beginning
}

func sameFile(tb testing.TB, content []byte, file string) bool {
	tb.Helper()
	other, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.Equal(bytes.TrimSpace(content), bytes.TrimSpace(other))
}

// checkNoClusterCredential searches all data of the server. known must be found, so that a search that reads
// nothing is noticed.
func checkNoClusterCredential(tb testing.TB, s *testServer, a *testAgent, known string) {
	tb.Helper()
	token, err := os.ReadFile(filepath.Join(filepath.Dir(a.flag(tb, "kubeconfig")), "serviceaccount-token"))
	if err != nil {
		tb.Fatal(err)
	}
	header, rest, _ := strings.Cut(string(token), ".")
	_, signature, ok := strings.Cut(rest, ".")
	if !ok {
		tb.Fatalf("the ServiceAccount's token is no JWT")
	}
	forbidden := map[string]string{
		"a ServiceAccount token":           signature,
		"a token of the cluster":           header,
		"the address of the API server":    strings.TrimPrefix(a.cluster.URL(), "https://"),
		"a kubeconfig":                     "current-context",
		"a client key of a kubeconfig":     "client-key",
		"a client certificate":             "client-certificate",
		"the path of somebody's file":      a.cluster.Kubeconfig(),
		"a ServiceAccount's user name":     "system:serviceaccount:",
		"a file with a token of a cluster": "tokenFile",
	}
	found := false
	err = filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		found = found || bytes.Contains(content, []byte(known))
		for what, text := range forbidden {
			if bytes.Contains(content, []byte(text)) {
				tb.Errorf("the server stores %s in %s", what, entry.Name())
			}
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	if !found {
		tb.Errorf("the search does not find %q: it proves nothing", known)
	}
}
