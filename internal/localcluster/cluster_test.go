package localcluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/localcluster"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// holdEnv makes this binary start a cluster, print its address, and wait for a signal.
const holdEnv = "KEDGE_TEST_HOLD_CLUSTER"

func TestMain(m *testing.M) {
	if config := os.Getenv(holdEnv); config != "" {
		hold(config)
	}
	testkit.Main(m)
}

func hold(config string) {
	var cfg localcluster.Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		panic(err)
	}
	c, err := localcluster.Start(context.Background(), cfg)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stdout, c.URL())
	select {}
}

func TestClustersRunSideBySideAndStopWithoutTrace(t *testing.T) {
	t.Parallel()
	bin, dir := testkit.KubeBinDir(t), t.TempDir()
	clusters := make([]*localcluster.Cluster, 2)
	var starts sync.WaitGroup
	for i := range clusters {
		starts.Go(func() {
			c, err := localcluster.Start(t.Context(), localcluster.Config{
				BinDir: bin, Dir: dir, Name: fmt.Sprintf("side-%d", i), Nodes: i + 1,
			})
			if err != nil {
				t.Error(err)
				return
			}
			clusters[i] = c
		})
	}
	starts.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if running := processesIn(t, dir); len(running) < 2*5 {
		t.Errorf("the clusters have processes %q, want five each or more", running)
	}
	for i, c := range clusters {
		out, err := exec.Command(filepath.Join(bin, "kubectl"), "--kubeconfig", c.Kubeconfig(),
			"get", "nodes", "--no-headers", "-o", "name").CombinedOutput()
		if got := strings.Fields(string(out)); err != nil || len(got) != i+1 {
			t.Errorf("nodes of %s are %q (%v), want %d", c.Name(), out, err, i+1)
		}
		for range 2 {
			if err := c.Stop(); err != nil {
				t.Errorf("stopping %s: %v", c.Name(), err)
			}
		}
	}
	if err := noTrace(dir, clusters[0].URL()); err != nil {
		t.Error(err)
	}
	if left := processesIn(t, dir); len(left) > 0 {
		t.Errorf("processes %q are left", left)
	}
}

func TestKilledParentLeavesNothing(t *testing.T) {
	t.Parallel()
	bin, dir := testkit.KubeBinDir(t), t.TempDir()
	config, err := json.Marshal(map[string]any{"BinDir": bin, "Dir": dir})
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), holdEnv+"="+string(config))
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("waiting for the cluster: %v", err)
	}
	if running := processesIn(t, dir); len(running) < 5 {
		t.Errorf("the cluster has processes %q, want five or more", running)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed: an error is what is wanted
	testkit.Eventually(t, 10*time.Second, func(context.Context) error {
		if left := processesIn(t, dir); len(left) > 0 {
			return fmt.Errorf("processes %q are left", left)
		}
		return nil
	})
	testkit.Eventually(t, 10*time.Second, func(context.Context) error { return noTrace(dir, strings.TrimSpace(url)) })
}

func TestLostPortIsTriedAgain(t *testing.T) {
	t.Parallel()
	bin, dir := testkit.KubeBinDir(t), t.TempDir()
	var taken net.Listener
	take := func(string) {
		if taken == nil {
			taken = listenFirst(t, dir)
		}
	}
	c, err := localcluster.Start(t.Context(), localcluster.Config{BinDir: bin, Dir: dir, Progress: take})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if strings.HasSuffix(c.URL(), taken.Addr().String()) {
		t.Errorf("the cluster uses %s, which another program uses", c.URL())
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
}

// listenFirst occupies the port that a cluster in dir has chosen and not used yet.
func listenFirst(t *testing.T, dir string) net.Listener {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "kubeconfig"))
	if err != nil || len(files) != 1 {
		t.Fatalf("looking for the kubeconfig: %q, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(content))
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	broken := t.TempDir()
	script := "#!/bin/sh\necho 'no such flag: --everything' >&2\nexit 3\n"
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(filepath.Join(broken, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, binDir, want, reason string
	}{
		{"missing", t.TempDir(), "no such file", "a missing program is reported immediately"},
		{"broken", broken, "no such flag", "a program that ends shows what it wrote, without waiting for a timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, err := localcluster.Start(t.Context(), localcluster.Config{BinDir: tc.binDir, Dir: dir})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q in it", tc.reason, err, tc.want)
			}
			if err := isEmpty(dir); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEndedContextEndsTheStart(t *testing.T) {
	t.Parallel()
	bin, dir := testkit.KubeBinDir(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := localcluster.Start(ctx, localcluster.Config{BinDir: bin, Dir: dir, Progress: func(string) { cancel() }})
	if err == nil {
		t.Error("got no error, want one")
	}
	if err := isEmpty(dir); err != nil {
		t.Error(err)
	}
}

func noTrace(dir, url string) error {
	if conn, err := net.Dial("tcp", strings.TrimPrefix(url, "https://")); err == nil {
		return errors.Join(fmt.Errorf("%s still answers", url), conn.Close())
	}
	return isEmpty(dir)
}

func isEmpty(dir string) error {
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%s still holds %v", dir, left)
	}
	return nil
}

// processesIn returns the command lines of the programs that run in a folder below dir or have it in their
// arguments: those of the clusters there and their watchdogs.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(pids) == 0 {
		t.Skipf("processes cannot be listed here (%v)", err)
	}
	var found []string
	for _, pid := range pids {
		// Both are empty for a process that has ended, whether or not it has been collected.
		cwd, _ := os.Readlink(filepath.Join(pid, "cwd"))
		args, _ := os.ReadFile(filepath.Join(pid, "cmdline"))
		line := strings.ReplaceAll(string(args), "\x00", " ")
		if strings.HasPrefix(cwd, dir+"/") || strings.Contains(line, dir+"/") {
			found = append(found, line)
		}
	}
	return found
}
