package argocd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// InCluster is the destination server of Applications that deploy to the cluster of their Argo CD.
const InCluster = "https://kubernetes.default.svc"

// ServiceAccount is the name of the ServiceAccount of the controller, in the namespace of Argo CD.
const ServiceAccount = "argocd-application-controller"

// attempts is how often a start is tried with other ports.
const attempts = 3

// Config is the configuration of an Argo CD.
type Config struct {
	// Cluster stores the Applications, and is the destination [InCluster].
	Cluster *testkit.Cluster
	// Namespace of Argo CD and its Applications. It must exist.
	Namespace string
	// NamespaceInstall gives the controller permissions in its own namespace only, as the manifest
	// namespace-install.yaml of Argo CD does. Such an Argo CD deploys to clusters that Secrets describe. By
	// default, it is an administrator of Cluster.
	NamespaceInstall bool
	// Settings are added to the ConfigMap argocd-cm.
	Settings map[string]string
	// ControllerArgs are added to the arguments of the controller, after those of this package.
	ControllerArgs []string
	// BinDir is the folder of the programs and manifests; default testkit.ArgoCDBinDir.
	BinDir string
}

// Part is one process of an Argo CD.
type Part string

// The parts of an Argo CD, by the names of their programs.
const (
	Redis      Part = "redis-server"
	RepoServer Part = "argocd-repo-server"
	Controller Part = "argocd-application-controller"
)

// parts is the order in which they start.
var parts = []Part{Redis, RepoServer, Controller}

// Instance is an Argo CD. Its methods must not be called concurrently.
type Instance struct {
	cfg     Config
	dir     string
	tools   string // folder of kustomize and helm
	ports   ports
	running map[Part]*rig.Process
	last    map[Part]*rig.Process // the newest process of each part, for its log
}

// Start installs an Argo CD in a namespace and starts it. It returns when all parts are ready, and stops them at
// the end of the test. A part that ends by itself fails the test. Start skips the test with -short.
func Start(tb testing.TB, cfg Config) *Instance {
	tb.Helper()
	cfg.BinDir = cmp.Or(cfg.BinDir, testkit.ArgoCDBinDir(tb))
	i := &Instance{
		cfg: cfg, tools: testkit.RenderToolsDir(tb),
		running: map[Part]*rig.Process{}, last: map[Part]*rig.Process{},
	}
	var err error
	// The path must be short, because it contains a socket.
	if i.dir, err = os.MkdirTemp("", "kedge-argocd-"); err != nil { //nolint:usetesting // t.TempDir contains the name of the test
		tb.Fatal(err)
	}
	tb.Cleanup(func() { i.cleanUp(tb) })
	i.install(tb)
	for attempt := 1; ; attempt++ {
		if i.ports, err = freePorts(); err != nil {
			tb.Fatal(err)
		}
		if err = i.startParts(tb.Context(), nil); err == nil {
			return i
		}
		if attempt == attempts || !i.lostPort() {
			tb.Fatal(err)
		}
		i.Kill()
	}
}

// Namespace returns the namespace of the Applications.
func (i *Instance) Namespace() string { return i.cfg.Namespace }

// Start starts parts that do not run, all if none are given, and returns when they are ready.
func (i *Instance) Start(tb testing.TB, which ...Part) {
	tb.Helper()
	if err := i.startParts(tb.Context(), which); err != nil {
		tb.Fatal(err)
	}
}

func (i *Instance) startParts(ctx context.Context, which []Part) error {
	for _, p := range parts {
		if i.running[p] != nil || len(which) > 0 && !slices.Contains(which, p) {
			continue
		}
		if err := i.start(ctx, p); err != nil {
			return fmt.Errorf("starting %s: %w", p, err)
		}
	}
	return nil
}

// Kill kills parts with SIGKILL, all if none are given, and returns when they have ended.
func (i *Instance) Kill(which ...Part) { i.end((*rig.Process).Kill, which) }

// Stop stops parts with SIGTERM, all if none are given, and returns when they have ended.
func (i *Instance) Stop(tb testing.TB, which ...Part) {
	tb.Helper()
	i.end(func(p *rig.Process) {
		if err := p.Stop(); err != nil {
			tb.Error(err)
		}
	}, which)
}

func (i *Instance) end(end func(*rig.Process), which []Part) {
	for _, p := range slices.Backward(parts) {
		if process := i.running[p]; process != nil && (len(which) == 0 || slices.Contains(which, p)) {
			delete(i.running, p)
			end(process)
		}
	}
}

// PID returns the ID of the process of a part that runs, otherwise 0.
func (i *Instance) PID(p Part) int {
	if process := i.running[p]; process != nil {
		return process.PID()
	}
	return 0
}

// Log returns the log of the newest process of a part.
func (i *Instance) Log(p Part) string {
	if p == Redis {
		// It does not exist before the first start.
		log, _ := os.ReadFile(i.path(redisLog))
		return string(log)
	}
	if process := i.last[p]; process != nil {
		return process.Log()
	}
	return ""
}

func (i *Instance) cleanUp(tb testing.TB) {
	tb.Helper()
	for _, p := range parts {
		if process := i.running[p]; process != nil && ended(process) {
			tb.Errorf("%v", process.Ended())
		}
	}
	i.Stop(tb)
	if tb.Failed() {
		for _, p := range parts {
			tb.Logf("%s wrote last:\n%s", p, tail(i.Log(p)))
		}
	}
	if err := os.RemoveAll(i.dir); err != nil {
		tb.Error(err)
	}
}

func ended(p *rig.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// tail returns the end of a log.
func tail(log string) string {
	const keep = 6000
	return log[max(0, len(log)-keep):]
}

func (i *Instance) path(names ...string) string {
	return filepath.Join(append([]string{i.dir}, names...)...)
}
