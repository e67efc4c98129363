package engineupgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 10 * time.Second
)

// Config configures a manager. Zero fields have defaults.
type Config struct {
	// Now is the clock; default time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Leader chooses the replica that does a work.
type Leader interface {
	// Lead calls run while this replica leads name, until ctx ends.
	Lead(ctx context.Context, name string, run func(ctx context.Context))
}

// Control has the use cases that a step needs.
type Control interface {
	// AddRun adds a sync run of a deployment for an upgrade, in the transaction of the step. It fails with a
	// fleet.ConflictError if the deployment cannot get a run now.
	AddRun(ctx context.Context, tx store.Tx, u fleet.EngineUpgrade, d fleet.Deployment, run fleet.SyncRun) (fleet.SyncRun, error)
}

// Deps are what a manager works with.
type Deps struct {
	Store   store.Store
	Feed    *changefeed.Feed
	Leader  Leader
	Planner *rollout.Planner
	Control Control
}

// Manager carries out the upgrades of all tenants.
type Manager struct {
	cfg  Config
	deps Deps
	wake wait.Signal

	mu       sync.Mutex
	relevant relevant
}

// relevant has what the unfinished upgrades depend on. Changes of other resources need no look at the store.
type relevant struct {
	deployments map[fleet.DeploymentID]bool
	agents      map[fleet.AgentID]bool
}

// New returns a manager; it does no I/O.
func New(cfg Config, deps Deps) *Manager {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Manager{cfg: cfg, deps: deps, wake: wait.NewSignal()}
}

// Run carries out upgrades until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { m.follow(ctx) })
	m.deps.Leader.Lead(ctx, "engine-upgrades", m.lead)
	return nil
}

// follow wakes the leader after relevant changes.
func (m *Manager) follow(ctx context.Context) {
	var failures wait.Backoff
	for ctx.Err() == nil {
		err := m.deps.Feed.FollowAll(ctx, func(batch []store.Change) {
			failures.Reset()
			if m.concerned(batch) {
				m.wake.Set()
			}
		})
		if ctx.Err() != nil {
			return
		}
		m.cfg.Log.Warn("following changes for engine upgrades, trying again", obs.KeyError, err)
		m.wake.Set() // changes may be lost
		wait.For(ctx, failures.NextJittered(retryFirst, retryMax))
	}
}

func (m *Manager) concerned(batch []store.Change) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := len(m.relevant.deployments) > 0
	for _, c := range batch {
		switch c.Kind {
		case store.ChangeEngineUpgrade:
			return true
		case store.ChangeTenant, store.ChangeSettings, store.ChangeEnvironment: // a suspension may have ended
			if open {
				return true
			}
		case store.ChangeEvent:
		default:
			if m.relevant.deployments[c.DeploymentID] || c.Kind == store.ChangeConnection && m.relevant.agents[c.AgentID] {
				return true
			}
		}
	}
	return false
}

// lead carries out upgrades while this replica leads.
func (m *Manager) lead(ctx context.Context) {
	var failures wait.Backoff
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		deadline, err := m.Pass(ctx)
		pause := time.Hour // nothing to do: a new upgrade is a change
		if !deadline.IsZero() {
			pause = max(0, deadline.Sub(m.cfg.Now()))
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			m.cfg.Log.Error("carrying out engine upgrades, trying again", obs.KeyError, err)
			pause = min(pause, failures.NextJittered(retryFirst, retryMax))
		default:
			failures.Reset()
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// Pass takes all steps that are possible now. It returns the earliest deadline of the upgrades that wait; zero if there is
// none. An upgrade that fails does not delay others.
func (m *Manager) Pass(ctx context.Context) (deadline time.Time, err error) {
	var open []fleet.EngineUpgrade
	err = m.deps.Store.View(ctx, func(tx store.Tx) (err error) {
		open, err = tx.EngineUpgrades().OpenAllTenants(ctx)
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	m.remember(open) // before the steps, which thus see every change that is not reported
	for _, u := range open {
		next, stepErr := m.advance(ctx, u)
		if stepErr != nil {
			err = errors.Join(err, fmt.Errorf("engine upgrade %q: %w", u.Name, stepErr))
		}
		if !next.IsZero() && (deadline.IsZero() || next.Before(deadline)) {
			deadline = next
		}
	}
	return deadline, err
}

func (m *Manager) remember(open []fleet.EngineUpgrade) {
	next := relevant{map[fleet.DeploymentID]bool{}, map[fleet.AgentID]bool{}}
	for _, u := range open {
		for _, i := range u.Instances {
			next.deployments[i.DeploymentID], next.deployments[i.CanaryID], next.agents[i.AgentID] = true, true, true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.relevant = next
}

// advance takes the steps of one upgrade that are possible now, and returns its deadline.
func (m *Manager) advance(ctx context.Context, u fleet.EngineUpgrade) (deadline time.Time, err error) {
	for {
		moved, deadline, err := m.step(ctx, u.TenantID, u.ID)
		if err != nil || !moved {
			return deadline, err
		}
	}
}

// step takes at most one step of an upgrade, in one transaction.
func (m *Manager) step(ctx context.Context, tenant fleet.TenantID, id fleet.EngineUpgradeID) (moved bool, deadline time.Time, err error) {
	err = m.deps.Store.Update(ctx, func(tx store.Tx) error {
		moved, deadline = false, time.Time{}
		u, err := tx.EngineUpgrades().Get(ctx, tenant, id)
		if errors.Is(err, store.ErrNotFound) || err == nil && u.Phase.Done() {
			return nil
		}
		if err != nil {
			return err
		}
		s := &stepper{Manager: m, tx: tx, u: &u, now: m.cfg.Now()}
		if moved, err = s.next(ctx); err != nil {
			return err
		}
		if n := u.Current(); !u.Phase.Done() && n < len(u.Instances) {
			deadline = u.Instances[n].Deadline
		}
		if !moved {
			return nil
		}
		return tx.EngineUpgrades().Update(ctx, u)
	})
	return moved && err == nil, deadline, err
}
