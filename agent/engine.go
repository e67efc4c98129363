package agent

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/argocd"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/agent/internal/offlinecache"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
)

// engineRunner starts, runs and stops the engine of this agent. An engine runs until the leader term ends or the server
// names another agent; it does not depend on the connection to the server. Only the goroutine of run changes the engine.
// Other goroutines send it requests.
type engineRunner struct {
	cfg      Config
	cluster  *rest.Config
	policy   *policyFile
	metrics  *builtin.Metrics
	reporter func(agent fleet.AgentID) engine.Reporter
	// applications returns where the engine of an agent lists the Applications that it does not manage.
	applications func(agent fleet.AgentID) func(fleet.ForeignApplications)
	// checks returns where the engine of an agent reports on its push environments.
	checks   func(agent fleet.AgentID) func([]fleet.EnvironmentCheck)
	offline  *offlinecache.Cache
	requests chan func(ctx context.Context)
	ended    chan struct{} // closed when run has returned

	// Used by the goroutine of run only.
	current   *runningEngine                    // nil when there is none
	cached    map[fleet.TargetID]engine.Desired // read from the offline cache, and not used yet
	cachedFor fleet.AgentID                     // agent that the cache belongs to
}

func newEngineRunner(cfg Config, cluster *rest.Config, parts parts, offline *offlinecache.Cache) *engineRunner {
	return &engineRunner{
		cfg: cfg, cluster: cluster, policy: parts.policy, metrics: parts.metrics, offline: offline,
		requests: make(chan func(context.Context)), ended: make(chan struct{}),
	}
}

// clusterEngine is an engine of this agent.
type clusterEngine interface {
	engine.Engine
	Configure(agent fleet.AgentID, scope fleet.Scope, namespaces []string, kinds fleet.KindFilter)
	Restrict(p ownerpolicy.Policy)
	Retry()
}

// newEngine makes the engine that the configuration names: with Argo CD, or the builtin one.
func (r *engineRunner) newEngine(w wire.Welcome) (clusterEngine, error) {
	log := r.cfg.Log.With(obs.KeyTenant, w.Tenant, obs.KeyAgent, w.AgentName, obs.KeyReplica, r.cfg.Replica)
	if r.cfg.ArgoCDNamespace != "" {
		return argocd.New(argocd.Config{
			Namespace: r.cfg.Namespace, EngineNamespace: r.cfg.ArgoCDNamespace, REST: r.cluster, Reporter: r.reporter(w.AgentID),
			Foreign: r.applications(w.AgentID), Checked: r.checks(w.AgentID), Log: log, AgentID: w.AgentID, Scope: w.Scope, Namespaces: w.Namespaces, Kinds: w.Kinds,
		})
	}
	return builtin.New(builtin.Config{
		Namespace: r.cfg.Namespace, REST: r.cluster, Reporter: r.reporter(w.AgentID), Metrics: r.metrics,
		Log: log, AgentID: w.AgentID, Scope: w.Scope, Namespaces: w.Namespaces, Kinds: w.Kinds,
	})
}

// runningEngine is an engine whose Run was called.
type runningEngine struct {
	clusterEngine
	offline *offlinecache.Cache
	agent   fleet.AgentID
	cancel  context.CancelFunc
	done    chan error
}

// Set implements link.Engine. It removes the cached state of a target before the engine deletes or detaches the target, so
// that a restart without the server does not bring the target back. A state that the engine refuses changes neither the
// target nor the cache.
func (e *runningEngine) Set(d engine.Desired) {
	switch {
	case d.Source != nil:
		e.clusterEngine.Set(d)
		return
	case d.Objects == nil:
		e.offline.Forget(d.Target, func() { e.clusterEngine.Set(d) })
		return
	}
	e.offline.Offer(d)
	target, version := d.Target, d.State.Version // the closure must not keep the objects of d alive
	d.Keep = func() <-chan struct{} { return e.offline.Secure(target, version) }
	e.clusterEngine.Set(d)
}

// Serve implements link.EnvironmentServer. The builtin engine applies to its own cluster only.
func (e *runningEngine) Serve(environments []fleet.PushEnvironment) {
	if s, ok := e.clusterEngine.(link.EnvironmentServer); ok {
		s.Serve(environments)
	}
}

// run runs engines until ctx ends or one of them fails.
func (r *engineRunner) run(ctx context.Context) error {
	defer close(r.ended)
	defer r.stop()
	for {
		var done <-chan error
		if r.current != nil {
			done = r.current.done
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-done:
			r.current = nil
			if err == nil && ctx.Err() == nil {
				err = errors.New("it ended by itself")
			}
			if err != nil {
				err = fmt.Errorf("running the engine: %w", err)
			}
			return err
		case request := <-r.requests:
			request(ctx)
		}
	}
}

// errTermEnded means that the leader term has ended, and with it the engine.
var errTermEnded = errors.New("the leader term has ended")

// do calls fn in the goroutine of run and waits for it. The context of fn ends with ctx and when run stops; life ends only
// when run stops.
func (r *engineRunner) do(ctx context.Context, fn func(ctx, life context.Context)) error {
	done := make(chan struct{})
	request := func(life context.Context) {
		defer close(done)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		fn(ctx, life)
	}
	select {
	case r.requests <- request:
		<-done
		return nil
	case <-r.ended:
		return errTermEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// welcomed returns the engine for the agent that the server has named, and the targets that it found in the cluster if it
// is new. The engine of the same agent continues with the new configuration.
func (r *engineRunner) welcomed(ctx context.Context, w wire.Welcome) (running link.Engine, found []engine.Held, err error) {
	failed := r.do(ctx, func(ctx, life context.Context) {
		if r.current != nil && r.current.agent != w.AgentID {
			r.stop()
		}
		r.offline.SetAgent(offlinecache.Agent{
			ID: w.AgentID, Name: w.AgentName, Tenant: w.Tenant, Scope: w.Scope, Namespaces: w.Namespaces,
			IncludeKinds: w.Kinds.Include, ExcludeKinds: w.Kinds.Exclude,
		})
		if r.current == nil {
			// The server is available, so that it sends again what start defers.
			found, _, err = r.start(ctx, life, w)
		} else {
			r.current.Configure(w.AgentID, w.Scope, w.Namespaces, w.Kinds)
		}
		if r.current != nil {
			running = r.current
		}
	})
	return running, found, errors.Join(failed, err)
}

// refused is called when the server refuses the agent. The engine continues, because a token may be refused by mistake. A
// deleted agent must not continue for ever, so it does not start its engine again after a restart.
func (r *engineRunner) refused() { r.offline.Refused() }

// retry makes the engine retry at once what failed while this replica could not change the cluster.
func (r *engineRunner) retry(ctx context.Context) {
	_ = r.do(ctx, func(context.Context, context.Context) {
		if r.current != nil {
			r.current.Retry()
		}
	})
}

// start starts an engine, which continues with what it finds in the cluster. It does not prune until the server has sent
// its snapshot. deferred are the cached states to apply if the server is unavailable.
func (r *engineRunner) start(ctx, life context.Context, w wire.Welcome) (found []engine.Held, deferred []engine.Desired, err error) {
	e, err := r.newEngine(w)
	if err != nil {
		return nil, nil, err
	}
	r.policy.restrict(e)
	if found, err = e.Recover(ctx); err != nil {
		return nil, nil, err
	}
	e.Pending(1)
	deferred = r.applyCached(e, w.AgentID, found)
	engineCtx, cancel := context.WithCancel(life)
	r.current = &runningEngine{clusterEngine: e, offline: r.offline, agent: w.AgentID, cancel: cancel, done: make(chan error, 1)}
	go func(done chan<- error) { done <- e.Run(engineCtx) }(r.current.done)
	return found, deferred, nil
}

// stop stops the engine, if there is one.
func (r *engineRunner) stop() {
	if r.current == nil {
		return
	}
	r.current.cancel()
	<-r.current.done
	r.current = nil
}

// applyCached sets the cached states of the targets that the inventory lists. A target without an inventory was deleted or
// detached, and stays so. A state that belongs to another agent is not used: the server may have refused that agent. A
// state that was not applied completely is returned as deferred: if the server is available, it may have a newer one.
func (r *engineRunner) applyCached(e engine.Engine, agent fleet.AgentID, found []engine.Held) (deferred []engine.Desired) {
	if r.cachedFor != agent {
		r.cached = nil
	}
	for i := range found {
		d, ok := r.cached[found[i].Target]
		switch {
		case !ok:
		case d.State.Compare(found[i].Version) < 0:
			r.cfg.Log.Warn("the cached state of a target is older than the applied one: the target stays unchanged until the server sends its state",
				obs.KeyTarget, string(d.Target), obs.KeyDeployment, d.Deployment, obs.KeyGeneration, found[i].Generation)
		case d.State.Digest != found[i].Digest:
			deferred = append(deferred, d)
		default:
			e.Set(d)
			found[i].Version, found[i].Digest, found[i].AtHand = d.State.Version, d.State.Digest, true
		}
	}
	r.cached = nil
	return deferred
}
