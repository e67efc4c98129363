package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

const floorRuns = 15

// pushFloor is the minimum cost of a push: a bare git fetch of one small commit, and the raw server-side-apply
// PATCHes of its objects, four at a time on warm connections.
func (r *rigging) pushFloor(ctx context.Context, kube dynamic.Interface, git *gitserver.Server, name string, repo *gitserver.Repo) (time.Duration, error) {
	fetch, err := r.fetchFloor(ctx, git.URL(name), repo)
	if err != nil {
		return 0, err
	}
	patch, err := patchFloor(ctx, kube, name)
	if err != nil {
		return 0, err
	}
	for _, res := range []result{
		fetch.percentile("B1.floor.git_fetch."+name, 50, 0),
		patch.percentile("B1.floor.4_patches."+name, 50, 0),
	} {
		if err := r.report(res); err != nil {
			return 0, err
		}
	}
	return fetch.at(50) + patch.at(50), nil
}

func (r *rigging) fetchFloor(ctx context.Context, url string, repo *gitserver.Repo) (samples, error) {
	dir, err := r.subdir("floor-")
	if err != nil {
		return nil, err
	}
	if err := bareGit(ctx, dir, "clone", "--quiet", "--bare", url, "."); err != nil {
		return nil, err
	}
	var out samples
	for n := range floorRuns {
		// Outside every app, so that it affects none of them.
		if _, err := repo.CommitAndPush(ctx, map[string]string{"floor.txt": fmt.Sprint(n)}, "floor"); err != nil {
			return nil, err
		}
		started := time.Now()
		if err := bareGit(ctx, dir, "fetch", "--quiet", "origin", "+refs/heads/main:refs/heads/floor"); err != nil {
			return nil, err
		}
		out = append(out, time.Since(started))
	}
	return out, nil
}

func bareGit(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

func patchFloor(ctx context.Context, kube dynamic.Interface, namespace string) (samples, error) {
	var out samples
	for n := range floorRuns + 1 {
		started := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for i := range objectsPerApp {
			g.Go(func() error {
				o := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "ConfigMap",
					"metadata": map[string]any{"name": fmt.Sprintf("floor-%d", i), "namespace": namespace},
					"data":     map[string]any{"value": fmt.Sprint(n)},
				}}
				_, err := kube.Resource(configMaps).Namespace(namespace).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "floor"})
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		if n > 0 { // the first one warms the connections
			out = append(out, time.Since(started))
		}
	}
	return out, nil
}

// reportMemory sums the memory of our processes, with shared pages counted once.
func (r *rigging) reportMemory(name string, processes ...*rig.Process) error {
	var total float64
	for _, p := range processes {
		kib, err := pss(p.PID())
		if err != nil {
			return err
		}
		total += kib / 1024
	}
	return r.report(result{Name: name, Value: total, Unit: "MiB", Runs: 1, Min: total, Max: total})
}

// pss is the proportional set size of a process in KiB.
func pss(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "Pss: %f kB", &kib); err == nil {
			return kib, nil
		}
	}
	return 0, fmt.Errorf("no Pss in the memory map of process %d", pid)
}
