package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// largeLog is more than everything that the programs and connections between a pod and its reader could store.
const largeLog = 100 << 20

// One reader of a large log reads all of it again and again, another one does not read at all. Commits arrive meanwhile as they
// do without them.
// covers: P11
func TestLargeTransfersDelayNoSync(t *testing.T) {
	t.Parallel()
	cluster, repo := testkit.StartCluster(t), newRepo(t)
	s := startServer(t, "--tls-host", "localhost", "--git-poll-interval", "1s")
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "busy", Tunnel: true})
	bind(t, cluster, "kedge-admins", "admin", "cluster-admin")
	file := filepath.Join(startNode(t, cluster, ns), ns+"_web.log")
	if err := os.WriteFile(file, bytes.Repeat([]byte(strings.Repeat("x", 1023)+"\n"), largeLog/1024), 0o600); err != nil {
		t.Fatal(err)
	}
	ada := newKubeUser(t, s, "ada", "admin", "busy")
	allow(t, s, "ada", "ada", false)
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Namespace: ns, Source: apiv1.Source{RepoURL: repo.url}})
	n := 0
	sync := func() time.Duration {
		t.Helper()
		began := time.Now()
		n++
		s.awaitDeployment(t, "app", healthyAt(repo.push(t, map[string]string{"cm.yaml": configMap(ns, "cm", fmt.Sprint(n))}), 1))
		return time.Since(began)
	}
	sync()
	without := median(sync)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	unread := openLog(ctx, t, ada, ns)
	var transferred atomic.Int64
	done := readLogs(ctx, t, ada, ns, &transferred)
	testkit.Eventually(t, patience, func(context.Context) error {
		if transferred.Load() == 0 {
			return fmt.Errorf("nothing is transferred")
		}
		return nil
	})
	before := transferred.Load()
	with := median(sync)
	t.Logf("a commit arrives in %v, beside transfers in %v; %d MiB were transferred meanwhile", without, with, (transferred.Load()-before)>>20)
	if transferred.Load() == before {
		t.Error("nothing was transferred meanwhile")
	}
	if limit := 4*without + 2*time.Second; with > limit { // the transfers use the same processors
		t.Errorf("a commit arrives in %v beside transfers, and in %v without: want at most %v", with, without, limit)
	}
	if got, err := io.CopyN(io.Discard, unread, 64<<20); err != nil {
		t.Errorf("%d bytes of the log that was not read arrive: %v", got, err)
	}
	cancel()
	<-done
}

// median runs f five times.
func median(f func() time.Duration) time.Duration {
	var all []time.Duration
	for range 5 {
		all = append(all, f())
	}
	slices.Sort(all)
	return all[2]
}

// openLog opens the log of the pod.
func openLog(ctx context.Context, tb testing.TB, u *kubeUser, ns string) io.Reader {
	tb.Helper()
	cmd := u.command(ctx, "-n", ns, "logs", "web")
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return out
}

// readLogs reads the log of the pod again and again until ctx ends.
func readLogs(ctx context.Context, tb testing.TB, u *kubeUser, ns string, n *atomic.Int64) (done <-chan struct{}) {
	tb.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			cmd := u.command(ctx, "-n", ns, "logs", "web")
			cmd.Stdout = counter{n}
			_ = cmd.Run()
		}
	}()
	return ended
}

// counter counts bytes.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
