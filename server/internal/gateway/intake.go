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
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// maxBatch limits the statuses and events of one write, so that a transaction does not grow with the fleet.
	maxBatch = 1000
	// parallelBatchSize and parallelBatchDelay decide when a second batch of a tenant is written while the first
	// one is being written: when that many statuses and events wait, or when one of them has waited that long.
	// One large batch costs the database far less than many small ones.
	parallelBatchSize  = maxBatch / 4
	parallelBatchDelay = 500 * time.Millisecond
	// maxPending limits the statuses and events that one agent may have pending. Beyond it the gateway does not
	// read the agent's stream until a batch is written. Flow control slows down that agent and no other.
	maxPending = 4096
	// maxFrames limits the status frames that one agent may have pending, including those that a newer frame of
	// the same target has replaced. Receiving them must not take the time that writing needs. An agent that
	// respects its window never reaches it.
	maxFrames = 2 * wire.StatusWindow
	// maxTargetObjects limits the objects in the pending statuses of one target. It is more than a bundle can
	// contain.
	maxTargetObjects = 50_000
)

// intake coalesces the reports of agents and writes them in batches.
//
// If nothing of a tenant is being written, a report is written at once. Otherwise it waits until the pending
// batch is large or parallelBatchDelay has passed. This is the only timer in the path of a report that succeeds.
//
// A batch contains one tenant, and tenants take turns. An agent is in one batch at a time, so that its reports
// stay in order. After a failure the batch size is halved until the agent that causes the failure is alone. That
// agent waits and the others continue. Everything waits only when one agent after another fails, for example
// while the store is down.
type intake struct {
	write   func(ctx context.Context, batch []control.AgentReports) error
	log     *slog.Logger
	metrics *metrics
	wake    wait.Signal

	writers, perTenant int // concurrent batches

	mu          sync.Mutex
	queues      map[fleet.TenantID]*queue
	tenantOrder []fleet.TenantID // the keys of queues; the first one is next
	dequeued    chan struct{}    // closed and replaced when a batch was dequeued
	batchDone   chan struct{}    // closed and replaced when a batch was written or failed
}

// queue is the pending reports of one tenant.
type queue struct {
	agents  map[fleet.AgentID]*pendingAgent
	order   []fleet.AgentID        // the keys of agents; the one that has waited longest is first
	busy    map[fleet.AgentID]bool // those in a batch that is being written
	writing int                    // number of batches that are being written
	limit   int                    // current batch size
}

// pendingAgent is the pending reports of one agent.
type pendingAgent struct {
	agent     fleet.Agent
	reports   map[fleet.TargetID]*pendingReport
	events    []control.AgentEvent
	acks      map[*session]int64 // the last status frame of each session that reports contains
	frames    int                // number of frames in reports
	queuedAt  time.Time          // when the first one arrived
	failed    int                // consecutive failures of a batch with this agent alone
	notBefore time.Time
}

// newIntake returns an intake that writes that many batches concurrently. If there are several writers, no tenant
// gets all of them.
func newIntake(write func(context.Context, []control.AgentReports) error, writers int, log *slog.Logger, m *metrics) *intake {
	return &intake{
		write: write, log: log, metrics: m, wake: wait.NewSignal(), writers: writers, perTenant: max(1, writers-(writers+3)/4),
		queues: map[fleet.TenantID]*queue{}, dequeued: make(chan struct{}), batchDone: make(chan struct{}),
	}
}

func (w *pendingAgent) size() int { return len(w.reports) + len(w.events) }

// status adds the n-th status frame of a session. It blocks while the agent has too much pending.
func (in *intake) status(ctx context.Context, s *session, n int64, r store.Report) error {
	var tooMany error
	err := in.enqueue(ctx, s.agent, func(w *pendingAgent) bool {
		if w.frames >= maxFrames {
			return false
		}
		if p, ok := w.reports[r.Target]; ok {
			p.add(r)
			in.metrics.coalesced.Inc()
			if p.objectCount() > maxTargetObjects {
				tooMany = fmt.Errorf("target %s has more than %d objects: %w", r.Target, maxTargetObjects, errTooManyObjects)
			}
		} else if w.size() >= maxPending {
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

// events adds events of an agent. It blocks while the agent has too much pending.
func (in *intake) events(ctx context.Context, agent fleet.Agent, events []control.AgentEvent) error {
	return in.enqueue(ctx, agent, func(w *pendingAgent) bool {
		if w.size() >= maxPending {
			return false
		}
		w.events = append(w.events, events...)
		return true
	})
}

func (in *intake) enqueue(ctx context.Context, agent fleet.Agent, add func(*pendingAgent) bool) error {
	for {
		in.mu.Lock()
		added, dequeued := add(in.agentLocked(agent)), in.dequeued
		in.mu.Unlock()
		in.wake.Set()
		if added {
			return nil
		}
		select {
		case <-dequeued:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (in *intake) agentLocked(agent fleet.Agent) *pendingAgent {
	q := in.queueLocked(agent.TenantID)
	w := q.agents[agent.ID]
	if w == nil {
		w = &pendingAgent{agent: agent, queuedAt: time.Now(), reports: map[fleet.TargetID]*pendingReport{}, acks: map[*session]int64{}}
		q.agents[agent.ID] = w
		q.order = append(q.order, agent.ID)
	}
	return w
}

func (in *intake) queueLocked(tenant fleet.TenantID) *queue {
	q := in.queues[tenant]
	if q == nil {
		q = &queue{agents: map[fleet.AgentID]*pendingAgent{}, busy: map[fleet.AgentID]bool{}, limit: maxBatch}
		in.queues[tenant] = q
		in.tenantOrder = append(in.tenantOrder, tenant)
	}
	return q
}

// run writes batches until ctx ends.
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
			batch, retryIn := in.dequeue(time.Now())
			if len(batch) == 0 {
				retry.Reset(retryIn)
				break
			}
			in.wake.Set() // another writer may take the next batch
			err := in.writeBatch(ctx, batch)
			switch {
			case err == nil:
				attempt = 0
			case ctx.Err() == nil && len(batch) == 1:
				in.log.Warn("writing statuses failed, retrying", obs.KeyAgent, batch[0].agent.Name, obs.Err(err))
				if attempt++; attempt > 1 {
					wait.For(ctx, retryDelay(attempt))
				}
			}
		}
	}
}

// flush writes everything that is pending, once.
func (in *intake) flush(ctx context.Context) error {
	var errs []error
	for range 1000 {
		batch, _ := in.dequeue(time.Now().Add(24 * time.Hour))
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

// waitIdle waits until everything that was added is written and confirmed, or until ctx ends.
func (in *intake) waitIdle(ctx context.Context) {
	for {
		in.mu.Lock()
		idle, done := len(in.queues) == 0, in.batchDone
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
