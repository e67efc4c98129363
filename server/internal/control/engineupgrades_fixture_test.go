package control_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// upgradeFleet has two clusters. In each, agent in-N installs Argo CD with deployment argocd-N, and agent eng-N has that
// Argo CD apply deployment canary-N. Argo CD is installed at tag v1, and v2 and the broken tag bad exist.
type upgradeFleet struct {
	*replica
	agents map[string]fleet.Agent
	v1, v2 string // commits
}

var upgradeAgents = []string{"in-1", "eng-1", "in-2", "eng-2"}

func newUpgradeFleet(t *testing.T, r *replica) *upgradeFleet {
	t.Helper()
	f := &upgradeFleet{replica: r, agents: map[string]fleet.Agent{}}
	f.v1 = f.tag(t, "v1", "argocd/cm.yaml", configMap("argocd", "1"))
	f.v2 = f.tag(t, "v2", "argocd/cm.yaml", configMap("argocd", "2"))
	f.tag(t, "bad", "argocd/cm.yaml", "{not yaml")
	f.push(t, map[string]string{"argocd/cm.yaml": configMap("argocd", "3"), "app/cm.yaml": configMap("app", "1")})
	for _, name := range upgradeAgents {
		engine := ""
		if name[:3] == "eng" {
			engine = "argocd"
		}
		made, err := r.EnrollAgent(t.Context(), admin, "default", control.EnrollAgent{Name: name, EngineNamespace: engine})
		ok(t, err)
		f.agents[name] = made.Agent
		_, err = r.CreateEnvironment(t.Context(), admin, "default", control.CreateEnvironment{Name: name, Agents: []string{name}})
		ok(t, err)
	}
	f.connectAll(t)
	for _, n := range []string{"1", "2"} {
		f.create(t, "argocd-"+n, "in-"+n, "argocd", true)
		f.create(t, "canary-"+n, "eng-"+n, "app", false)
		_, err := r.CreateRun(t.Context(), admin, "default", "argocd-"+n, control.CreateRun{Revision: "v1"})
		ok(t, err)
	}
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		f.answer(ctx, current)
		for _, name := range []string{"argocd-1", "argocd-2", "canary-1", "canary-2"} {
			if got := f.observed(t, name); got.Sync != fleet.SyncSynced {
				return fmt.Errorf("%s is %+v", name, got)
			}
		}
		return nil
	})
	return f
}

func (f *upgradeFleet) tag(t *testing.T, name, file, content string) string {
	t.Helper()
	commit := f.push(t, map[string]string{file: content})
	ok(t, f.repo.Tag(t.Context(), name, name))
	ok(t, f.repo.Push(t.Context(), "refs/tags/"+name))
	return commit
}

func (f *upgradeFleet) create(t *testing.T, name, environment, path string, manual bool) {
	t.Helper()
	_, err := f.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: name, Environment: environment, Namespace: "argocd", Source: fleet.Source{RepoURL: f.url, Path: path}, Policy: &fleet.Policy{Prune: true, Manual: manual},
	})
	ok(t, err)
}

func (f *upgradeFleet) connectAll(t *testing.T) {
	t.Helper()
	for _, name := range upgradeAgents {
		f.connect(t, f.agents[name], name)
	}
}

// health decides how an agent reports a target that it has not acknowledged; "" means not at all.
type health func(target fleet.Target) fleet.Health

func current(fleet.Target) fleet.Health { return fleet.HealthCurrent }

// answer reports every target that its agent has not acknowledged. Errors are those of a server that ends.
func (f *upgradeFleet) answer(ctx context.Context, as health) {
	for _, agent := range f.agents {
		var targets []fleet.Target
		_ = f.store.View(ctx, func(tx store.Tx) (err error) {
			targets, err = tx.Targets().OfAgentAllTenants(ctx, agent.ID)
			return err
		})
		for _, t := range targets {
			if h := as(t); t.Desired.Digest != "" && h != "" && t.Observed.Version != t.Desired.Version {
				_ = f.Report(ctx, []rollout.AgentReports{{Agent: agent, Reports: []store.Report{{Target: t.ID, Full: true, Observed: fleet.Observed{
					Version: t.Desired.Version, Digest: t.Desired.Digest, Sync: fleet.SyncSynced, Health: h, AsOf: time.Now(),
				}}}}})
			}
		}
	}
}

func (f *upgradeFleet) targetOf(t *testing.T, deployment string) fleet.Target {
	t.Helper()
	d, err := f.Deployment(t.Context(), admin, "default", deployment)
	ok(t, err)
	return d.Targets[0].Target
}

func (f *upgradeFleet) observed(t *testing.T, deployment string) fleet.Observed {
	t.Helper()
	target := f.targetOf(t, deployment)
	if target.Observed.Version != target.Desired.Version {
		return fleet.Observed{}
	}
	return target.Observed
}

func (f *upgradeFleet) upgrade(t *testing.T, name, revision string, timeout time.Duration) fleet.EngineUpgrade {
	t.Helper()
	u, err := f.CreateEngineUpgrade(t.Context(), admin, "default", control.CreateEngineUpgrade{
		Name: name, Revision: revision, Timeout: timeout,
		Instances: []control.EngineUpgradeInstance{{Agent: "eng-1", Deployment: "argocd-1", Canary: "canary-1"}, {Agent: "eng-2", Deployment: "argocd-2", Canary: "canary-2"}},
	})
	ok(t, err)
	return u
}

// until answers as agents until the upgrade meets a condition.
func (f *upgradeFleet) until(t *testing.T, name string, as health, check func(fleet.EngineUpgrade) error) fleet.EngineUpgrade {
	t.Helper()
	var u fleet.EngineUpgrade
	testkit.Eventually(t, patience, func(ctx context.Context) (err error) {
		f.answer(ctx, as)
		if u, err = f.EngineUpgrade(ctx, admin, "default", name); err != nil {
			return err
		}
		return check(u)
	})
	return u
}

func upgradePhase(phase fleet.EngineUpgradePhase) func(fleet.EngineUpgrade) error {
	return func(u fleet.EngineUpgrade) error {
		if u.Phase != phase {
			return fmt.Errorf("%s: %s: %+v", u.Phase, u.Message, u.Instances)
		}
		return nil
	}
}

func instancePhase(n int, phase fleet.EngineInstancePhase) func(fleet.EngineUpgrade) error {
	return func(u fleet.EngineUpgrade) error {
		if u.Instances[n].Phase != phase {
			return fmt.Errorf("%s: %s: %+v", u.Phase, u.Message, u.Instances)
		}
		return nil
	}
}

// runsOf returns the kinds of the runs of a deployment, newest first.
func (f *upgradeFleet) runsOf(t *testing.T, deployment string) (kinds []fleet.RunKind) {
	t.Helper()
	runs, err := f.Runs(t.Context(), admin, "default", deployment, store.RunFilter{})
	ok(t, err)
	for _, run := range runs {
		kinds = append(kinds, run.Kind)
	}
	return kinds
}

// mortal is a store of a server that is killed at the first step of an upgrade, before or after its commit. Until it is
// armed, no step is taken.
type mortal struct {
	store.Store
	after bool // the commit
	armed atomic.Bool
	dead  chan struct{}
}

var errKilled = errors.New("the server was killed")

func (m *mortal) killed() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

func (m *mortal) View(ctx context.Context, fn func(store.Tx) error) error {
	if m.killed() {
		return errKilled
	}
	return m.Store.View(ctx, fn)
}

func (m *mortal) Update(ctx context.Context, fn func(store.Tx) error) error {
	if m.killed() {
		return errKilled
	}
	step := false
	err := m.Store.Update(ctx, func(tx store.Tx) error {
		step = false
		err := fn(watchedTx{tx, &step})
		if err == nil && step && (!m.after || !m.armed.Load()) {
			err = errKilled
		}
		return err
	})
	if step && m.armed.Load() && !m.killed() && (err == nil || errors.Is(err, errKilled)) {
		close(m.dead)
		return errKilled
	}
	return err
}

// watchedTx records whether an upgrade is written.
type watchedTx struct {
	store.Tx
	step *bool
}

func (t watchedTx) EngineUpgrades() store.EngineUpgrades {
	return watchedUpgrades{t.Tx.EngineUpgrades(), t.step}
}

type watchedUpgrades struct {
	store.EngineUpgrades
	step *bool
}

func (u watchedUpgrades) Update(ctx context.Context, up fleet.EngineUpgrade) error {
	*u.step = true
	return u.EngineUpgrades.Update(ctx, up)
}

// restart replaces a server by another one on the same database, which ends at its first step.
func (f *upgradeFleet) restart(t *testing.T, db *testDatabase, after bool) *mortal {
	t.Helper()
	f.kill()
	m := &mortal{Store: db.open(t), after: after, dead: make(chan struct{})}
	next := &replica{git: f.git, repo: f.repo, url: f.url, store: m}
	next.start(t, filepath.Join(t.TempDir(), "git"), testConfig(t, db, control.Config{BeatEvery: 150 * time.Millisecond}))
	f.replica = next
	f.connectAll(t)
	return m
}

// answerUntilDead answers as agents until the server has ended at a step.
func (f *upgradeFleet) answerUntilDead(t *testing.T, m *mortal) {
	t.Helper()
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		m.armed.Store(true)
		f.answer(ctx, current)
		if !m.killed() {
			return errors.New("no step was taken")
		}
		return nil
	})
}
