package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// patience is the time limit of everything without faults. A resource is tried again at most 30 seconds after an error.
const patience = 90 * time.Second

// world is everything that a run drives.
type world struct {
	tb      testing.TB
	seed    uint64
	limit   time.Duration // for everything to get its state without faults
	cluster *testkit.Cluster
	client.Client
	git     *gitserver.Server
	db      database
	dir     string // of the server
	faults  string // folder: see testdata
	sites   *sites
	ledger  *ledger
	server  *program
	faulty  []faulty
	tenants []*tenant
	// pushTenant is the index of the tenant with a push environment; negative for none.
	pushTenant int

	mu      sync.Mutex
	api     *rig.Server // the server that runs, or ran last
	planted string      // the bug of the next server that starts
}

// faulty is a program that runs with faults.
type faulty struct {
	*program
	proxy *apiproxy.Proxy // between it and the API server
	sites string          // what its call sites are listed as
}

// newWorld starts everything, without faults.
func newWorld(tb testing.TB, p plan) *world {
	tb.Helper()
	w := &world{
		tb: tb, seed: p.seed, limit: p.limit, dir: tb.TempDir(), faults: tb.TempDir(), sites: newSites(), ledger: newLedger(),
		pushTenant: p.push, planted: p.planted,
	}
	binary(tb, "kedge-server") // the first call builds it, which does not count
	began := time.Now()
	defer func() { tb.Logf("the cluster and the server run after %v", time.Since(began).Round(time.Millisecond)) }()
	w.cluster = testkit.StartCluster(tb)
	w.define()
	w.db = p.database(tb, w.dir)
	var err error
	if w.git, err = gitserver.Start(filepath.Join(tb.TempDir(), "remote")); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.git.Close() })
	w.ledger.watch(tb, w.cluster.Dynamic(tb))
	w.startServer()
	return w
}

// define installs the definitions and the rights of the server.
func (w *world) define() {
	w.tb.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		w.tb.Fatal(err)
	}
	w.cluster.Kubectl(w.tb, "apply", "--server-side", "-f", filepath.Join(root, "deploy", "crds"))
	w.cluster.Kubectl(w.tb, "wait", "--for=condition=Established", "crd/gitopsdeployments.gitops.kedge.dev", "crd/managedenvironments.gitops.kedge.dev",
		"crd/repositorycredentials.gitops.kedge.dev", "crd/syncruns.gitops.kedge.dev")
	w.cluster.Kubectl(w.tb, "apply", "-f", filepath.Join(root, "deploy", "server-rbac.yaml"))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			w.tb.Fatal(err)
		}
	}
	if w.Client, err = client.New(w.cluster.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		w.tb.Fatal(err)
	}
}

// proxy puts faults between a program and the API server. They are off.
func (w *world) proxy(namespace, account string) (*apiproxy.Proxy, string) {
	w.tb.Helper()
	p := apiproxy.New(w.tb, w.cluster.ServiceAccountConfig(w.tb, namespace, account))
	path := filepath.Join(w.tb.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: x, context: {cluster: c}}]
current-context: x
`, p.Config().Host)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.tb.Fatal(err)
	}
	return p, path
}

func (w *world) startServer() {
	w.tb.Helper()
	proxy, kubeconfig := w.proxy("kedge-system", "kedge-server")
	binary := binary(w.tb, "kedge-server")
	tee := logFile(w.tb, "kedge-server")
	runServer(w.tb, binary, "new-key", "--data-dir", w.dir)
	addr, token := "127.0.0.1:0", ""
	ready := make(chan struct{})
	w.server = supervise(w.tb, "kedge-server", func(ctx context.Context, attempt int) (*rig.Process, error) {
		if attempt > 1 { // every call of a start must succeed
			w.pauseStoreFaults()
			defer w.resumeStoreFaults()
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		s, err := rig.StartServer(bounded, rig.ServerConfig{
			Binary: binary, Listen: addr, DataDir: w.dir, Log: tee,
			Args: append(w.db.serve(), "--key-file", filepath.Join(w.dir, "keys"), "--git-poll-interval", "1s", "--git-allow", "https,http,ssh", "--api-rate", "10000", "--kubeconfig", kubeconfig),
			Wrap: func(cmd *exec.Cmd) *exec.Cmd {
				cmd.Env = append(os.Environ(), "KEDGE_FAULTS="+w.faults, fmt.Sprintf("KEDGE_FAULTS_SEED=%d", w.seed), plantedEnv+"="+w.plantedBug())
				return cmd
			},
		})
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if token == "" {
			token = s.Token
			_, addr, _ = strings.Cut(s.URL, "://")
			defer close(ready)
		}
		s.Token = token
		w.api = s
		return s.Process, nil
	})
	w.faulty = append(w.faulty, faulty{w.server, proxy, "server"})
	select {
	case <-ready:
	case <-time.After(patience):
		w.tb.Fatal("the server does not start")
	}
}

func (w *world) plantedBug() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.planted
}

// plant lets the server run with a bug from now on.
func (w *world) plant(bug string) {
	w.tb.Helper()
	w.mu.Lock()
	w.planted = bug
	w.mu.Unlock()
	before, _ := w.server.counts()
	w.server.kill <- struct{}{}
	testkit.Eventually(w.tb, patience, func(context.Context) error {
		if now, _ := w.server.counts(); now == before {
			return errors.New("the server does not start again")
		}
		return nil
	})
}

// rest returns the server that runs, or ran last.
func (w *world) rest() *rig.Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.api
}

func (w *world) on() string { return filepath.Join(w.faults, "on") }

// pauseStoreFaults ends faults of the database until resumeStoreFaults, if they are on.
func (w *world) pauseStoreFaults()  { _ = os.Rename(w.on(), w.on()+".paused") }
func (w *world) resumeStoreFaults() { _ = os.Rename(w.on()+".paused", w.on()) }

// storm starts all faults.
func (w *world) storm(p plan) {
	w.tb.Helper()
	if err := os.WriteFile(w.on(), []byte(p.focus), 0o600); err != nil {
		w.tb.Fatal(err)
	}
	for i, f := range w.faulty {
		scale := 1
		if f.program == w.server {
			scale = max(1, len(w.tenants)/3)
		}
		faults := newKubeFaults(f.sites, w.seed+uint64(i), w.sites, f.kill, scale)
		if p.focus != "" {
			f.proxy.Do(faults.focused(p.focus))
			continue
		}
		f.proxy.Do(faults.choose)
	}
}

// calm ends all faults.
func (w *world) calm() {
	w.tb.Helper()
	for _, f := range w.faulty {
		f.proxy.Do(nil)
	}
	for _, path := range []string{w.on(), w.on() + ".paused"} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			w.tb.Fatal(err)
		}
	}
	for _, f := range w.faulty { // a kill that was not done yet
		select {
		case <-f.kill:
		default:
		}
	}
}

// rng returns the random numbers of a tenant.
func (w *world) rng(tenant int) *rand.Rand { return rand.New(rand.NewPCG(w.seed, uint64(tenant))) }

// kedge runs the CLI as the admin.
func (w *world) kedge(args ...string) string {
	w.tb.Helper()
	file := filepath.Join(w.dir, "admin-token")
	if err := os.WriteFile(file, []byte(w.rest().Token), 0o600); err != nil {
		w.tb.Fatal(err)
	}
	cmd := exec.CommandContext(w.tb.Context(), binary(w.tb, "kedge"), append(args, "--server", w.rest().URL, "--token-file", file)...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+w.tb.TempDir(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.tb.Fatalf("kedge %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// runServer runs a command of kedge-server that comes to an end.
func runServer(tb testing.TB, binary string, args ...string) {
	tb.Helper()
	if out, err := exec.CommandContext(tb.Context(), binary, args...).CombinedOutput(); err != nil {
		tb.Fatalf("kedge-server %v: %v\n%s", args, err, out)
	}
}
