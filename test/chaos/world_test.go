package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/agent/agentsim"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// patience is the time limit of everything that a run does not measure.
const patience = 60 * time.Second

// tenants and their agents. The environment "default" has all agents of a tenant, and the one with the name of
// the tenant only those of the blue ring.
var tenants = map[string]int{"alpha": 3, "bravo": 2}

// apps are the names of deployments of a tenant, after the name of the tenant.
var apps = []string{"web", "api", "db"}

// world is everything that a run drives.
type world struct {
	tb      testing.TB
	host    *host
	git     *gitserver.Server
	sim     *agentsim.Fleet
	ledger  *ledger
	tenants map[string]*tenant
	agents  map[string]*agent
	backups []snapshot
	frozen  map[string]bool             // places that are suspended, or may be: see stepFreeze
	stood   map[string]map[string]int64 // generations of the targets of such a place, from when it was held
	limit   time.Duration               // time limit for the system to settle
	began   time.Time
	log     []string // the steps so far, for debugging
}

// tenant is the expected state of a tenant, with its external resources.
type tenant struct {
	name        string
	viewer      string // token
	repo        *gitserver.Repo
	url         string
	hook        apiv1.Webhook
	deployments map[string]*deployment
	free        map[string]string // folders of deleted deployments, by name, that may be used again
	ids         map[string]string // of rows of this tenant, by the paths that they are read at
}

// deployment is the requested state of a deployment.
type deployment struct {
	name, folder, env                    string
	prune, manual, suspended, pruneLeave bool
	pinned                               bool
	mark                                 time.Duration // a part of the policy that is another one after each edit of everything
}

// agent is an agent with its cluster. Its process may be down, or disconnected.
type agent struct {
	name, tenant, ring string
	cluster            *agentsim.Cluster
	tokenFile, token   string
	process            *agentsim.Agent
	stop               func() // nil while it is not connected
}

// snapshot is a backup with the expected state of the server after a restore.
type snapshot struct {
	file        string
	deployments map[string]map[string]deployment // by tenant and name
	rings       map[string]string                // by agent
	tokens      map[string]string                // by agent
	frozen      map[string]bool
}

func newWorld(tb testing.TB, p plan) *world {
	tb.Helper()
	w := &world{
		tb: tb, host: newHost(tb, p), ledger: newLedger(), limit: p.limit, began: time.Now(),
		tenants: map[string]*tenant{}, agents: map[string]*agent{}, frozen: map[string]bool{},
		stood: map[string]map[string]int64{},
	}
	var err error
	if w.git, err = gitserver.Start(filepath.Join(tb.TempDir(), "remote")); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.git.Close() })
	if w.sim, err = agentsim.New(agentsim.Config{Address: "grpc://" + w.host.addr}); err != nil {
		tb.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		w.addTenant(name, tenants[name])
	}
	return w
}

func (w *world) addTenant(name string, agents int) {
	w.tb.Helper()
	t := &tenant{name: name, deployments: map[string]*deployment{}, free: map[string]string{}, ids: map[string]string{}}
	w.tenants[name] = t
	w.ledger.histories[name] = newHistory()
	w.host.must(http.MethodPost, "/tenants", apiv1.CreateTenant{Name: name}, nil)
	var viewer apiv1.NewAPIToken
	w.host.must(http.MethodPost, "/tenants/"+name+"/tokens", apiv1.CreateAPIToken{Name: name + "-viewer", Role: "viewer"}, &viewer)
	t.viewer = viewer.Token
	w.host.must(http.MethodPost, "/tenants/"+name+"/environments",
		apiv1.CreateEnvironment{Name: name, MatchLabels: map[string]string{"ring": "blue"}}, nil)
	var err error
	if t.repo, err = w.git.CreateRepo(w.tb.Context(), name+"-apps", w.tb.TempDir()); err != nil {
		w.tb.Fatal(err)
	}
	t.url = w.git.URL(name + "-apps")
	if _, err := t.repo.CommitAndPush(w.tb.Context(), map[string]string{"README": "apps of " + name}, "begin"); err != nil {
		w.tb.Fatal(err)
	}
	var repo apiv1.Repository
	w.host.must(http.MethodPost, "/tenants/"+name+"/repositories", apiv1.CreateRepository{URL: t.url}, &repo)
	t.ids["/repositories/"] = repo.ID
	w.host.must(http.MethodPost, "/tenants/"+name+"/repositories/"+repo.ID+"/webhook", nil, &t.hook)
	for i := range agents {
		w.enroll(t, i)
	}
}

func (w *world) enroll(t *tenant, i int) {
	w.tb.Helper()
	ring := []string{"blue", "green"}[i%2]
	a := &agent{name: fmt.Sprintf("%s-%d", t.name, i+1), tenant: t.name, ring: ring, tokenFile: filepath.Join(w.tb.TempDir(), "token")}
	var e apiv1.Enrollment
	w.host.must(http.MethodPost, "/tenants/"+t.name+"/agents",
		apiv1.EnrollAgent{Name: a.name, Labels: map[string]string{"ring": ring}}, &e)
	w.agents[a.name] = a
	w.ledger.ring(a.name, ring)
	w.useToken(a, e.Token)
	a.cluster = agentsim.NewCluster(w.ledger.watch(a.name))
	w.connect(a)
	w.tb.Cleanup(func() { w.disconnect(a) })
}

func (w *world) useToken(a *agent, token string) {
	w.tb.Helper()
	a.token = token
	if err := os.WriteFile(a.tokenFile, []byte(token), 0o600); err != nil {
		w.tb.Fatal(err)
	}
}

// connect lets an agent connect until it is disconnected; it starts its process if necessary.
func (w *world) connect(a *agent) {
	w.tb.Helper()
	if a.stop != nil {
		return
	}
	if a.process == nil {
		var err error
		if a.process, err = w.sim.AgentIn(a.cluster, a.name, a.tokenFile); err != nil {
			w.tb.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.tb.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = a.process.Run(ctx) })
	a.stop = func() {
		cancel()
		running.Wait()
	}
}

func (w *world) disconnect(a *agent) {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// restart ends the process of an agent: the next one knows what the cluster stores.
func (w *world) restart(a *agent) {
	w.tb.Helper()
	w.disconnect(a)
	a.process = nil
	w.connect(a)
}

// selected reports whether an agent belongs to the environment of a deployment.
func (d *deployment) selected(a *agent) bool {
	return a.tenant == tenantOf(d.name) && selects(d.env, a.ring)
}

// selects reports whether an environment has the agents of a ring.
func selects(env, ring string) bool { return env == "default" || ring == "blue" }

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%8.3fs ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}
