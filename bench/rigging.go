package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/localcluster"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// rigging has the shared resources of the benchmarks.
type rigging struct {
	options
	dir     string
	machine string
	cluster *localcluster.Cluster // started by the first that needs it
	pg      *pgServer             // likewise
	common  []string              // arguments of every server, once they are made
	closers []func() error
}

func newRigging(o options) (*rigging, error) {
	if o.logDir != "" {
		if err := os.MkdirAll(o.logDir, 0o750); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "kedge-bench-")
	if err != nil {
		return nil, err
	}
	r := &rigging{options: o, dir: dir, machine: machine()}
	r.closers = append(r.closers, func() error { return os.RemoveAll(dir) })
	return r, nil
}

// close undoes everything, last things first.
func (r *rigging) close() error {
	var errs []error
	for i := len(r.closers) - 1; i >= 0; i-- {
		errs = append(errs, r.closers[i]())
	}
	return errors.Join(errs...)
}

func (r *rigging) program(name string) string { return filepath.Join(r.binDir, name) }

// kube returns the cluster and an admin client without a rate limit.
func (r *rigging) kube(ctx context.Context) (dynamic.Interface, error) {
	if r.cluster == nil {
		c, err := localcluster.Start(ctx, localcluster.Config{BinDir: r.kubeBin, Name: "bench", Dir: r.dir})
		if err != nil {
			return nil, err
		}
		r.cluster = c
		r.closers = append(r.closers, c.Stop)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", r.cluster.Kubeconfig())
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(unlimited(cfg))
}

func unlimited(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	return cfg
}

// subdir makes a folder below the benchmark's own.
func (r *rigging) subdir(pattern string) (string, error) { return os.MkdirTemp(r.dir, pattern) }

// server starts a kedge-server with a new database.
func (r *rigging) server(ctx context.Context, args ...string) (*rig.Server, error) {
	dir, err := r.subdir("server-")
	if err != nil {
		return nil, err
	}
	log, err := r.logFile("server.log")
	if err != nil {
		return nil, err
	}
	s, err := rig.StartServer(ctx, rig.ServerConfig{
		Binary: r.program("kedge-server"), Listen: "127.0.0.1:0", DataDir: dir, Args: args, Log: log,
	})
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, s.Stop)
	return s, nil
}

func (r *rigging) logFile(name string) (io.Writer, error) {
	f, err := os.Create(filepath.Join(cmp.Or(r.logDir, r.dir), name))
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, f.Close)
	return f, nil
}

// agent installs an agent into the cluster and starts it; edits change how.
func (r *rigging) agent(ctx context.Context, s *rig.Server, name string, edits ...func(*exec.Cmd)) (*rig.Process, error) {
	c := rig.Cluster{Kubectl: filepath.Join(r.kubeBin, "kubectl"), Kubeconfig: r.cluster.Kubeconfig()}
	if _, err := s.Install(ctx, c, apiv1.EnrollAgent{Name: name}); err != nil {
		return nil, err
	}
	return r.runAgent(ctx, c, name, edits...)
}

// runAgent starts an installed agent; edits change how.
func (r *rigging) runAgent(ctx context.Context, c rig.Cluster, name string, edits ...func(*exec.Cmd)) (*rig.Process, error) {
	dir, err := r.subdir("agent-")
	if err != nil {
		return nil, err
	}
	pod, err := c.Pod(ctx, name, r.program("kedge-agent"), dir)
	if err != nil {
		return nil, err
	}
	log, err := r.logFile("agent-" + name + ".log")
	if err != nil {
		return nil, err
	}
	cmd := pod.Command(context.WithoutCancel(ctx))
	for _, edit := range edits {
		edit(cmd)
	}
	p, err := rig.Start("kedge-agent "+name, cmd, log)
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, p.Stop)
	return p, nil
}

// git starts a Git server over HTTP.
func (r *rigging) git() (*gitserver.Server, error) {
	dir, err := r.subdir("git-")
	if err != nil {
		return nil, err
	}
	s, err := gitserver.Start(dir)
	if err != nil {
		return nil, fmt.Errorf("starting a Git server: %w", err)
	}
	r.closers = append(r.closers, s.Close)
	return s, nil
}

// repository starts a Git server with one repository.
func (r *rigging) repository(ctx context.Context, name string) (*gitserver.Server, *gitserver.Repo, error) {
	git, err := r.git()
	if err != nil {
		return nil, nil, err
	}
	dir, err := r.subdir("clone-")
	if err != nil {
		return nil, nil, err
	}
	repo, err := git.CreateRepo(ctx, name, dir)
	return git, repo, err
}

// pause waits, and returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
