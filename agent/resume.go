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

// resume starts the engine of the agent that this was when it last ran, before any server is there.
// What fails here is made good when the server is: then the engine is started as the server says. It
// reports whether that was all that can be done: false means that the cluster did not answer, and that it is
// to be tried again. There must be no connection to the server meanwhile.
func (h *engineHost) resume(ctx context.Context, client *link.Client) bool {
	found, err := h.offline.Load(ctx)
	if err != nil {
		h.cfg.Log.Warn("what was kept for when the server is away cannot be read: nothing is done before it answers", obs.Err(err))
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		return true // the server was faster
	}
	h.kept, h.keptOf = make(map[fleet.TargetID]engine.Desired, len(found.Targets)), found.Agent.ID
	for _, d := range found.Targets {
		h.kept[d.Target] = d
	}
	switch {
	case found.Agent.ID == "":
		return true // it is new here
	case found.Agent.Refused:
		h.cfg.Log.Warn("the server has refused this agent before it was restarted: nothing is managed until it is let in again; what it has deployed stays",
			obs.KeyAgent, found.Agent.Name)
		return true
	}
	w := welcomeOf(found.Agent)
	held, later, err := h.startLocked(ctx, w)
	if err != nil {
		h.cfg.Log.Warn("the engine cannot go on before the server answers", obs.Err(err))
		return false
	}
	client.Resume(w, h.current, held, later)
	h.cfg.Log.Info("going on with what was kept", obs.KeyTenant, w.Tenant, obs.KeyAgent, w.AgentName, "targets", len(found.Targets), "later", len(later))
	return true
}

// retry has the engine try at once what has failed while this replica could not change anything.
func (h *engineHost) retry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		h.current.Retry()
	}
}

// welcomed implements link.Config.Welcomed.
func (h *engineHost) welcomed(w wire.Welcome) {
	h.offline.SetAgent(offlinecache.Agent{ID: w.AgentID, Name: w.AgentName, Tenant: w.Tenant, Scope: w.Scope, Namespaces: w.Namespaces})
}

// refused implements link.Config.Refused. The engine goes on, since a token may be refused by
// mistake; but an agent that was deleted must not go on for ever, so a restart ends it.
func (h *engineHost) refused() { h.offline.Refused() }

func welcomeOf(a offlinecache.Agent) wire.Welcome {
	return wire.Welcome{AgentID: a.ID, AgentName: a.Name, Tenant: a.Tenant, Scope: a.Scope, Namespaces: a.Namespaces}
}
