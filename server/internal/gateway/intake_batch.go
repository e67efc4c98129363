package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// take removes whole agents of the tenant whose turn it is from what waits, up to the limit of a
// batch; when none may be written yet it says how long to wait.
func (in *intake) take(now time.Time) (batch []*waiting, again time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	again = time.Hour
	for range len(in.turns) {
		tenant := in.turns[0]
		in.turns = append(in.turns[1:], tenant)
		q := in.queues[tenant]
		if q.writing >= in.perTenant {
			continue // whoever is done first looks again
		}
		if wait := q.untilBesides(now); wait > 0 {
			again = min(again, wait)
			continue
		}
		batch, wait := q.take(now)
		if len(batch) > 0 {
			q.writing++
			close(in.taken)
			in.taken = make(chan struct{})
			return batch, 0
		}
		again = min(again, wait)
	}
	return nil, again
}

// untilBesides is how long a batch beside those that are being written is not worth it; whoever is done
// with one takes what waits then.
func (q *queue) untilBesides(now time.Time) time.Duration {
	if q.writing == 0 {
		return 0
	}
	size, wait := 0, time.Hour
	for _, id := range q.order {
		if q.busy[id] {
			continue
		}
		w := q.agents[id]
		if size += w.size(); size >= besides {
			return 0
		}
		wait = min(wait, max(0, w.since.Add(besidesAfter).Sub(now)))
	}
	return wait
}

func (q *queue) take(now time.Time) (batch []*waiting, again time.Duration) {
	again = time.Hour
	size, full := 0, false
	q.order = slices.DeleteFunc(q.order, func(id fleet.AgentID) bool {
		if full || q.busy[id] {
			return false
		}
		w := q.agents[id]
		if wait := w.notYet.Sub(now); wait > 0 {
			again = min(again, wait)
			return false
		}
		alone := w.failed > 0
		if size > 0 && (alone || size+w.size() > q.limit) {
			return false
		}
		delete(q.agents, id)
		q.busy[id] = true
		batch = append(batch, w)
		size += w.size()
		full = alone || size >= q.limit
		return true
	})
	return batch, again
}

// writeBatch writes what take returned, and confirms it or puts it back.
func (in *intake) writeBatch(ctx context.Context, batch []*waiting) error {
	tenant := batch[0].agent.TenantID
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
	err := in.write(ctx, out)
	if err == nil {
		for _, w := range batch { // before the intake looks settled
			for s, n := range w.acks {
				s.confirm(n)
			}
		}
		in.metrics.reportBatch.Observe(float64(size))
	} else {
		in.metrics.reportFailed.Inc()
		err = fmt.Errorf("writing %d statuses and events of %d agents: %w", size, len(batch), err)
	}
	in.finished(tenant, batch, size, err != nil)
	return err
}

// finished ends a batch of a tenant.
func (in *intake) finished(tenant fleet.TenantID, batch []*waiting, size int, failed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	q := in.queues[tenant]
	q.writing--
	for _, w := range batch {
		delete(q.busy, w.agent.ID)
	}
	if failed {
		q.putBack(batch, size)
	} else {
		q.limit = min(maxBatch, q.limit*2)
	}
	if len(q.agents) == 0 && q.writing == 0 {
		in.dropLocked(tenant)
	}
	close(in.done)
	in.done = make(chan struct{})
}

func (in *intake) dropLocked(tenant fleet.TenantID) {
	delete(in.queues, tenant)
	for i, t := range in.turns {
		if t == tenant {
			in.turns = append(in.turns[:i], in.turns[i+1:]...)
			return
		}
	}
}

// putBack lays what came in meanwhile over a batch that failed.
func (q *queue) putBack(batch []*waiting, size int) {
	q.limit = max(1, size/2)
	var first []fleet.AgentID
	for _, old := range batch {
		if len(batch) == 1 {
			old.notYet = time.Now().Add(retryBackoff.Delay(old.failed))
			old.failed++
		}
		if newer := q.agents[old.agent.ID]; newer != nil {
			for target, p := range newer.reports {
				if before, ok := old.reports[target]; ok {
					before.add(p.report())
				} else {
					old.reports[target] = p
				}
			}
			old.events, old.frames = append(old.events, newer.events...), old.frames+newer.frames
			for s, n := range newer.acks {
				old.acks[s] = n
			}
		} else {
			first = append(first, old.agent.ID)
		}
		q.agents[old.agent.ID] = old
	}
	q.order = append(first, q.order...)
}
