package agent

import (
	"context"
	"log/slog"
	"sync"

	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/obs"
)

// policyFile is the cluster owner's policy. It is applied to the current engine before the engine starts, and again when
// the file changes.
type policyFile struct {
	path string // "" when there is none
	log  *slog.Logger

	mu     sync.Mutex
	policy ownerpolicy.Policy
	engine restrictable // nil before there is an engine
	tunnel restrictable // nil without tunnels
}

// restrictable is the part of an engine and of the proxy of tunnels that policyFile uses.
type restrictable interface {
	Restrict(p ownerpolicy.Policy)
}

// loadPolicy reads the file. An agent that cannot read its policy must not start.
func loadPolicy(cfg Config) (*policyFile, error) {
	f := &policyFile{path: cfg.PolicyFile, log: cfg.Log.With(obs.KeyComponent, "policy")}
	if f.path == "" {
		return f, nil
	}
	var err error
	f.policy, err = ownerpolicy.Load(f.path)
	return f, err
}

// run watches the file until ctx ends.
func (f *policyFile) run(ctx context.Context) error {
	if f.path != "" {
		ownerpolicy.Watch(ctx, f.path, f.current(), f.set, f.log)
	}
	<-ctx.Done()
	return nil
}

func (f *policyFile) current() ownerpolicy.Policy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.policy
}

func (f *policyFile) set(p ownerpolicy.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy = p
	for _, r := range []restrictable{f.engine, f.tunnel} {
		if r != nil {
			r.Restrict(p)
		}
	}
}

// restrictTunnel applies the policy to the proxy of tunnels now and when it changes.
func (f *policyFile) restrictTunnel(r restrictable) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tunnel = r
	r.Restrict(f.policy)
}

// restrict applies the policy to an engine now and when it changes. It replaces the previous engine.
func (f *policyFile) restrict(e restrictable) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.engine = e
	e.Restrict(f.policy)
}
