package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wake"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/pause"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// maxBatch bounds how many statuses and events one write takes, so that no transaction grows
	// with the fleet.
	maxBatch = 1000
	// besides is how many statuses and events have to wait for a second batch of the same tenant to be
	// written beside the first, and besidesAfter how long fewer of them wait at most: one large batch
	// costs the database far less than many small ones.
	besides      = maxBatch / 4
	besidesAfter = 500 * time.Millisecond
	// maxWaiting bounds what one agent may have waiting. Beyond it the agent's stream is not read
	// until a batch is written: flow control slows that agent and nobody else.
	maxWaiting = 4096
	// maxFrames bounds how many status frames one agent may have waiting, those included that a newer
	// one of their target has replaced: taking them in must not take the time that writing needs. An
	// agent that keeps to its window never meets it.
	maxFrames = 2 * wire.StatusWindow
	// maxTargetObjects bounds what the statuses of one target may add up to: more than a bundle can hold.
	maxTargetObjects = 50_000
)

// intake coalesces what agents report and writes it in batches, as fast as the writes go. While nothing of
// a tenant is being written, what comes is written at once; while something is, a second batch waits until
// it is large or besidesAfter has passed, which is the one timer in the path of what succeeds. A batch is of
// one tenant, and tenants take turns; one agent is in one batch at a time, so that what it says stays in
// order. A batch that fails is halved at once until the agent that spoils it is alone; that one waits, the
// others go on. Only when one agent after the other fails (the store is down) does everybody wait.
type intake struct {
	write   func(ctx context.Context, batch []control.AgentReports) error
	log     *slog.Logger
	metrics *metrics
	wake    wake.Signal

	writers, perTenant int // batches at once

	mu     sync.Mutex
	queues map[fleet.TenantID]*queue
	turns  []fleet.TenantID // of queues; the first one's turn is next
	taken  chan struct{}    // closed and replaced whenever a batch was taken
	done   chan struct{}    // closed and replaced whenever a batch was written, or failed
}

// queue is what the agents of one tenant have said and nobody has written.
type queue struct {
	agents  map[fleet.AgentID]*waiting
	order   []fleet.AgentID        // of agents: who has waited longest is first
	busy    map[fleet.AgentID]bool // in a batch that is being written
	writing int                    // batches
	limit   int                    // statuses per batch now
}

// waiting is what one agent has said and nobody has written.
type waiting struct {
	agent   fleet.Agent
	reports map[fleet.TargetID]*pendingReport
	events  []control.AgentEvent
	acks    map[*session]int64 // status frames of that session up to here are in reports
	frames  int                // that reports came in
	since   time.Time          // when the first of it came
	failed  int                // times that this agent's batch of one failed
	notYet  time.Time
}

// newIntake makes an intake that writes so many batches at once. Of several, no tenant gets all.
func newIntake(write func(context.Context, []control.AgentReports) error, writers int, log *slog.Logger, m *metrics) *intake {
	return &intake{
		write: write, log: log, metrics: m, wake: wake.New(), writers: writers, perTenant: max(1, writers-(writers+3)/4),
		queues: map[fleet.TenantID]*queue{}, taken: make(chan struct{}), done: make(chan struct{}),
	}
}

func (w *waiting) size() int { return len(w.reports) + len(w.events) }

// status takes the n-th status frame of a session. It blocks while the agent has too much waiting.
func (in *intake) status(ctx context.Context, s *session, n int64, r store.Report) error {
	var tooMany error
	err := in.put(ctx, s.agent, func(w *waiting) bool {
		if w.frames >= maxFrames {
			return false
		}
		if p, ok := w.reports[r.Target]; ok {
			p.add(r)
			in.metrics.coalesced.Inc()
			if p.objectCount() > maxTargetObjects {
				tooMany = fmt.Errorf("target %s has more than %d objects: %w", r.Target, maxTargetObjects, errTooMuch)
			}
		} else if w.size() >= maxWaiting {
			return false
		} else {
			w.reports[r.Target] = newPending(r)
		}
		w.acks[s] = n
		w.frames++
		return true
	})
	return cmp.Or(tooMany, err)
}

// events takes what happened at an agent. It blocks while the agent has too much waiting.
func (in *intake) events(ctx context.Context, agent fleet.Agent, events []control.AgentEvent) error {
	return in.put(ctx, agent, func(w *waiting) bool {
		if w.size() >= maxWaiting {
			return false
		}
		w.events = append(w.events, events...)
		return true
	})
}

func (in *intake) put(ctx context.Context, agent fleet.Agent, add func(*waiting) bool) error {
	for {
		in.mu.Lock()
		added, taken := add(in.ofLocked(agent)), in.taken
		in.mu.Unlock()
		in.wake.Set()
		if added {
			return nil
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (in *intake) ofLocked(agent fleet.Agent) *waiting {
	q := in.queueLocked(agent.TenantID)
	w := q.agents[agent.ID]
	if w == nil {
		w = &waiting{agent: agent, since: time.Now(), reports: map[fleet.TargetID]*pendingReport{}, acks: map[*session]int64{}}
		q.agents[agent.ID] = w
		q.order = append(q.order, agent.ID)
	}
	return w
}

func (in *intake) queueLocked(tenant fleet.TenantID) *queue {
	q := in.queues[tenant]
	if q == nil {
		q = &queue{agents: map[fleet.AgentID]*waiting{}, busy: map[fleet.AgentID]bool{}, limit: maxBatch}
		in.queues[tenant] = q
		in.turns = append(in.turns, tenant)
	}
	return q
}

// run writes until ctx ends.
func (in *intake) run(ctx context.Context) error {
	var all sync.WaitGroup
	for range in.writers {
		all.Go(func() { in.runOne(ctx) })
	}
	all.Wait()
	return nil
}

func (in *intake) runOne(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for attempt := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-in.wake:
		case <-retry.C:
		}
		for ctx.Err() == nil {
			batch, again := in.take(time.Now())
			if len(batch) == 0 {
				retry.Reset(again)
				break
			}
			in.wake.Set() // another writer may look for more
			err := in.writeBatch(ctx, batch)
			switch {
			case err == nil:
				attempt = 0
			case ctx.Err() == nil && len(batch) == 1:
				in.log.Warn("writing statuses, trying again", obs.KeyAgent, batch[0].agent.Name, obs.Err(err))
				if attempt++; attempt > 1 {
					pause.For(ctx, retryBackoff.Delay(attempt))
				}
			}
		}
	}
}

// flush writes everything that waits, once.
func (in *intake) flush(ctx context.Context) error {
	var errs []error
	for range 1000 {
		batch, _ := in.take(time.Now().Add(24 * time.Hour))
		if len(batch) == 0 {
			break
		}
		if err := in.writeBatch(ctx, batch); err != nil {
			errs = append(errs, err)
			if len(batch) == 1 || ctx.Err() != nil {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// settle waits until everything that was taken in is written and confirmed, or ctx ends.
func (in *intake) settle(ctx context.Context) {
	for {
		in.mu.Lock()
		idle, done := len(in.queues) == 0, in.done
		in.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}
