package agent

import (
	"context"
	"log/slog"
	"sync"

	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/obs"
)

// rules is what the owner of the cluster forbids, as the file says now. The engine that was made last
// heeds it before it does anything, and whatever it becomes.
type rules struct {
	file string // "" when there is none
	log  *slog.Logger

	mu       sync.Mutex
	policy   ownerpolicy.Policy
	governed restricted // nil before there is an engine
}

// restricted is what rules need of an engine.
type restricted interface {
	Restrict(p ownerpolicy.Policy)
}

// loadRules reads the file: an agent that cannot know what is forbidden must not begin.
func loadRules(cfg Config) (*rules, error) {
	r := &rules{file: cfg.PolicyFile, log: cfg.Log.With(obs.KeyComponent, "policy")}
	if r.file == "" {
		return r, nil
	}
	var err error
	r.policy, err = ownerpolicy.Load(r.file)
	return r, err
}

// run follows the file until ctx ends.
func (r *rules) run(ctx context.Context) error {
	if r.file != "" {
		ownerpolicy.Watch(ctx, r.file, r.now(), r.change, r.log)
	}
	<-ctx.Done()
	return nil
}

func (r *rules) now() ownerpolicy.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policy
}

func (r *rules) change(p ownerpolicy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policy = p
	if r.governed != nil {
		r.governed.Restrict(p)
	}
}

// govern restricts an engine from now on, in the place of the one before.
func (r *rules) govern(e restricted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.governed = e
	e.Restrict(r.policy)
}
