package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/cluster"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// maxClusters limits the clusters that are read at the same time. The server limits the open requests of a caller to 100.
const maxClusters = 8

// accessHelp is what to do about a cluster that cannot be read.
const accessHelp = "kedge get access-rules shows who reaches which clusters; the RBAC of the cluster decides what you may read there"

// liveTarget is a cluster of a deployment, to be read through the tunnel of its agent.
type liveTarget struct {
	*cluster.Cluster
	objects []apiv1.Object // of the deployment, in this cluster
	owners  *cluster.Owners
}

// agentsFlag selects the clusters of a deployment.
func agentsFlag(f *pflag.FlagSet, agents *[]string) {
	f.StringArrayVar(agents, "agent", nil, "only the cluster of this agent; may be repeated")
}

// clusterReader reads the clusters of a deployment. One that cannot be read does not stop the others.
type clusterReader struct {
	app        *app
	client     *client.Client
	deployment apiv1.Deployment
	targets    []apiv1.Target

	printing sync.Mutex // of a line
	failing  sync.Mutex
	failed   map[string]error // by agent
}

// clustersOf selects the clusters of a deployment.
func (a *app) clustersOf(ctx context.Context, c *client.Client, deployment string, agents []string) (*clusterReader, error) {
	d, err := c.Deployment(ctx, bareName(deployment, deploymentResource().words()))
	if err != nil {
		return nil, err
	}
	r := &clusterReader{app: a, client: c, deployment: d, failed: map[string]error{}}
	for _, t := range d.Targets {
		if t.DetachedAt.IsZero() && (len(agents) == 0 || slices.Contains(agents, t.Agent)) {
			r.targets = append(r.targets, t)
		}
	}
	for _, agent := range agents {
		if !slices.ContainsFunc(r.targets, func(t apiv1.Target) bool { return t.Agent == agent }) {
			return nil, failure(fmt.Sprintf("deployment %q has no target on agent %q", d.Name, agent), "kedge status "+d.Name)
		}
	}
	if len(r.targets) == 0 {
		return nil, failure(fmt.Sprintf("deployment %q has no target", d.Name), "kedge status "+d.Name)
	}
	return r, nil
}

// open reads what the server knows about a target.
func (r *clusterReader) open(ctx context.Context, t apiv1.Target) (liveTarget, error) {
	if len(t.Objects) == 0 {
		one, err := client.Get[apiv1.Target](ctx, r.client, r.client.In("deployments", r.deployment.Name, "targets", t.Agent))
		if err != nil {
			return liveTarget{}, err
		}
		t.Objects = one.Objects
	}
	in := cluster.New(r.client, t.Agent)
	return liveTarget{Cluster: in, objects: t.Objects, owners: cluster.NewOwners(in, t.Objects)}, nil
}

// each calls read for each cluster, some at the same time.
func (r *clusterReader) each(ctx context.Context, read func(context.Context, liveTarget) error) error {
	var g errgroup.Group
	g.SetLimit(maxClusters)
	for _, t := range r.targets {
		g.Go(func() error {
			target, err := r.open(ctx, t)
			if err == nil {
				err = read(ctx, target)
			}
			if err != nil && ctx.Err() == nil {
				r.fail(t.Agent, err)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in failed
	return r.result(ctx)
}

// fail notes that a cluster cannot be read. If there are others, it says so at once.
func (r *clusterReader) fail(agent string, err error) {
	r.failing.Lock()
	defer r.failing.Unlock()
	if r.failed[agent] == nil && len(r.targets) > 1 {
		r.warn("the cluster of agent %s cannot be read: %v", agent, err)
	}
	r.failed[agent] = err
}

// result is an error if no cluster could be read.
func (r *clusterReader) result(ctx context.Context) error {
	r.failing.Lock()
	defer r.failing.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case len(r.failed) < len(r.targets):
		return nil
	case len(r.targets) == 1:
		agent := r.targets[0].Agent
		return failure(fmt.Sprintf("the cluster of agent %s cannot be read: %v", agent, r.failed[agent]), accessHelp)
	}
	return failure(fmt.Sprintf("none of the %d clusters could be read", len(r.targets)), accessHelp)
}

// agentNames are the names of the selected agents.
func (r *clusterReader) agentNames() string {
	var out []string
	for _, t := range r.targets {
		out = append(out, t.Agent)
	}
	return strings.Join(out, ", ")
}

// warn prints a warning in one line.
func (r *clusterReader) warn(format string, args ...any) {
	r.printing.Lock()
	defer r.printing.Unlock()
	fmt.Fprintln(r.app.Err, "Warning: "+fmt.Sprintf(format, args...))
}
