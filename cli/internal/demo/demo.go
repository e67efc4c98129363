package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/localcluster"
	"github.com/kedge-dev/kedge/internal/localpod"
	"github.com/kedge-dev/kedge/internal/rig"
)

// Config says what to show. Zero fields take their defaults.
type Config struct {
	// Clusters is how many are started; default 2. Not used with Kubeconfig.
	Clusters int
	// Kubeconfig names an existing cluster that is used instead.
	Kubeconfig string
	// KubeBin is the folder of the control plane's programs, as hack/kube/build.sh prints it.
	KubeBin string
	// BinDir is the folder of kedge-server and kedge-agent.
	BinDir string
	// CRs deploys by custom resources in the first cluster. Not used with Kubeconfig.
	CRs bool
	// Once checks everything and ends instead of waiting for Ctrl-C.
	Once bool
	// Out is where a person reads along.
	Out io.Writer
}

const (
	deployment = "sample"
	namespace  = "sample"
	// agentNamespace is where the manifest of the agent "cluster" installs it.
	agentNamespace = "kedge-agent-cluster"
	// patience bounds each wait; an idle machine needs a tenth of it.
	patience = 3 * time.Minute
)

// Run shows the demo until ctx ends (or, with Once, until everything was checked) and leaves nothing
// behind.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.Clusters = cmp.Or(cfg.Clusters, 2)
	dir, err := os.MkdirTemp("", "kedge-demo-")
	if err != nil {
		return err
	}
	d := &demo{cfg: cfg, dir: dir, say: newTeller(cfg.Out)}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	if cfg.Once {
		return d.check(ctx)
	}
	d.explain()
	return d.wait(ctx)
}

// demo is everything that was started.
type demo struct {
	cfg      Config
	dir      string
	say      *teller
	clusters []namedCluster
	server   *rig.Server
	// serverConfig starts it again, when it was stopped before the demo ends.
	serverConfig rig.ServerConfig
	client       *client.Client
	agents       []*rig.Process
	repo         *repository
	kedge        string // a program that is logged in to the server
	closers      []func() error
}

type namedCluster struct {
	name       string
	kubeconfig string
	rig.Cluster
}

// start is the way of a new user, step by step.
func (d *demo) start(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"starting " + d.clusterWords(), d.startClusters},
		{"starting kedge-server", d.startServer},
		{"enrolling an agent in each cluster", d.startAgents},
		{"making a Git repository with a sample application", d.makeRepository},
		{"deploying it", d.deploy},
	} {
		if err := d.say.step(step.what, func() error { return step.do(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return d.awaitHealthy(ctx)
}

func (d *demo) clusterWords() string {
	if d.cfg.Kubeconfig != "" {
		return "with the cluster of KUBECONFIG"
	}
	return fmt.Sprintf("%d Kubernetes control planes", d.cfg.Clusters)
}

func (d *demo) startClusters(ctx context.Context) error {
	if d.cfg.Kubeconfig != "" {
		return d.useCluster(ctx)
	}
	if d.cfg.KubeBin == "" {
		return errors.New("no control plane to start: give --kube-bin (make demo does), or set KUBECONFIG to use a cluster of yours")
	}
	d.clusters = make([]namedCluster, d.cfg.Clusters)
	stops := make([]func() error, d.cfg.Clusters)
	defer func() { d.closers = append(d.closers, stops...) }()
	var g errgroup.Group
	for i := range d.clusters {
		g.Go(func() error {
			name := fmt.Sprintf("cluster-%d", i+1)
			c, err := localcluster.Start(ctx, localcluster.Config{BinDir: d.cfg.KubeBin, Name: name, Dir: d.dir})
			if err != nil {
				return err
			}
			stops[i] = c.Stop
			d.clusters[i].name, d.clusters[i].kubeconfig = name, c.Kubeconfig()
			d.clusters[i].Cluster, err = d.kubectl(i+1, c.Kubeconfig())
			return err
		})
	}
	return g.Wait()
}

// useCluster takes the cluster of Kubeconfig when nothing of somebody else is in the demo's way.
func (d *demo) useCluster(ctx context.Context) error {
	kubeconfig, err := d.pinned(ctx)
	if err != nil {
		return err
	}
	c, err := d.kubectl(1, kubeconfig)
	if err != nil {
		return err
	}
	d.clusters = []namedCluster{{name: "cluster", Cluster: c}}
	// The demo removes both at its end, so they have to be its own.
	found, err := c.Run(ctx, "", "get", "namespace", namespace, agentNamespace, "--ignore-not-found", "-o", "name")
	if err != nil {
		return err
	}
	if found != "" {
		return fmt.Errorf("the cluster has %s already, which the demo would use: remove it, or choose another cluster",
			strings.Join(strings.Fields(found), " and "))
	}
	return nil
}

func (d *demo) startServer(ctx context.Context) error {
	log, err := os.Create(filepath.Join(d.dir, "kedge-server.log"))
	if err != nil {
		return err
	}
	d.closers = append(d.closers, log.Close)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d.serverConfig = rig.ServerConfig{
		Binary: filepath.Join(d.cfg.BinDir, "kedge-server"), Listen: "127.0.0.1:0", DataDir: filepath.Join(d.dir, "server"), Log: log,
	}
	if d.cfg.CRs {
		d.serverConfig.Args = []string{"--kubeconfig", d.clusters[0].kubeconfig}
		if err := d.installDefinitions(ctx); err != nil {
			return err
		}
	}
	d.server, err = rig.StartServer(ctx, d.serverConfig)
	if err != nil {
		return err
	}
	d.closers = append(d.closers, func() error { return d.server.Stop() }) // whichever runs by then
	if err := d.writeKedge(); err != nil {
		return err
	}
	d.client, err = client.New(client.Config{Server: d.server.URL, Token: d.server.Token, Tenant: d.tenant()})
	return err
}

func (d *demo) startAgents(ctx context.Context) error {
	for _, c := range d.clusters {
		if err := d.startAgent(ctx, c); err != nil {
			return fmt.Errorf("cluster %s: %w", c.name, err)
		}
	}
	return nil
}

// startAgent installs an agent as a platform engineer does, and starts it outside of the cluster
// exactly as its applied manifest says: simulated nodes run no containers.
func (d *demo) startAgent(ctx context.Context, c namedCluster) error {
	if err := os.Mkdir(d.agentDir(c), 0o700); err != nil {
		return err
	}
	if d.cfg.CRs {
		return d.registerAgent(ctx, c)
	}
	if _, err := d.server.Install(ctx, c.Cluster, apiv1.EnrollAgent{Name: c.name}); err != nil {
		return err
	}
	if d.cfg.Kubeconfig != "" { // a cluster that stays gets back what it had
		d.closers = append(d.closers, func() error { return d.uninstall(context.WithoutCancel(ctx), c) })
	}
	if d.cfg.Kubeconfig != "" { // the process takes the place of the pod, whose image no registry has
		if _, err := c.Run(ctx, "", "-n", agentNamespace, "scale", "deployment", "kedge-agent", "--replicas=0"); err != nil {
			return err
		}
	}
	pod, err := c.Pod(ctx, c.name, filepath.Join(d.cfg.BinDir, "kedge-agent"), d.agentDir(c))
	if err != nil {
		return err
	}
	return d.runAgent(ctx, c, pod)
}

func (d *demo) agentDir(c namedCluster) string { return filepath.Join(d.dir, "agent-"+c.name) }

// runAgent starts the process of an installed agent.
func (d *demo) runAgent(ctx context.Context, c namedCluster, pod *localpod.Pod) error {
	log, err := os.Create(filepath.Join(d.dir, "kedge-agent-"+c.name+".log"))
	if err != nil {
		return err
	}
	p, err := rig.Start("kedge-agent "+c.name, pod.Command(context.WithoutCancel(ctx)), log)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	d.agents = append(d.agents, p)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() { _ = pod.KeepToken(renewing) }() // a lapsed token shows in the agent's own log
	d.closers = append(d.closers, log.Close, p.Stop, func() error { stop(); return nil })
	return nil
}

func (d *demo) makeRepository(ctx context.Context) (err error) {
	d.repo, err = newRepository(ctx, d.dir)
	return err
}

// deploy declares the application, then makes the repository call the server's webhook.
func (d *demo) deploy(ctx context.Context) error {
	if err := d.declare(ctx); err != nil {
		return err
	}
	if d.cfg.Kubeconfig != "" {
		d.closers = append(d.closers, func() error { return d.removeSample(context.WithoutCancel(ctx)) })
	}
	repos, err := client.List[apiv1.Repository](ctx, d.client, d.client.In("repositories"), client.Everything(), 0)
	if err != nil {
		return err
	}
	hook, err := client.Send[apiv1.Webhook](ctx, d.client, http.MethodPost, d.client.In("repositories", repos[0].ID, "webhook"), nil)
	if err != nil {
		return err
	}
	kedge, err := os.Executable()
	if err != nil {
		return err
	}
	return d.repo.installHook(kedge, hook.URL, hook.Secret)
}

// declare creates the deployment.
func (d *demo) declare(ctx context.Context) error {
	if d.cfg.CRs {
		return d.applyDeployment(ctx)
	}
	_, err := client.Send[apiv1.Deployment](ctx, d.client, http.MethodPost, d.client.In("deployments"), apiv1.CreateDeployment{
		Name: deployment, Namespace: namespace, Source: apiv1.Source{RepoURL: d.repo.url(), Path: "app"},
	})
	return err
}

// wait shows the demo until ctx ends or something of it does.
func (d *demo) wait(ctx context.Context) error {
	ended := make(chan *rig.Process, 1+len(d.agents))
	for _, p := range append([]*rig.Process{d.server.Process}, d.agents...) {
		go func() {
			<-p.Done()
			ended <- p
		}()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-ended:
			if p != d.server.Process {
				return p.Ended()
			}
			d.say.line("kedge-server has stopped; the agents go on. Ctrl-C ends the demo.")
		}
	}
}

// close stops everything, last things first, and removes every file.
func (d *demo) close() error {
	d.say.line("stopping and cleaning up")
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		if d.closers[i] != nil {
			errs = append(errs, d.closers[i]())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}
