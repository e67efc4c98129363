package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

// Config says how a pool renders. Zero fields take their defaults.
type Config struct {
	// Program is what a child runs, see Self. It has to be given.
	Program string
	Limits  Limits
	// Processes is how many builds go on at once, PerOwner how many of them for one owner. The defaults are
	// four for each processor, and a quarter of all for one owner.
	Processes, PerOwner int
	// Idle is how many children wait for the next build of their owner, and IdleFor how long; default 4
	// and one minute. Negative means none.
	Idle    int
	IdleFor time.Duration
	// Builds is how many a child does in its life; default 200.
	Builds int
	// Require are the mechanisms without which nothing is rendered.
	Require []sandbox.Mechanism
	// Off are mechanisms to leave out, for tests.
	Off []sandbox.Mechanism
	// Observe, when not nil, is told of every build that was begun.
	Observe func(Observation)
	Log     *slog.Logger
}

// Observation is what is to be known of one build.
type Observation struct {
	Kind     string // of source
	Result   string // "ok", "mistake", "stopped" when it reached a limit or crashed, "canceled" or "fault"
	Cold     bool   // a process was started for it
	Duration time.Duration
}

// Pool is a [render.Builder] that builds in children. It is safe for concurrent use.
type Pool struct {
	cfg           Config
	admission     *admission
	idleProcesses *idleProcesses
	thread        *thread
	builds        sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	cancels map[*context.CancelCauseFunc]struct{} // of what is under way
	probed  bool
	status  sandbox.Status
	failure error
	// isolation is the best that this system lets us have, valid when it is settled: what was refused for a
	// reason that passes is tried again.
	isolation sandbox.Isolation
	settled   bool
}

var _ render.Builder = (*Pool)(nil)

// errClosed is the answer to builds that come too late.
var errClosed = errors.New("rendering has stopped")

// NewPool returns a pool without children. Close has to be called.
func NewPool(cfg Config) (*Pool, error) {
	cfg.Limits = cfg.Limits.orDefault()
	cfg.Processes = cmp.Or(cfg.Processes, 4*max(2, runtime.GOMAXPROCS(0)))
	cfg.PerOwner = cmp.Or(cfg.PerOwner, max(1, cfg.Processes/4))
	cfg.Idle = cmp.Or(cfg.Idle, 4)
	cfg.IdleFor = cmp.Or(cfg.IdleFor, time.Minute)
	cfg.Builds = cmp.Or(cfg.Builds, 200)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Program == "" {
		return nil, errors.New("no program was given to render with")
	}
	if err := cfg.Limits.Check(); err != nil {
		return nil, err
	}
	if cfg.Processes < 1 || cfg.PerOwner < 1 {
		return nil, fmt.Errorf("%d renders at once, %d of one owner, are too few", cfg.Processes, cfg.PerOwner)
	}
	return &Pool{
		cfg: cfg, admission: newAdmission(cfg.Processes, cfg.PerOwner),
		idleProcesses: &idleProcesses{most: cfg.Idle, keep: cfg.IdleFor}, thread: newThread(),
		cancels: map[*context.CancelCauseFunc]struct{}{},
	}, nil
}

// Close ends all children, those that build included, and waits for that.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	for cancel := range p.cancels {
		(*cancel)(errClosed)
	}
	p.mu.Unlock()
	p.builds.Wait()
	p.idleProcesses.close()
	p.thread.stop()
}

// begin bounds ctx by the life of the pool, which waits for done to be called.
func (p *Pool) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	p.cancels[&cancel] = struct{}{}
	p.builds.Add(1)
	return ctx, func() {
		cancel(nil)
		p.mu.Lock()
		delete(p.cancels, &cancel)
		p.mu.Unlock()
		p.builds.Done()
	}, nil
}

// Build implements [render.Builder]. It waits for its turn, which does not count as time of the render.
func (p *Pool) Build(ctx context.Context, job render.Job) (*render.Built, error) {
	ctx, done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := p.admission.enter(ctx, job.Owner); err != nil {
		return nil, fmt.Errorf("waiting to render %q: %w", job.Path, err)
	}
	defer p.admission.leave(job.Owner)
	began := time.Now()
	o, cold, err := p.attempt(ctx, job)
	if err != nil {
		return nil, err
	}
	p.observe(Observation{Kind: string(job.Kind), Result: resultOf(o), Cold: cold, Duration: time.Since(began)})
	return o.built, o.err
}

// attempt builds in a process that waits, or else in a new one.
func (p *Pool) attempt(ctx context.Context, job render.Job) (o outcome, cold bool, err error) {
	if warm := p.idleProcesses.take(job.Owner); warm != nil {
		o = p.use(ctx, warm, job)
		// A process may end while it waits, when memory is short elsewhere. That is not this job's doing.
		if !o.unheard {
			return o, false, nil
		}
	}
	fresh, err := p.start(ctx)
	if err != nil {
		return outcome{}, true, fmt.Errorf("rendering %q: %w", job.Path, err)
	}
	return p.use(ctx, fresh, job), true, nil
}

// use does a job in a process and decides what becomes of that.
func (p *Pool) use(ctx context.Context, c *process, job render.Job) outcome {
	c.owner = job.Owner
	c.builds++
	o := c.build(ctx, job, p.cfg.Limits)
	switch {
	case !o.keep:
		p.report(c, job, o)
	case c.weak, o.end.Tainted, c.builds >= p.cfg.Builds, o.end.Memory > p.cfg.Limits.Memory/2,
		o.end.CPU > p.cfg.Limits.cpu()-processors*p.cfg.Limits.Time:
		c.kill()
	default:
		p.idleProcesses.put(c)
	}
	return o
}

// report logs the end of a process that did not end as it should.
func (p *Pool) report(c *process, job render.Job, o outcome) {
	if resultOf(o) != "stopped" && !o.end.Problem.fault() {
		return
	}
	p.cfg.Log.Warn("a renderer was stopped", obs.KeyTenant, job.Owner, "path", job.Path, obs.KeyReason, o.err.Error(),
		"ended", c.ended(), "stderr", clean(c.stderr.String(), 1000), obs.KeyUserError, true)
}

func (p *Pool) observe(o Observation) {
	if p.cfg.Observe != nil {
		p.cfg.Observe(o)
	}
}

func resultOf(o outcome) string {
	switch {
	case o.err == nil:
		return "ok"
	case errors.Is(o.err, context.Canceled), errors.Is(o.err, context.DeadlineExceeded):
		return "canceled"
	case !render.IsUserError(o.err):
		return "fault"
	case o.end.Problem != nil:
		return "mistake"
	}
	return "stopped"
}
