package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
)

// yard is one server, one agent, one repository, and one namespace, for benchmarks of the engine.
type yard struct {
	*pusher
	r     *rigging
	kube  dynamic.Interface
	agent *rig.Process
	meter *meter // between agent and server; nil if nothing is counted
}

func (r *rigging) yard(ctx context.Context, name string) (*yard, error) {
	return r.newYard(ctx, name, false)
}

// newYard creates a yard. With a meter, the traffic between agent and server is counted.
func (r *rigging) newYard(ctx context.Context, name string, metered bool) (*yard, error) {
	kube, err := r.kube(ctx)
	if err != nil {
		return nil, err
	}
	git, repo, err := r.repository(ctx, name)
	if err != nil {
		return nil, err
	}
	server, err := r.server(ctx, "--git-poll-interval=10m", "--api-rate=10000")
	if err != nil {
		return nil, err
	}
	var m *meter
	var edits []func(*exec.Cmd)
	if metered {
		if m, err = newMeter(server.URL); err != nil {
			return nil, err
		}
		r.closers = append(r.closers, m.close)
		edits = append(edits, m.divert)
	}
	agent, err := r.agent(ctx, server, name, edits...)
	if err != nil {
		return nil, err
	}
	if err := makeNamespace(ctx, kube, name); err != nil {
		return nil, err
	}
	// A repository without a commit has nothing to read.
	if _, err := repo.CommitAndPush(ctx, map[string]string{"README": "nothing yet"}, "begin"); err != nil {
		return nil, err
	}
	y := &yard{pusher: &pusher{name: name, repo: repo, git: git, server: server}, r: r, kube: kube, agent: agent, meter: m}
	return y, y.connected(ctx)
}

// connected waits for the agent: its start time is not measured.
func (y *yard) connected(ctx context.Context) error {
	for {
		var a apiv1.Agent
		if err := y.server.Call(ctx, http.MethodGet, rig.TenantPath+"/agents/"+y.name, nil, &a); err != nil {
			return err
		}
		if a.Connected {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func makeNamespace(ctx context.Context, kube dynamic.Interface, name string) error {
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
	_, err := kube.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{})
	return err
}

// deploy creates a deployment of one folder of the repository.
func (y *yard) deploy(ctx context.Context, name, path string) error {
	return y.server.Call(ctx, http.MethodPost, rig.TenantPath+"/deployments?check=false", apiv1.CreateDeployment{
		Name: name, Namespace: y.name, Source: apiv1.Source{RepoURL: y.git.URL(y.name), Path: path},
	}, nil)
}

// yardOf returns a yard with one deployment, of a folder of the same name, and its webhook.
func (r *rigging) yardOf(ctx context.Context, name, folder string) (*yard, error) {
	y, err := r.yard(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := y.deploy(ctx, folder, folder); err != nil {
		return nil, err
	}
	return y, y.installHook(ctx)
}

// commit pushes files, which the webhook announces, and returns when that was accepted.
func (y *yard) commit(ctx context.Context, files map[string]string, message string) (time.Time, error) {
	select {
	case <-y.pushed: // of a push that nobody measured
	default:
	}
	if _, err := y.repo.CommitAndPush(ctx, files, message); err != nil {
		return time.Time{}, err
	}
	return <-y.pushed, nil
}

// stop stops the server and the agent, so that the next benchmark has the whole machine.
func (y *yard) stop() error {
	if err := y.agent.Stop(); err != nil {
		return err
	}
	return y.server.Stop()
}

// costs are the resources that the programs have used so far.
type costs struct{ cpu, memory, agent float64 }

func (y *yard) costs() (c costs, err error) {
	for _, p := range []*rig.Process{y.server.Process, y.agent} {
		kib, err := pss(p.PID())
		if err != nil {
			return c, err
		}
		seconds, err := cpuSeconds(p.PID())
		if err != nil {
			return c, err
		}
		c.cpu, c.memory, c.agent = c.cpu+seconds, c.memory+kib/1024, kib/1024
	}
	return c, nil
}

// cpuSeconds returns the CPU time of a process.
func cpuSeconds(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const user, system, hertz = 11, 12, 100 // fields after the name, which may contain anything
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	var ticks float64
	for _, i := range []int{user, system} {
		n, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return ticks / hertz, nil
}
