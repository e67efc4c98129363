//go:build linux

package child_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

// attempt is an action that a confined process must not be able to do.
type attempt struct {
	name  string
	alone []sandbox.Mechanism // each of which refuses it by itself
	// always means that it is also refused without any mechanism, because privileges are always dropped.
	always bool
}

const (
	limits, namespaces, root = sandbox.Limits, sandbox.Namespaces, sandbox.Root
	landlock, seccomp        = sandbox.Landlock, sandbox.Seccomp
	secret                   = "secret"
)

func attempts() []attempt {
	type mechanisms = []sandbox.Mechanism
	return []attempt{
		{name: "tcp", alone: mechanisms{seccomp, landlock, namespaces}},
		{name: "udp", alone: mechanisms{seccomp, namespaces}},
		{name: "unix-socket", alone: mechanisms{seccomp, root}},
		{name: "abstract", alone: mechanisms{seccomp, landlock, namespaces}},
		{name: "listen", alone: mechanisms{seccomp}}, // Go listens with MPTCP, which Landlock does not support
		{name: "netlink", alone: mechanisms{seccomp}},
		{name: "dns", alone: mechanisms{seccomp, landlock, root}},
		{name: "read-file", alone: mechanisms{seccomp, landlock, root}},
		{name: "stat", alone: mechanisms{seccomp, root}},
		{name: "list", alone: mechanisms{seccomp, landlock, root}},
		{name: "proc", alone: mechanisms{seccomp, landlock, root}},
		{name: "write", alone: mechanisms{seccomp, landlock, root, limits}},
		{name: "mkdir", alone: mechanisms{seccomp, landlock, root}},
		{name: "chmod", alone: mechanisms{seccomp, root}},
		{name: "unlink", alone: mechanisms{seccomp, landlock, root}},
		{name: "chdir", alone: mechanisms{seccomp, root}},
		{name: "exec", alone: mechanisms{seccomp, landlock, root}},
		{name: "fork", alone: mechanisms{seccomp}},
		{name: "memfd", alone: mechanisms{seccomp}},
		{name: "run-memory", alone: mechanisms{seccomp}},
		{name: "kill", alone: mechanisms{seccomp, landlock, namespaces}},
		{name: "ptrace", alone: mechanisms{seccomp, landlock, namespaces}, always: true},
		{name: "read-memory", alone: mechanisms{seccomp, landlock, namespaces}, always: true},
		{name: "pidfd", alone: mechanisms{seccomp, namespaces}},
		{name: "raise-limit", alone: mechanisms{seccomp, limits}},
		{name: "keyctl", alone: mechanisms{seccomp}},
		{name: "shared-memory", alone: mechanisms{seccomp}},
		{name: "mount", alone: mechanisms{seccomp}, always: true},
		{name: "unshare", alone: mechanisms{seccomp}, always: true},
		{name: "bpf", alone: mechanisms{seccomp}, always: true},
		{name: "io-uring", alone: mechanisms{seccomp}, always: true},
		{name: "userfaultfd", alone: mechanisms{seccomp}, always: true},
		{name: "setuid", alone: mechanisms{seccomp}, always: true},
		{name: "hostname", alone: mechanisms{seccomp}, always: true},
	}
}

// sockets counts abstract sockets, whose names are global.
var sockets atomic.Int64

// argument creates a real target for one attempt.
func argument(t *testing.T, name string) string {
	t.Helper()
	switch name {
	case "tcp":
		return listener(t, "tcp", "127.0.0.1:0")
	case "udp":
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn.LocalAddr().String()
	case "unix-socket":
		dir, err := os.MkdirTemp("", "s") //nolint:usetesting // the path of a socket has to be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return listener(t, "unix", filepath.Join(dir, "s"))
	case "abstract":
		return strings.TrimPrefix(listener(t, "unix", fmt.Sprintf("@kedge-test-%d-%d", os.Getpid(), sockets.Add(1))), "@")
	case "read-file", "stat":
		return "/etc/passwd"
	case "list":
		return "/"
	case "write", "mkdir":
		return filepath.Join(t.TempDir(), "new")
	case "chmod", "unlink":
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	case "kill", "ptrace", "read-memory", "pidfd":
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return fmt.Sprint(cmd.Process.Pid)
	}
	return ""
}

func listener(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// try lets a child attempt something and returns why it failed, or "".
func try(t *testing.T, pool *child.Pool, name string) string {
	t.Helper()
	j := job("tester", name)
	j.Namespace = argument(t, name)
	built, err := pool.Build(t.Context(), j)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(built.Objects) > 0 {
		return ""
	}
	if len(built.Notes) == 0 {
		t.Fatalf("%s: the child has not tried", name)
	}
	return strings.Join(built.Notes, " ")
}

// only disables all but one mechanism and its requirements.
func only(m sandbox.Mechanism) []sandbox.Mechanism {
	return slices.DeleteFunc(sandbox.All(), func(other sandbox.Mechanism) bool {
		return other == m || m == root && other == namespaces
	})
}

// covers: G10
func TestAConfinedChildReachesNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{})
	status, err := pool.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.Problem() != "" {
		t.Logf("this system is not the best one to run this test on: %s", status.Problem())
	}
	if len(status.Open) > 0 {
		t.Errorf("a child says that it reaches %v", status.Open)
	}
	for _, a := range append(attempts(), attempt{name: "exec-self"}, attempt{name: "signal-group"}) {
		if try(t, pool, a.name) == "" {
			t.Errorf("%s: a confined child can do it", a.name)
		}
	}
}

// Each mechanism is tested alone: otherwise a missing one would not be noticed.
func TestEachMechanismAlone(t *testing.T) {
	t.Parallel()
	for _, m := range sandbox.All() {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, child.Config{Off: only(m)})
			status, err := pool.Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if reason, lacks := status.Lacks(m); lacks {
				t.Skipf("this system does not have it: %s", reason)
			}
			for _, a := range attempts() {
				if !slices.Contains(a.alone, m) {
					continue
				}
				if why := try(t, pool, a.name); why == "" {
					t.Errorf("%s: %s alone does not refuse it", a.name, m)
				}
			}
		})
	}
}

// The attempts above succeed without confinement, so they are real.
func TestAttemptsSucceedWithoutASandbox(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{Off: sandbox.All()})
	status, err := pool.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(status.Open, []string{"files", "network"}) && !slices.Equal(status.Open, []string{"files"}) || len(status.Missing) != len(sandbox.All()) {
		t.Errorf("without a sandbox a child reports %+v", status)
	}
	for _, a := range attempts() {
		if a.always {
			continue
		}
		if why := try(t, pool, a.name); why != "" {
			t.Errorf("%s does not work without a sandbox either: %s", a.name, why)
		}
	}
}

// A server may have been started with open files.
func TestNoFileIsInherited(t *testing.T) {
	t.Parallel()
	fd, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, off := range [][]sandbox.Mechanism{nil, sandbox.All()} {
		if why := try(t, newPool(t, child.Config{Off: off}), "inherited"); why == "" {
			t.Errorf("without %v a child reads what its parent had open", off)
		}
	}
}

// As in most containers: the remaining mechanisms work, and the cause is reported.
func TestWithoutNamespaces(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"unshare", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A user namespace that forbids further ones, and thereby the privilege to create any namespace.
	const script = `echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$0"`
	cmd := exec.Command("unshare", "--user", "--map-root-user", "sh", "-c", script, self)
	cmd.Env = append(os.Environ(), proberEnv+"="+program(t, hostilePkg))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("there are no namespaces here to be without: %v\n%s", err, out)
	}
	for _, part := range []string{"[limits landlock seccomp]", "user.max_user_namespaces", "still block files and network"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("%q does not say %q", out, part)
		}
	}
}

func TestARequiredMechanismHasToBeThere(t *testing.T) {
	t.Parallel()
	pool := newPool(t, child.Config{Off: []sandbox.Mechanism{landlock}, Require: []sandbox.Mechanism{seccomp, landlock}})
	if _, err := pool.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "landlock") {
		t.Errorf("probing gives %v", err)
	}
	_, err := pool.Build(t.Context(), job("a", "who"))
	if err == nil || render.IsUserError(err) || !strings.Contains(err.Error(), "landlock") {
		t.Errorf("building gives %v, want a fault that names what is missing", err)
	}
}
