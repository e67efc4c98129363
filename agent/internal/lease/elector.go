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

// Config configures an Elector. All fields are required.
type Config struct {
	// Leases gives access to the Leases of the agent's own namespace.
	Leases dynamic.ResourceInterface
	// Name of the Lease.
	Name string
	// Replica is the name of this replica. A process acquires the Lease at once when the holder is an earlier process of
	// the same replica: a container of a pod starts again only when the previous one has ended.
	Replica string
	Log     *slog.Logger
}

// timing holds the durations of an election. A follower waits for duration, a leader stops after deadline. The difference
// is the time for requests in flight.
type timing struct {
	duration time.Duration // of the Lease
	deadline time.Duration // for a renewal
	renew    time.Duration // between two renewals
	retry    time.Duration // after a failure
	request  time.Duration // timeout of one request
}

func defaultTiming() timing {
	return timing{duration: 10 * time.Second, deadline: 7 * time.Second, renew: 3 * time.Second, retry: time.Second, request: 3 * time.Second}
}

// maxRetryFactor bounds the delay after several failures: so many times timing.retry.
const maxRetryFactor = 8

// Elector elects the leader among the replicas of an agent. Create it with New.
type Elector struct {
	cfg      Config
	timing   timing
	identity string // unique to this process
	fence    Fence
	changed  wait.Signal  // signals that lease has changed
	term     *runningTerm // used by Run only; nil when no term is running

	mu       sync.Mutex
	lease    observedLease
	problem  error  // why the leader is not known; nil when it is
	tried    bool   // this process has tried to acquire the Lease
	agent    string // agent that this replica belongs to; "" before the server has sent it
	warnedOf string // other agent that was logged
}

// New returns an Elector. It does no I/O.
func New(cfg Config) (*Elector, error) { return newElector(cfg, defaultTiming()) }

func newElector(cfg Config, timing timing) (*Elector, error) {
	if cfg.Leases == nil || cfg.Name == "" || cfg.Replica == "" || cfg.Log == nil {
		return nil, errors.New("an elector needs Leases, a name, a replica and a logger")
	}
	return &Elector{
		cfg: cfg, timing: timing, identity: cfg.Replica + "_" + strings.ToLower(rand.Text()[:10]), changed: wait.NewSignal(),
	}, nil
}

// Fence returns the fence that is open while this replica leads.
func (e *Elector) Fence() *Fence { return &e.fence }

// Leads reports whether this replica may change the cluster now.
func (e *Elector) Leads() bool { return e.fence.isOpen() }

// Problem returns why the leader is not known, or nil.
func (e *Elector) Problem() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.problem
}

func (e *Elector) setProblem(err error) {
	e.mu.Lock()
	previous := e.problem
	e.problem = err
	e.mu.Unlock()
	if err != nil && (previous == nil || previous.Error() != err.Error()) {
		e.cfg.Log.Warn("the leader cannot be determined", obs.Err(err))
	}
}

// Run starts a term when this replica acquires the Lease, and runs follow while it does not lead. The context of Lead and
// follow ends when that changes. They have to return soon then, and the other one starts after that. Run returns when ctx
// ends, after it has released the Lease, or with the first error of the term or of follow.
func (e *Elector) Run(ctx context.Context, newTerm func(context.Context) (Term, error), follow func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchCtx, stopWatch := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { e.watch(watchCtx) })
	defer watcher.Wait()
	defer stopWatch()
	for ctx.Err() == nil {
		renewal, err := e.acquire(ctx, follow)
		if renewal == nil {
			return errors.Join(err, e.stopTerm())
		}
		if err == nil {
			err = e.startTerm(ctx, cancel, newTerm)
		}
		if err == nil {
			err = e.term.Lead(renewal.ctx)
		}
		if err != nil || ctx.Err() != nil {
			err = errors.Join(err, e.stopTerm()) // before the release: the term may have to write something
			_ = renewal.release()
			return err
		}
		reason := renewal.release()
		e.cfg.Log.Warn("stopped leading", obs.KeyReplica, e.cfg.Replica, obs.Err(reason))
	}
	return e.stopTerm()
}

// acquire runs follow until it has acquired the Lease. It returns nil when ctx or follow has ended.
func (e *Elector) acquire(ctx context.Context, follow func(context.Context) error) (*renewal, error) {
	followCtx, stopFollowing := context.WithCancel(ctx)
	defer stopFollowing()
	var followed chan error // nil until follow runs
	var backoff wait.Backoff
	for {
		if err := e.stopSupersededTerm(); err != nil {
			stopFollowing()
			return nil, errors.Join(err, result(followed))
		}
		sent, retry := e.tryAcquire(ctx, &backoff)
		if !sent.IsZero() {
			r := e.startRenewal(ctx, sent) // follow may take longer to end than the Lease lasts
			stopFollowing()
			return r, result(followed)
		}
		if e.Problem() == nil {
			backoff.Reset()
		}
		if followed == nil && ctx.Err() == nil {
			followed = make(chan error, 1)
			go func(done chan<- error) { done <- follow(followCtx) }(followed)
		}
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			stopFollowing()
			return nil, result(followed)
		case err := <-followed:
			timer.Stop()
			return nil, err
		case <-e.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// result waits for the result of follow; a nil channel means that it never ran.
func result(followed <-chan error) error {
	if followed == nil {
		return nil
	}
	return <-followed
}

// tryAcquire acquires the Lease if it is free, and returns when it sent the request. Otherwise it returns a zero time and
// the delay before the next attempt, if no event comes first.
func (e *Elector) tryAcquire(ctx context.Context, backoff *wait.Backoff) (sent time.Time, retry time.Duration) {
	retry = e.timing.retry
	if e.term == nil {
		retry = backoff.Next(retry, maxRetryFactor*retry)
	}
	if e.observed().at.IsZero() {
		if err := e.refresh(ctx); err != nil {
			e.recordProblem(ctx, err)
			return time.Time{}, retry
		}
	}
	lease := e.observed()
	if e.superseded(lease) {
		return time.Time{}, 0
	}
	if remaining := e.remaining(lease); remaining > 0 {
		e.setProblem(nil)
		return time.Time{}, remaining
	}
	sent = time.Now()
	err := e.write(ctx, lease, e.identity)
	if err == nil {
		e.setProblem(nil)
		e.fence.extend(sent, e.timing.deadline)
		e.cfg.Log.Info("started leading", obs.KeyReplica, e.cfg.Replica, "previousHolder", lease.holder())
		return sent, 0
	}
	if isConflict(err) {
		err = e.refresh(ctx) // another replica was faster
	}
	if err != nil {
		e.recordProblem(ctx, err)
	}
	return time.Time{}, retry
}

// recordProblem records why the leader is not known.
func (e *Elector) recordProblem(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case apierrors.IsForbidden(err):
		e.setProblem(fmt.Errorf("this agent has no access to the Lease for its leader election: "+
			"apply the manifest of `kedge agent manifest` again: %w", err))
	default:
		e.setProblem(err)
	}
}

// remaining returns for how long this replica must not acquire the observed Lease.
func (e *Elector) remaining(lease observedLease) time.Duration {
	e.mu.Lock()
	first := !e.tried
	e.tried = true
	e.mu.Unlock()
	holder := cmp.Or(lease.holder(), lease.deletedFrom)
	switch {
	case holder == "" && lease.object == nil:
		// Either no replica has ever led, or somebody has just deleted the Lease of a leader, which creates it again as
		// soon as it receives the event.
		return max(0, time.Until(lease.at.Add(e.timing.retry)))
	case holder == "", holder == e.identity:
		return 0
	}
	if replica, _, ok := strings.Cut(holder, "_"); first && ok && replica == e.cfg.Replica {
		return 0
	}
	return max(0, time.Until(lease.expires(e.timing.duration)))
}

// isConflict reports whether a write failed because the Lease has changed since it was observed.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
