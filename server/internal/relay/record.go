package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// maxUnrecorded limits the queue. Events of reads above it are lost, and counted in the log.
	maxUnrecorded = 16 << 10
	maxBatch      = 256
)

// recorder writes audit events in batches. Events of requests that change something are written before the request, by
// recordNow.
type recorder struct {
	write func(ctx context.Context, events []fleet.AuditEvent) error
	log   *slog.Logger
	wake  wait.Signal

	mu     sync.Mutex
	events []fleet.AuditEvent
	lost   int
}

func newRecorder(write func(ctx context.Context, events []fleet.AuditEvent) error, log *slog.Logger) *recorder {
	return &recorder{write: write, log: log, wake: wait.NewSignal()}
}

// recordNow writes an event before it returns.
func (r *recorder) recordNow(ctx context.Context, e fleet.AuditEvent) error {
	return r.write(ctx, []fleet.AuditEvent{e})
}

// record queues an event. It does not wait: the request has ended, and its client would wait too.
func (r *recorder) record(e fleet.AuditEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) >= maxUnrecorded {
		r.lost++
		return
	}
	r.events = append(r.events, e)
	r.wake.Set()
}

// run writes the queued events until ctx ends, and then the rest.
func (r *recorder) run(ctx context.Context) {
	var backoff wait.Backoff
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.wake:
			if err := r.flush(ctx); err != nil {
				r.log.Warn("writing audit events failed, retrying", obs.Err(err))
				wait.For(ctx, backoff.NextJittered(100*time.Millisecond, 5*time.Second))
				r.wake.Set()
				continue
			}
			backoff.Reset()
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := r.flush(last); err != nil {
		r.log.Error("audit events of tunnels are lost", obs.Err(err))
	}
}

// next returns the oldest events.
func (r *recorder) next() []fleet.AuditEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost > 0 {
		r.log.Error("audit events of tunnels are lost: the database is too slow", "events", r.lost)
		r.lost = 0
	}
	return r.events[:min(len(r.events), maxBatch)]
}

// done removes the oldest events.
func (r *recorder) done(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events = r.events[n:]; len(r.events) == 0 {
		r.events = nil
	}
}

// flush writes all queued events.
func (r *recorder) flush(ctx context.Context) error {
	for {
		batch := r.next()
		if len(batch) == 0 {
			return nil
		}
		err := r.write(ctx, batch)
		if errors.Is(err, store.ErrNotFound) {
			err = r.writeEach(ctx, batch)
		}
		if err != nil {
			return err
		}
		r.done(len(batch))
	}
}

// writeEach writes events one by one, without those of a tenant that was deleted in the meantime.
func (r *recorder) writeEach(ctx context.Context, batch []fleet.AuditEvent) error {
	for _, e := range batch {
		err := r.write(ctx, []fleet.AuditEvent{e})
		if errors.Is(err, store.ErrNotFound) {
			r.log.Info("the tenant of an audit event was deleted", "action", e.Action, "actor", e.Actor, "detail", e.Detail)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}
