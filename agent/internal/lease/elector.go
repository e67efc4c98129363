package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

// Config says what is competed for, and who does.
type Config struct {
	// Leases are those of the agent's own namespace.
	Leases dynamic.ResourceInterface
	Name   string
	// Replica tells who holds the Lease, for people. A process whose predecessor of the same name
	// holds it takes over at once: a pod's container is started again when the old one is dead.
	Replica string
	Log     *slog.Logger
}

// timing is how long things take. A follower waits for duration, a leader ends after deadline: what
// is between is for requests that are under way.
type timing struct {
	duration time.Duration
	deadline time.Duration
	renew    time.Duration
	retry    time.Duration
	request  time.Duration
}

func defaultTiming() timing {
	return timing{duration: 10 * time.Second, deadline: 7 * time.Second, renew: 3 * time.Second, retry: time.Second, request: 3 * time.Second}
}

// Elector competes for a Lease. Make it with New.
type Elector struct {
	cfg     Config
	timing  timing
	holder  string // this process, and no other one ever
	fence   Fence
	changed chan struct{}
	// reigning is of Run only; nil when this replica has not led since another one did.
	reigning *reign

	mu      sync.Mutex
	seen    sighting
	problem error  // why it is not known who leads; nil when it is
	begun   bool   // it has tried once: what held the Lease before it is known to be dead or alive
	agent   string // whose replica this is, as the server says; "" before it has
	warned  string // the agent that was told to be in the way
}

// New makes an elector. It does no I/O.
func New(cfg Config) (*Elector, error) { return newElector(cfg, defaultTiming()) }

func newElector(cfg Config, timing timing) (*Elector, error) {
	if cfg.Leases == nil || cfg.Name == "" || cfg.Replica == "" || cfg.Log == nil {
		return nil, errors.New("an elector needs Leases, a name, a replica and a logger")
	}
	return &Elector{
		cfg: cfg, timing: timing, holder: cfg.Replica + "_" + strings.ToLower(rand.Text()[:10]), changed: make(chan struct{}, 1),
	}, nil
}

// Fence lets requests pass only while this replica leads.
func (e *Elector) Fence() *Fence { return &e.fence }

// Leads reports whether this replica may change the cluster now.
func (e *Elector) Leads() bool { return e.fence.holds() }

// Problem says why it cannot be known who leads, or nil.
func (e *Elector) Problem() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

func (e *Elector) setProblem(err error) {
	e.mu.Lock()
	was := e.problem
	e.problem = err
	e.mu.Unlock()
	if err != nil && (was == nil || was.Error() != err.Error()) {
		e.cfg.Log.Warn("it cannot be found out which replica leads", obs.Err(err))
	}
}

// Run has a reign begin when this replica takes the Lease, and runs follow while it does not lead.
// Lead and follow get a context that ends when that changes, and have to return soon then; the other
// one begins when it has. Run returns when ctx ends, with the Lease given up, or with the first error
// of any of them.
func (e *Elector) Run(ctx context.Context, begin func(context.Context) (Reign, error), follow func(context.Context) error) error {
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { e.watch(watching) })
	defer watcher.Wait()
	defer stop()
	for ctx.Err() == nil {
		term, err := e.compete(ctx, follow)
		if term == nil {
			return errors.Join(err, e.depose())
		}
		if err == nil {
			err = e.crown(ctx, quit, begin)
		}
		if err == nil {
			err = e.reigning.Lead(term.ctx)
		}
		if err != nil || ctx.Err() != nil {
			err = errors.Join(err, e.depose()) // while the Lease is held: there may be something left to write
			_ = term.end()
			return err
		}
		lost := term.end()
		e.cfg.Log.Warn("this replica leads no more", obs.KeyReplica, e.cfg.Replica, obs.Err(lost))
	}
	return e.depose()
}

// compete follows until the Lease is taken. It returns nil when ctx has ended or follow has.
func (e *Elector) compete(ctx context.Context, follow func(context.Context) error) (*term, error) {
	following, stop := context.WithCancel(ctx)
	defer stop()
	var followed chan error
	var backoff wait.Backoff
	for {
		if err := e.yield(); err != nil {
			stop()
			return nil, errors.Join(err, e.await(followed))
		}
		sent, again := e.attempt(ctx, &backoff)
		if !sent.IsZero() {
			t := e.begin(ctx, sent) // renewed from now on, however long follow takes to end
			stop()
			return t, e.await(followed)
		}
		if e.Problem() == nil {
			backoff.Reset()
		}
		if followed == nil && ctx.Err() == nil {
			followed = make(chan error, 1)
			go func(done chan<- error) { done <- follow(following) }(followed)
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			stop()
			return nil, e.await(followed)
		case err := <-followed:
			timer.Stop()
			return nil, err
		case <-e.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (e *Elector) await(followed <-chan error) error {
	if followed == nil {
		return nil
	}
	return <-followed
}

// attempt takes the Lease if it may be taken, and returns when that was asked for. Otherwise it says
// when to try again if nothing is heard of it before.
func (e *Elector) attempt(ctx context.Context, backoff *wait.Backoff) (sent time.Time, again time.Duration) {
	retry := e.timing.retry
	if e.reigning == nil {
		retry = backoff.Next(retry, 8*retry)
	}
	if e.sighted().at.IsZero() {
		if err := e.look(ctx); err != nil {
			e.failed(ctx, err)
			return time.Time{}, retry
		}
	}
	seen := e.sighted()
	if e.usurped(seen) {
		return time.Time{}, 0
	}
	if wait := e.mustWait(seen); wait > 0 {
		e.setProblem(nil)
		return time.Time{}, wait
	}
	sent = time.Now()
	err := e.write(ctx, seen, e.holder)
	if err == nil {
		e.setProblem(nil)
		e.fence.extend(sent, e.timing.deadline)
		e.cfg.Log.Info("this replica leads now", obs.KeyReplica, e.cfg.Replica, "before", seen.holder())
		return sent, 0
	}
	if isRace(err) {
		err = e.look(ctx) // somebody was faster
	}
	if err != nil {
		e.failed(ctx, err)
	}
	return time.Time{}, retry
}

// failed keeps why it is not known who leads.
func (e *Elector) failed(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case apierrors.IsForbidden(err):
		e.setProblem(fmt.Errorf("this agent may not use the Lease that its replicas choose a leader by: "+
			"apply the manifest of `kedge agent manifest` again: %w", err))
	default:
		e.setProblem(err)
	}
}

// mustWait is for how long the Lease that was seen must not be taken.
func (e *Elector) mustWait(seen sighting) time.Duration {
	e.mu.Lock()
	first := !e.begun
	e.begun = true
	e.mu.Unlock()
	holder := cmp.Or(seen.holder(), seen.deprived)
	switch {
	case holder == "" && seen.object == nil:
		// Nobody ever led here, or somebody deletes it at this moment under a leader that writes it anew
		// as soon as it hears of that.
		return max(0, time.Until(seen.at.Add(e.timing.retry)))
	case holder == "", holder == e.holder:
		return 0
	}
	if replica, _, ok := strings.Cut(holder, "_"); first && ok && replica == e.cfg.Replica {
		return 0
	}
	return max(0, time.Until(seen.expires(e.timing.duration)))
}

// isRace reports whether a write failed because the Lease is not the one that was seen.
func isRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
