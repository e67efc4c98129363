package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wire"
)

// engineHost makes and runs the engine of whichever agent the server says this is.
type engineHost struct {
	cfg      Config
	cluster  *rest.Config
	reporter engine.Reporter
	started  chan struct{} // closed when engines may run
	failed   chan error

	mu      sync.Mutex
	ctx     context.Context // engines live as long as the stage, not as a connection
	current *runningEngine
}

type runningEngine struct {
	*builtin.Engine
	agent fleet.AgentID
	stop  context.CancelFunc
	done  chan struct{}
}

func newEngineHost(cfg Config, cluster *rest.Config) *engineHost {
	return &engineHost{cfg: cfg, cluster: cluster, started: make(chan struct{}), failed: make(chan error, 1)}
}

// run lets engines run until ctx ends or one of them fails.
func (h *engineHost) run(ctx context.Context) error {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	close(h.started)
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
	select {
	case <-h.started:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil, nil, errors.New("the agent is stopping")
	}
	if h.current != nil && h.current.agent == w.AgentID {
		h.current.Configure(w.AgentID, w.Scope, w.Namespaces)
		return h.current, nil, nil
	}
	h.stopLocked()
	return h.startLocked(ctx, w)
}

// detach implements link.Config.Detach.
func (h *engineHost) detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopLocked()
}

func (h *engineHost) startLocked(ctx context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
	made, err := builtin.New(builtin.Config{
		Namespace: h.cfg.Namespace, REST: h.cluster, Reporter: h.reporter,
		Log:     h.cfg.Log.With(obs.KeyTenant, w.Tenant, obs.KeyAgent, w.AgentName, obs.KeyReplica, h.cfg.Replica),
		AgentID: w.AgentID, Scope: w.Scope, Namespaces: w.Namespaces,
	})
	if err != nil {
		return nil, nil, err
	}
	held, err := made.Recover(ctx)
	if err != nil {
		return nil, nil, err
	}
	made.Pending(1) // the server has said nothing yet of what else there is
	own, stop := context.WithCancel(h.ctx)
	h.current = &runningEngine{Engine: made, agent: w.AgentID, stop: stop, done: make(chan struct{})}
	go func(done chan struct{}) {
		defer close(done)
		if err := made.Run(own); err != nil && own.Err() == nil {
			h.failed <- fmt.Errorf("running the engine: %w", err)
		}
	}(h.current.done)
	return h.current, held, nil
}

func (h *engineHost) stopLocked() {
	if h.current == nil {
		return
	}
	h.current.stop()
	<-h.current.done
	h.current = nil
}
