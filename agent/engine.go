package agent

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/agent/internal/offlinecache"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
)

// engineHost makes and runs the engine of whichever agent the server says this is, or said before it
// went away.
type engineHost struct {
	cfg      Config
	cluster  *rest.Config
	rules    *rules
	reporter engine.Reporter
	offline  *offlinecache.Cache
	failed   chan error
	life     context.Context // engines live as long as this replica leads, not as a connection

	mu      sync.Mutex
	kept    map[fleet.TargetID]engine.Desired // loaded from the offline cache, and not used yet
	keptOf  fleet.AgentID                     // whose that is
	current *runningEngine
}

type runningEngine struct {
	*builtin.Engine
	offline *offlinecache.Cache
	agent   fleet.AgentID
	stop    context.CancelFunc
	done    chan struct{}
}

// Set implements link.Engine. What is to be deleted or let go of is forgotten first: a restart in
// the middle of it, without a server, must not bring it back. What the engine refuses changes nothing of
// what the target has, and nothing of what is kept of it.
func (r *runningEngine) Set(d engine.Desired) {
	switch {
	case d.Source != nil:
		r.Engine.Set(d)
		return
	case d.Objects == nil:
		r.offline.Forget(d.Target, func() { r.Engine.Set(d) })
		return
	}
	r.offline.Offer(d)
	target, version := d.Target, d.State.Version // not d: its objects are not to live as long
	d.Keep = func() <-chan struct{} { return r.offline.Secure(target, version) }
	r.Engine.Set(d)
}

// run lets engines run until ctx ends or one of them fails.
func (h *engineHost) run(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
	case err = <-h.failed:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopLocked()
	return err
}

// attach implements link.Config.Attach.
func (h *engineHost) attach(ctx context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil {
		return nil, nil, fmt.Errorf("starting an engine: %w", context.Cause(h.life))
	}
	if h.current != nil && h.current.agent == w.AgentID {
		h.current.Configure(w.AgentID, w.Scope, w.Namespaces)
		return h.current, nil, nil
	}
	h.stopLocked()
	held, _, err := h.startLocked(ctx, w) // the server is there: what is left for later it sends again
	return h.current, held, err
}

// detach implements link.Config.Detach.
func (h *engineHost) detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopLocked()
}

// startLocked makes an engine that goes on with what it finds in the cluster. It prunes nothing
// before the server has said what else there is. later is what it is to be given when the server is away.
func (h *engineHost) startLocked(ctx context.Context, w wire.Welcome) (held []engine.Held, later []engine.Desired, err error) {
	made, err := builtin.New(builtin.Config{
		Namespace: h.cfg.Namespace, REST: h.cluster, Reporter: h.reporter,
		Log:     h.cfg.Log.With(obs.KeyTenant, w.Tenant, obs.KeyAgent, w.AgentName, obs.KeyReplica, h.cfg.Replica),
		AgentID: w.AgentID, Scope: w.Scope, Namespaces: w.Namespaces,
	})
	if err != nil {
		return nil, nil, err
	}
	h.rules.govern(made)
	if held, err = made.Recover(ctx); err != nil {
		return nil, nil, err
	}
	made.Pending(1)
	later = h.serveKept(made, w.AgentID, held)
	own, stop := context.WithCancel(h.life)
	h.current = &runningEngine{Engine: made, offline: h.offline, agent: w.AgentID, stop: stop, done: make(chan struct{})}
	go func(done chan struct{}) {
		defer close(done)
		if err := made.Run(own); err != nil && own.Err() == nil {
			h.failed <- fmt.Errorf("running the engine: %w", err)
		}
	}(h.current.done)
	return held, later, nil
}

// serveKept gives an engine what was kept of those targets that its inventory lists. One that has no
// inventory was deleted or let go of, and stays so. What was kept for another agent is for its server to
// say again: that agent may have been refused, or be of somebody else. What was never applied whole is
// returned: the server, if it is there, may have something newer, and it may be what has ended the agent.
func (h *engineHost) serveKept(to engine.Engine, agent fleet.AgentID, held []engine.Held) (later []engine.Desired) {
	if h.keptOf != agent {
		h.kept = nil
	}
	for i := range held {
		d, ok := h.kept[held[i].Target]
		switch {
		case !ok:
		case d.State.Compare(held[i].Version) < 0:
			h.cfg.Log.Warn("what was kept of a target is older than what was applied last: it is left as it is until the server sends it again",
				obs.KeyTarget, string(d.Target), obs.KeyDeployment, d.Deployment, obs.KeyGeneration, held[i].Generation)
		case d.State.Digest != held[i].Digest:
			later = append(later, d)
		default:
			to.Set(d)
			held[i].Version, held[i].Digest, held[i].AtHand = d.State.Version, d.State.Digest, true
		}
	}
	h.kept = nil // an engine holds them, or will, or nobody needs them
	return later
}

func (h *engineHost) stopLocked() {
	if h.current == nil {
		return
	}
	h.current.stop()
	<-h.current.done
	h.current = nil
}
