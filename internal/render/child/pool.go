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

// Config configures a pool. Zero fields have defaults.
type Config struct {
	// Program is the program of a child, see Self. It is required.
	Program string
	Limits  Limits
	// Processes is the number of concurrent builds, PerOwner the number for one owner. The defaults are four
	// for each processor, and a quarter of all for one owner.
	Processes, PerOwner int
	// Idle is the number of children that wait for the next build of their owner, and IdleFor the time; default
	// 4 and one minute. Negative means none.
	Idle    int
	IdleFor time.Duration
	// Builds is the number of builds of a child before it is replaced; default 200.
	Builds int
	// Require lists mechanisms that a render must have.
	Require []sandbox.Mechanism
	// Off disables mechanisms, for tests.
	Off []sandbox.Mechanism
	// Observe, if not nil, is called after every build.
	Observe func(Observation)
	Log     *slog.Logger
}

// Observation describes one build.
type Observation struct {
	Kind     string // kind of source
	Result   string // "ok", "mistake", "stopped" if it reached a limit or crashed, "canceled", or "fault"
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
	cancels map[*context.CancelCauseFunc]struct{} // of running builds
	probed  bool
	status  sandbox.Status
	failure error
	// isolation is the best that this system allows, valid if settled: a refusal with a transient cause is
	// tried again.
	isolation sandbox.Isolation
	settled   bool
}

var _ render.Builder = (*Pool)(nil)

// errClosed is the error of builds after Close.
var errClosed = errors.New("rendering has stopped")

// NewPool returns a pool without children. Call Close to release it.
func NewPool(cfg Config) (*Pool, error) {
	cfg.Limits = cfg.Limits.orDefault()
	cfg.Processes = cmp.Or(cfg.Processes, 4*max(2, runtime.GOMAXPROCS(0)))
	cfg.PerOwner = cmp.Or(cfg.PerOwner, max(1, cfg.Processes/4))
	cfg.Idle = cmp.Or(cfg.Idle, 4)
	cfg.IdleFor = cmp.Or(cfg.IdleFor, time.Minute)
	cfg.Builds = cmp.Or(cfg.Builds, 200)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Program == "" {
		return nil, errors.New("no program for renders is configured")
	}
	if err := cfg.Limits.Check(); err != nil {
		return nil, err
	}
	if cfg.Processes < 1 || cfg.PerOwner < 1 {
		return nil, fmt.Errorf("%d concurrent renders, %d for one owner: both must be at least 1", cfg.Processes, cfg.PerOwner)
	}
	return &Pool{
		cfg: cfg, admission: newAdmission(cfg.Processes, cfg.PerOwner),
		idleProcesses: &idleProcesses{most: cfg.Idle, keep: cfg.IdleFor}, thread: newThread(),
		cancels: map[*context.CancelCauseFunc]struct{}{},
	}, nil
}

// Close ends all children, including busy ones, and waits for them.
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

// begin derives a context that ends with the pool. The pool waits until done is called.
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

// Build implements [render.Builder]. Waiting for its turn does not count as render time.
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

// attempt builds in an idle process, or in a new one.
func (p *Pool) attempt(ctx context.Context, job render.Job) (o outcome, cold bool, err error) {
	if warm := p.idleProcesses.take(job.Owner); warm != nil {
		o = p.use(ctx, warm, job)
		// An idle process may be killed when memory is short. That is not caused by this job.
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

// use executes a job in a process and keeps or kills the process.
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

// report logs the unexpected end of a process.
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
