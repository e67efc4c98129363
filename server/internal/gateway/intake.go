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
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// maxBatch bounds how many statuses and events one write takes, so that no transaction grows
	// with the fleet.
	maxBatch = 1000
	// maxWaiting bounds what one agent may have waiting. Beyond it the agent's stream is not read
	// until a batch is written: flow control slows that agent and nobody else.
	maxWaiting = 4096
	// maxTargetObjects bounds what the statuses of one target may add up to: more than a bundle can hold.
	maxTargetObjects = 50_000
)

// intake coalesces what agents report and writes it in batches, as fast as the writes go: there is
// no timer in the path. A batch that fails is halved at once until the agent that spoils it is
// alone; that one waits, the others go on. Only when one agent after the other fails (the store is
// down) does everybody wait.
type intake struct {
	write   func(ctx context.Context, batch []control.AgentReports) error
	log     *slog.Logger
	metrics *metrics
	wake    chan struct{}

	mu      sync.Mutex
	agents  map[fleet.AgentID]*waiting
	taken   chan struct{} // closed and replaced whenever a batch was taken
	done    chan struct{} // closed and replaced whenever a batch was written, or failed
	writing bool
	limit   int // statuses per batch now
}

// waiting is what one agent has said and nobody has written.
type waiting struct {
	agent   fleet.Agent
	reports map[fleet.TargetID]*pendingReport
	events  []control.AgentEvent
	acks    map[*session]int64 // status frames of that session up to here are in reports
	failed  int                // times that this agent's batch of one failed
	notYet  time.Time
}

func newIntake(write func(context.Context, []control.AgentReports) error, log *slog.Logger, m *metrics) *intake {
	return &intake{
		write: write, log: log, metrics: m, wake: make(chan struct{}, 1),
		agents: map[fleet.AgentID]*waiting{}, taken: make(chan struct{}), done: make(chan struct{}), limit: maxBatch,
	}
}

func (w *waiting) size() int { return len(w.reports) + len(w.events) }

// status takes the n-th status frame of a session. It blocks while the agent has too much waiting.
func (in *intake) status(ctx context.Context, s *session, n int64, r store.Report) error {
	var tooMany error
	err := in.put(ctx, s.agent, func(w *waiting) bool {
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
		signal(in.wake)
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
	w := in.agents[agent.ID]
	if w == nil {
		w = &waiting{agent: agent, reports: map[fleet.TargetID]*pendingReport{}, acks: map[*session]int64{}}
		in.agents[agent.ID] = w
	}
	return w
}

// run writes until ctx ends.
func (in *intake) run(ctx context.Context) error {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for attempt := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-in.wake:
		case <-retry.C:
		}
		for ctx.Err() == nil {
			batch, again := in.take(time.Now())
			if len(batch) == 0 {
				retry.Reset(again)
				break
			}
			err := in.writeBatch(ctx, batch)
			switch {
			case err == nil:
				attempt = 0
			case ctx.Err() == nil && len(batch) == 1:
				in.log.Warn("writing statuses, trying again", obs.KeyAgent, batch[0].agent.Name, obs.Err(err))
				if attempt++; attempt > 1 {
					pause(ctx, retryDelay(attempt))
				}
			}
		}
	}
}

// flush writes everything that waits, once.
func (in *intake) flush(ctx context.Context) error {
	var errs []error
	for range 100 {
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

// take removes whole agents from what waits, up to the limit of a batch; when none may be written
// yet it says how long to wait.
func (in *intake) take(now time.Time) (batch []*waiting, again time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	again = time.Hour
	size := 0
	for id, w := range in.agents {
		if wait := w.notYet.Sub(now); wait > 0 {
			again = min(again, wait)
			continue
		}
		alone := w.failed > 0
		if size > 0 && (alone || size+w.size() > in.limit) {
			continue
		}
		delete(in.agents, id)
		batch = append(batch, w)
		size += w.size()
		if alone || size >= in.limit {
			break
		}
	}
	if len(batch) > 0 {
		in.writing = true
		close(in.taken)
		in.taken = make(chan struct{})
	}
	return batch, again
}

// settle waits until everything that was taken in is written and confirmed, or ctx ends.
func (in *intake) settle(ctx context.Context) {
	for {
		in.mu.Lock()
		idle, done := len(in.agents) == 0 && !in.writing, in.done
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

func (in *intake) finished() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.writing = false
	close(in.done)
	in.done = make(chan struct{})
}

func (in *intake) writeBatch(ctx context.Context, batch []*waiting) error {
	defer in.finished()
	out := make([]control.AgentReports, 0, len(batch))
	size := 0
	for _, w := range batch {
		r := control.AgentReports{Agent: w.agent, Events: w.events, Reports: make([]store.Report, 0, len(w.reports))}
		for _, p := range w.reports {
			r.Reports = append(r.Reports, p.report())
		}
		size += w.size()
		out = append(out, r)
	}
	if err := in.write(ctx, out); err != nil {
		in.metrics.reportFailed.Inc()
		in.putBack(batch, size)
		return fmt.Errorf("writing %d statuses and events of %d agents: %w", size, len(batch), err)
	}
	in.metrics.reportBatch.Observe(float64(size))
	in.mu.Lock()
	in.limit = min(maxBatch, in.limit*2)
	in.mu.Unlock()
	for _, w := range batch {
		for s, n := range w.acks {
			s.confirm(n)
		}
	}
	return nil
}

// putBack lays what came in meanwhile over a batch that failed.
func (in *intake) putBack(batch []*waiting, size int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.limit = max(1, size/2)
	for _, old := range batch {
		if len(batch) == 1 {
			old.notYet = time.Now().Add(retryDelay(old.failed))
			old.failed++
		}
		if newer := in.agents[old.agent.ID]; newer != nil {
			for target, p := range newer.reports {
				if before, ok := old.reports[target]; ok {
					before.add(p.report())
				} else {
					old.reports[target] = p
				}
			}
			old.events = append(old.events, newer.events...)
			for s, n := range newer.acks {
				old.acks[s] = n
			}
		}
		in.agents[old.agent.ID] = old
	}
}
