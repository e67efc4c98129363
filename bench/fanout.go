package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// benchFanOut is B6: one commit to many agents, the real link client each, applying in memory in a
// process of their own.
func benchFanOut(ctx context.Context, r *rigging) error {
	sizes, commits := []int{100, 300, 1000}, 5
	if r.full {
		sizes = append(sizes, 10_000)
	}
	var medians []float64
	for _, n := range sizes {
		median, err := r.fanOutRound(ctx, n, commits)
		if err != nil {
			return fmt.Errorf("with %d agents: %w", n, err)
		}
		medians = append(medians, median)
	}
	last := len(sizes) - 1
	growth := math.Log(medians[last]/medians[0]) / math.Log(float64(sizes[last])/float64(sizes[0]))
	return r.report(result{Name: "B6.growth_exponent", Value: growth, Unit: "", Runs: len(sizes), Min: growth, Max: growth})
}

func (r *rigging) fanOutRound(ctx context.Context, n, commits int) (float64, error) {
	f, err := r.newFanOut(ctx, n)
	if err != nil {
		return 0, err
	}
	defer f.stop()
	if err := r.reportIdle(f); err != nil {
		return 0, err
	}
	var all, shown samples
	for i := range commits {
		delivered, visible, err := f.commit(ctx, i)
		if err != nil {
			return 0, err
		}
		all, shown = append(all, delivered), append(shown, visible)
	}
	for _, res := range []result{
		all.percentile(fmt.Sprintf("B6.%d_agents.delivered", n), 50, 0),
		shown.percentile(fmt.Sprintf("B6.%d_agents.status_visible", n), 50, 0),
	} {
		if err := r.report(res); err != nil {
			return 0, err
		}
	}
	return ms(all.at(50)), nil
}

// fanOut is a server with many simulated agents and one deployment for all of them.
type fanOut struct {
	*pusher
	n       int
	agents  *rig.Process
	applied chan appliedLine
	before  float64 // memory of the server without agents, KiB
}

type appliedLine struct {
	digest string
	at     time.Time
}

func (r *rigging) newFanOut(ctx context.Context, n int) (*fanOut, error) {
	name := fmt.Sprintf("b6-%d", n)
	git, err := r.git()
	if err != nil {
		return nil, err
	}
	dir, err := r.subdir("clone-")
	if err != nil {
		return nil, err
	}
	repo, err := git.CreateRepo(ctx, name, dir)
	if err != nil {
		return nil, err
	}
	// The own CA: idle memory is promised with TLS.
	server, err := r.server(ctx, "--git-poll-interval=10m", "--tls-host=localhost")
	if err != nil {
		return nil, err
	}
	f := &fanOut{pusher: &pusher{name: name, apps: 1, repo: repo, git: git, server: server}, n: n, applied: make(chan appliedLine, 100)}
	if err := r.enrollMany(ctx, f); err != nil {
		return nil, err
	}
	files := map[string]string{}
	f.files(0, "first", files)
	if _, err := repo.CommitAndPush(ctx, files, "first"); err != nil {
		return nil, err
	}
	req := apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: git.URL(name), Path: "apps/0000"}}
	if err := server.Call(ctx, http.MethodPost, rig.TenantPath+"/deployments", req, nil); err != nil {
		return nil, err
	}
	if _, err := f.awaitApplied(ctx, ""); err != nil {
		return nil, err
	}
	return f, f.installHook(ctx)
}

// enrollMany makes the agents and starts them, and waits until all are connected.
func (r *rigging) enrollMany(ctx context.Context, f *fanOut) error {
	tokens, err := r.subdir("tokens-")
	if err != nil {
		return err
	}
	for i := range f.n {
		var e apiv1.Enrollment
		name := fmt.Sprintf("agent-%05d", i)
		if err := f.server.Call(ctx, http.MethodPost, rig.TenantPath+"/agents", apiv1.EnrollAgent{Name: name}, &e); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tokens, name), []byte(e.Token), 0o600); err != nil {
			return err
		}
	}
	if f.before, err = pss(f.server.PID()); err != nil {
		return err
	}
	address := strings.NewReplacer("https://", "grpcs://", "http://", "grpc://").Replace(f.server.URL)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), r.program("simagents"), "--server-address", address, "--token-dir", tokens, "--ca-cert-file", f.server.CAFile)
	out, in := io.Pipe()
	cmd.Stdout = in
	if f.agents, err = rig.Start("simagents", cmd, os.Stderr); err != nil {
		return err
	}
	connected := make(chan struct{})
	go f.read(out, connected)
	select {
	case <-connected:
		return nil
	case <-f.agents.Done():
		return f.agents.Ended()
	case <-time.After(5 * time.Minute):
		return errors.New("not all agents are connected after 5 minutes")
	}
}

func (f *fanOut) stop() {
	_ = f.agents.Stop()
	_ = f.server.Stop()
}

// read takes the lines of the simulated fleet.
func (f *fanOut) read(out io.Reader, connected chan<- struct{}) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var n int
		var digest string
		var nanos int64
		if _, err := fmt.Sscanf(lines.Text(), "connected %d", &n); err == nil && n == f.n {
			close(connected)
		}
		if _, err := fmt.Sscanf(lines.Text(), "applied %s %d %d", &digest, &n, &nanos); err == nil && n == f.n {
			f.applied <- appliedLine{digest: digest, at: time.Unix(0, nanos)}
		}
	}
}

// awaitApplied waits until every agent holds a digest other than the one before.
func (f *fanOut) awaitApplied(ctx context.Context, before string) (appliedLine, error) {
	for {
		select {
		case line := <-f.applied:
			if line.digest != before {
				return line, nil
			}
		case <-ctx.Done():
			return appliedLine{}, ctx.Err()
		case <-time.After(5 * time.Minute):
			return appliedLine{}, errors.New("not all agents hold the commit after 5 minutes")
		}
	}
}

// commit pushes a change and returns how long it took until every agent held it, and until every
// target read Synced at the server.
func (f *fanOut) commit(ctx context.Context, i int) (delivered, visible time.Duration, err error) {
	files := map[string]string{}
	f.files(0, fmt.Sprintf("commit-%d", i), files)
	if _, err := f.repo.CommitAndPush(ctx, files, "change"); err != nil {
		return 0, 0, err
	}
	accepted := <-f.pushed
	line, err := f.awaitApplied(ctx, "")
	if err != nil {
		return 0, 0, err
	}
	if err := f.awaitVisible(ctx, line.digest); err != nil {
		return 0, 0, err
	}
	return line.at.Sub(accepted), time.Since(accepted), nil
}

// awaitVisible asks the server until the deployment reads Synced and Current at the digest.
func (f *fanOut) awaitVisible(ctx context.Context, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var list apiv1.List[apiv1.Deployment]
		if err := f.server.Call(ctx, http.MethodGet, rig.TenantPath+"/deployments", nil, &list); err != nil {
			return err
		}
		if d := list.Items[0]; d.Digest == digest && d.Sync == "Synced" && d.Health == "Current" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// reportIdle is the memory that an idle agent costs the server, with TLS. Right after the start most
// of it is garbage of the handshakes, which an idle Go program collects every two minutes.
func (r *rigging) reportIdle(f *fanOut) error {
	if r.settle == 0 {
		return nil
	}
	time.Sleep(r.settle) //nolint:forbidigo // being idle for a while is what is measured
	kib, err := pss(f.server.PID())
	if err != nil {
		return err
	}
	each := (kib - f.before) / float64(f.n)
	return r.report(result{Name: fmt.Sprintf("B6.%d_agents.server_memory_per_agent", f.n), Value: each, Unit: "KiB", Runs: 1, Min: each, Max: each})
}
