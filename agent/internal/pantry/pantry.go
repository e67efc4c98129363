package pantry

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
)

// MaxBudget is how many bytes can be kept at most.
const MaxBudget = agentnames.Slots * agentnames.SlotSize

// Config configures a Pantry.
type Config struct {
	// Secrets are those of the agent's own namespace.
	Secrets dynamic.ResourceInterface
	// Budget is how many bytes are kept at most, up to MaxBudget; 0 means that nothing is.
	Budget int
	Log    *slog.Logger
	// Left is told of a target that could not be kept, and why.
	Left func(d engine.Desired, why string)
}

// Pantry keeps states in the cluster. Its methods are safe for concurrent use and do not wait for
// the cluster, except Load.
type Pantry struct {
	cfg    Config
	wake   chan struct{}
	urgent chan struct{}

	working sync.Mutex                // held by whoever reads or writes the Secrets
	stock   *stock                    // nil when it is not known what the cluster holds
	left    map[fleet.TargetID]string // digests that were told not to fit

	mu      sync.Mutex
	offered map[fleet.TargetID]engine.Desired
	changes map[fleet.TargetID]change
	writing map[fleet.TargetID]change // of the round that is under way
	agent   *Agent                    // what is to be told
	known   Agent                     // what was
	kept    map[fleet.TargetID]bool   // targets that are, or are about to be
}

// change is what is to become of a target: to be kept, or, without objects, to be forgotten.
type change struct {
	engine.Desired
	then func() // to be called when that was tried
}

// New makes a Pantry. It does no I/O.
func New(cfg Config) (*Pantry, error) {
	switch {
	case cfg.Secrets == nil || cfg.Log == nil || cfg.Left == nil:
		return nil, errors.New("a pantry needs Secrets, a logger and whom to tell")
	case cfg.Budget < 0 || cfg.Budget > MaxBudget:
		return nil, errors.New("the budget of a pantry is out of bounds")
	}
	return &Pantry{
		cfg: cfg, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		offered: map[fleet.TargetID]engine.Desired{}, changes: map[fleet.TargetID]change{}, left: map[fleet.TargetID]string{},
		kept: map[fleet.TargetID]bool{},
	}, nil
}

// Offer tells of a state that the engine was given. It is kept when the engine asks for it by Secure, or
// when Status says that it has worked through it.
func (p *Pantry) Offer(d engine.Desired) {
	if p.cfg.Budget <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.newestLocked(d.Target); ok && d.State.Compare(was.State.Version) < 0 {
		return // the engine does not work on it either
	}
	p.offered[d.Target] = d
}

// Secure has a state that was offered kept now, and returns a channel that is closed when that was tried,
// whether it worked or not. What the agent's inventory says to be begun can be gone on with then.
func (p *Pantry) Secure(id fleet.TargetID, version fleet.Version) <-chan struct{} {
	tried := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.newestLocked(id)
	if !ok || d.State.Version != version {
		close(tried) // it was kept before, or something newer has come
		return tried
	}
	delete(p.offered, id)
	p.changeLocked(change{Desired: d, then: func() { close(tried) }})
	signal(p.urgent)
	return tried
}

// newestLocked is the newest state of a target that is not kept yet, if there is one.
func (p *Pantry) newestLocked(id fleet.TargetID) (engine.Desired, bool) {
	if d, ok := p.offered[id]; ok {
		return d, true
	}
	c, ok := p.changes[id]
	if !ok {
		c = p.writing[id]
	}
	return c.Desired, c.Objects != nil
}

// changeLocked has the next round do c instead of what was to become of the target before.
func (p *Pantry) changeLocked(c change) {
	before, then := p.changes[c.Target].then, c.then
	if before != nil {
		c.then = func() { before(); call(then) }
	}
	p.changes[c.Target] = c
}

// Status takes what the engine says of a target.
func (p *Pantry) Status(s engine.Status) {
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
	signal(p.wake)
}

// Forget drops what is kept of a target, and calls then when that was tried, whether it worked or
// not: a target that is deleted here must not come back after a restart.
func (p *Pantry) Forget(id fleet.TargetID, then func()) {
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
	signal(p.urgent)
}

// Tell keeps what the server said of this agent.
func (p *Pantry) Tell(a Agent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Budget <= 0 {
		return
	}
	p.agent = &a
	signal(p.wake)
}

// Refused keeps that the server does not let the agent in.
func (p *Pantry) Refused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.known
	if p.agent != nil {
		known = *p.agent
	}
	if known.ID == "" || known.Refused {
		return // it never was let in: there is nothing to go on with
	}
	known.Refused = true
	p.agent = &known
	signal(p.wake)
}

const (
	// restEvery is between two rounds of writing, so that many targets that change at once are written
	// together.
	restEvery = time.Second
	// gather is the same for what somebody waits for.
	gather    = 50 * time.Millisecond
	retryMax  = time.Minute
	lastRound = 2 * time.Second
)

// Run writes until ctx ends, and once more then what is left.
func (p *Pantry) Run(ctx context.Context) error {
	if p.cfg.Budget <= 0 {
		<-ctx.Done()
		return nil
	}
	retry := restEvery
	var said string
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRound)
			defer cancel()
			_ = p.round(last) // what is not kept by now is sent again
			return nil
		case <-p.wake:
		case <-p.urgent:
		}
		err := p.round(ctx)
		wait := restEvery
		if err != nil && ctx.Err() == nil {
			if err.Error() != said {
				p.cfg.Log.Warn("what this agent needs without its server cannot be kept, trying again", obs.Err(explain(err)))
			}
			said, wait = err.Error(), retry
			retry = min(2*retry, retryMax)
			signal(p.wake)
		} else {
			said, retry = "", restEvery
		}
		p.rest(ctx, wait)
	}
}

// rest waits, unless something is urgent.
func (p *Pantry) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-p.urgent:
		timer.Reset(gather)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		signal(p.wake)
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

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
