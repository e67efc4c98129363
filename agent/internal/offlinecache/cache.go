package offlinecache

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// MaxBudget is the largest budget, in bytes.
const MaxBudget = agentnames.Slots * agentnames.SlotSize

// Config configures a Cache. All fields but Budget are required.
type Config struct {
	// Secrets gives access to the Secrets of the agent's own namespace.
	Secrets dynamic.ResourceInterface
	// Budget is the most bytes to store, up to MaxBudget; 0 disables the cache.
	Budget int
	Log    *slog.Logger
	// Skipped is called when the state of a target does not fit.
	Skipped func(d engine.Desired, message string)
}

// Cache stores states in the cluster. Its methods are safe for concurrent use. Only Load waits for the API server.
type Cache struct {
	cfg    Config
	wake   wait.Signal
	urgent wait.Signal

	io      sync.Mutex                // locked while the Secrets are read or written
	stored  *contents                 // nil when the contents of the Secrets are unknown
	skipped map[fleet.TargetID]string // digests that were reported not to fit

	mu      sync.Mutex
	offered map[fleet.TargetID]engine.Desired
	changes map[fleet.TargetID]change
	writing map[fleet.TargetID]change // of the write in progress
	agent   *Agent                    // to be written; nil when it is up to date
	known   Agent                     // as last written
	kept    map[fleet.TargetID]bool   // targets that are stored, or are about to be
}

// change stores the state of a target or, without objects, removes it.
type change struct {
	engine.Desired
	then func() // called after the attempt
}

// New returns a Cache. It does no I/O.
func New(cfg Config) (*Cache, error) {
	switch {
	case cfg.Secrets == nil || cfg.Log == nil || cfg.Skipped == nil:
		return nil, errors.New("the offline cache needs Secrets, a logger and a function to report to")
	case cfg.Budget < 0 || cfg.Budget > MaxBudget:
		return nil, errors.New("the budget of the offline cache is out of range")
	}
	return &Cache{
		cfg: cfg, wake: wait.NewSignal(), urgent: wait.NewSignal(),
		offered: map[fleet.TargetID]engine.Desired{}, changes: map[fleet.TargetID]change{}, skipped: map[fleet.TargetID]string{},
		kept: map[fleet.TargetID]bool{},
	}, nil
}

// Offer announces a state that the engine has received. The cache stores it when the engine calls Secure, or when
// Status reports that the engine has processed it.
func (p *Cache) Offer(d engine.Desired) {
	if p.cfg.Budget <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.newestLocked(d.Target); ok && d.State.Compare(was.State.Version) < 0 {
		return // the engine ignores it too
	}
	p.offered[d.Target] = d
}

// Secure stores an offered state now. The returned channel is closed after the attempt, successful or not. The
// engine waits for it before it records the state in the inventory.
func (p *Cache) Secure(id fleet.TargetID, version fleet.Version) <-chan struct{} {
	tried := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.newestLocked(id)
	if !ok || d.State.Version != version {
		close(tried) // already stored, or superseded
		return tried
	}
	delete(p.offered, id)
	p.changeLocked(change{Desired: d, then: func() { close(tried) }})
	p.urgent.Set()
	return tried
}

// newestLocked returns the newest state of a target that is not stored yet.
func (p *Cache) newestLocked(id fleet.TargetID) (engine.Desired, bool) {
	if d, ok := p.offered[id]; ok {
		return d, true
	}
	c, ok := p.changes[id]
	if !ok {
		c = p.writing[id]
	}
	return c.Desired, c.Objects != nil
}

// changeLocked replaces the pending change of a target. The callbacks of both are called.
func (p *Cache) changeLocked(c change) {
	before, then := p.changes[c.Target].then, c.then
	if before != nil {
		c.then = func() { before(); call(then) }
	}
	p.changes[c.Target] = c
}

// Status processes a status report of the engine.
func (p *Cache) Status(s engine.Status) {
	if s.Observed.Sync == fleet.SyncSyncing || s.Observed.Sync == fleet.SyncPending {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.offered[s.Target]
	if !ok || d.State.Version != s.Observed.Version {
		return
	}
	delete(p.offered, s.Target)
	p.changeLocked(change{Desired: d})
	p.wake.Set()
}

// Forget removes the state of a target and calls then after the attempt, successful or not. The engine deletes a
// target only after that, so that a deleted target does not come back after a restart.
func (p *Cache) Forget(id fleet.TargetID, then func()) {
	p.mu.Lock()
	delete(p.offered, id)
	if !p.kept[id] && p.changes[id].then == nil {
		delete(p.changes, id)
		p.mu.Unlock()
		then()
		return
	}
	p.changeLocked(change{Desired: engine.Desired{Target: id}, then: then})
	p.mu.Unlock()
	p.urgent.Set()
}

// SetAgent stores the server's configuration of this agent.
func (p *Cache) SetAgent(a Agent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Budget <= 0 {
		return
	}
	p.agent = &a
	p.wake.Set()
}

// Refused stores that the server refuses the agent.
func (p *Cache) Refused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.known
	if p.agent != nil {
		known = *p.agent
	}
	if known.ID == "" || known.Refused {
		return // never accepted: there is nothing to continue with
	}
	known.Refused = true
	p.agent = &known
	p.wake.Set()
}

const (
	// writeInterval is the pause between two writes, so that many targets that change together are written
	// together.
	writeInterval = time.Second
	// urgentDelay is the same for changes that a caller waits for.
	urgentDelay      = 50 * time.Millisecond
	retryMax         = time.Minute
	lastWriteTimeout = 2 * time.Second
)

// Run writes changes until ctx ends, and then once more.
func (p *Cache) Run(ctx context.Context) error {
	if p.cfg.Budget <= 0 {
		<-ctx.Done()
		return nil
	}
	var backoff wait.Backoff
	var logged string
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWriteTimeout)
			defer cancel()
			_ = p.flush(last) // the server sends again what is not stored by now
			return nil
		case <-p.wake:
		case <-p.urgent:
		}
		err := p.flush(ctx)
		delay := writeInterval
		if err != nil && ctx.Err() == nil {
			if err.Error() != logged {
				p.cfg.Log.Warn("writing the offline cache failed, retrying", obs.Err(explain(err)))
			}
			logged, delay = err.Error(), backoff.Next(writeInterval, retryMax)
			p.wake.Set()
		} else {
			logged = ""
			backoff.Reset()
		}
		p.pause(ctx, delay)
	}
}

// pause waits for d, or until shortly after a change is urgent.
func (p *Cache) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-p.urgent:
		wait.For(ctx, urgentDelay)
		p.wake.Set()
	}
}

func explain(err error) error {
	if apierrors.IsForbidden(err) {
		return errors.Join(errors.New("apply the manifest of `kedge agent manifest` again"), err)
	}
	return err
}

func call(fn func()) {
	if fn != nil {
		fn()
	}
}
