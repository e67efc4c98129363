package agent

import (
	"context"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/agent/internal/offlinecache"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
)

// resume starts the engine from the offline cache, before the server is available. If that fails, the engine starts when
// the server accepts the agent. resume returns false when it should be called again because the cluster did not answer.
// There must be no connection to the server meanwhile.
func (r *engineRunner) resume(ctx context.Context, client *link.Client) (done bool) {
	cache, err := r.offline.Load(ctx)
	if err != nil {
		r.cfg.Log.Warn("the offline cache cannot be read: the engine does not start before the server is available", obs.Err(err))
		return false
	}
	failed := r.do(ctx, func(ctx, life context.Context) { done = r.resumeFrom(ctx, life, cache, client) })
	return failed == nil && done
}

func (r *engineRunner) resumeFrom(ctx, life context.Context, cache offlinecache.Snapshot, client *link.Client) (done bool) {
	if r.current != nil {
		return true // the server has answered first
	}
	r.cached, r.cachedFor = make(map[fleet.TargetID]engine.Desired, len(cache.Targets)), cache.Agent.ID
	for _, d := range cache.Targets {
		r.cached[d.Target] = d
	}
	switch {
	case cache.Agent.ID == "":
		return true // the cache is empty: this agent has not been connected yet
	case cache.Agent.Refused:
		r.cfg.Log.Warn("the server refused this agent before the restart: nothing is managed until the server accepts it again; deployed objects stay",
			obs.KeyAgent, cache.Agent.Name)
		return true
	}
	w := welcomeOf(cache.Agent)
	found, deferred, err := r.start(ctx, life, w)
	if err != nil {
		r.cfg.Log.Warn("the engine cannot start before the server is available", obs.Err(err))
		return false
	}
	client.Resume(w.AgentID, r.current, found, deferred)
	r.cfg.Log.Info("resumed from the offline cache", obs.KeyTenant, w.Tenant, obs.KeyAgent, w.AgentName, "targets", len(cache.Targets), "deferred", len(deferred))
	return true
}

func welcomeOf(a offlinecache.Agent) wire.Welcome {
	return wire.Welcome{
		AgentID: a.ID, AgentName: a.Name, Tenant: a.Tenant, Scope: a.Scope, Namespaces: a.Namespaces,
		Kinds: fleet.KindFilter{Include: a.IncludeKinds, Exclude: a.ExcludeKinds},
	}
}
