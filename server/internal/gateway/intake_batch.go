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

// dequeue removes a batch of whole agents of the next tenant. If no batch can be written yet it returns when to
// try again.
func (in *intake) dequeue(now time.Time) (batch []*pendingAgent, retryIn time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	retryIn = time.Hour
	for range len(in.tenantOrder) {
		tenant := in.tenantOrder[0]
		in.tenantOrder = append(in.tenantOrder[1:], tenant)
		q := in.queues[tenant]
		if q.writing >= in.perTenant {
			continue // a finished batch wakes a writer
		}
		if wait := q.untilParallelBatch(now); wait > 0 {
			retryIn = min(retryIn, wait)
			continue
		}
		batch, wait := q.dequeue(now)
		if len(batch) > 0 {
			q.writing++
			close(in.dequeued)
			in.dequeued = make(chan struct{})
			return batch, 0
		}
		retryIn = min(retryIn, wait)
	}
	return nil, retryIn
}

// untilParallelBatch returns how long to wait before another batch is worth writing in parallel. A writer that
// finishes earlier writes it.
func (q *queue) untilParallelBatch(now time.Time) time.Duration {
	if q.writing == 0 {
		return 0
	}
	size, wait := 0, time.Hour
	for _, id := range q.order {
		if q.busy[id] {
			continue
		}
		w := q.agents[id]
		if size += w.size(); size >= parallelBatchSize {
			return 0
		}
		wait = min(wait, max(0, w.queuedAt.Add(parallelBatchDelay).Sub(now)))
	}
	return wait
}

func (q *queue) dequeue(now time.Time) (batch []*pendingAgent, retryIn time.Duration) {
	retryIn = time.Hour
	size, full := 0, false
	q.order = slices.DeleteFunc(q.order, func(id fleet.AgentID) bool {
		if full || q.busy[id] {
			return false
		}
		w := q.agents[id]
		if wait := w.notBefore.Sub(now); wait > 0 {
			retryIn = min(retryIn, wait)
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
	return batch, retryIn
}

// writeBatch writes a batch from dequeue. It confirms the batch, or makes it pending again.
func (in *intake) writeBatch(ctx context.Context, batch []*pendingAgent) error {
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
		for _, w := range batch { // before waitIdle returns
			for s, n := range w.acks {
				s.confirm(n)
			}
		}
		in.metrics.reportBatch.Observe(float64(size))
	} else {
		in.metrics.reportFailed.Inc()
		err = fmt.Errorf("writing %d statuses and events of %d agents: %w", size, len(batch), err)
	}
	in.finishBatch(tenant, batch, size, err != nil)
	return err
}

// finishBatch updates the queue of a tenant after a batch.
func (in *intake) finishBatch(tenant fleet.TenantID, batch []*pendingAgent, size int, failed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	q := in.queues[tenant]
	q.writing--
	for _, w := range batch {
		delete(q.busy, w.agent.ID)
	}
	if failed {
		q.requeue(batch, size)
	} else {
		q.limit = min(maxBatch, q.limit*2)
	}
	if len(q.agents) == 0 && q.writing == 0 {
		in.dropLocked(tenant)
	}
	close(in.batchDone)
	in.batchDone = make(chan struct{})
}

func (in *intake) dropLocked(tenant fleet.TenantID) {
	delete(in.queues, tenant)
	for i, t := range in.tenantOrder {
		if t == tenant {
			in.tenantOrder = append(in.tenantOrder[:i], in.tenantOrder[i+1:]...)
			return
		}
	}
}

// requeue makes a failed batch pending again and merges the reports that arrived in the meantime into it.
func (q *queue) requeue(batch []*pendingAgent, size int) {
	q.limit = max(1, size/2)
	var first []fleet.AgentID
	for _, old := range batch {
		if len(batch) == 1 {
			old.notBefore = time.Now().Add(retryDelay(old.failed))
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
