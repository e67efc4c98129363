package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
)

const (
	maxUnrecorded = 4096 // above this, requests wait for the database
	maxBatch      = 256
)

// recorder writes audit events in batches. Events of requests that change something are written before the request, by
// recordNow.
type recorder struct {
	write func(ctx context.Context, events []fleet.AuditEvent) error
	log   *slog.Logger
	wake  wait.Signal

	mu     sync.Mutex
	space  *sync.Cond
	events []fleet.AuditEvent
	ended  bool
}

func newRecorder(write func(ctx context.Context, events []fleet.AuditEvent) error, log *slog.Logger) *recorder {
	r := &recorder{write: write, log: log, wake: wait.NewSignal()}
	r.space = sync.NewCond(&r.mu)
	return r
}

// recordNow writes an event before it returns.
func (r *recorder) recordNow(ctx context.Context, e fleet.AuditEvent) error {
	return r.write(ctx, []fleet.AuditEvent{e})
}

// record queues an event. It waits while too many are queued.
func (r *recorder) record(e fleet.AuditEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.events) >= maxUnrecorded && !r.ended {
		r.space.Wait()
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.space.Broadcast()
}

// flush writes all queued events.
func (r *recorder) flush(ctx context.Context) error {
	for {
		r.mu.Lock()
		batch := r.events[:min(len(r.events), maxBatch)]
		r.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if err := r.write(ctx, batch); err != nil {
			return err
		}
		r.mu.Lock()
		if r.events = r.events[len(batch):]; len(r.events) == 0 {
			r.events = nil
		}
		r.space.Broadcast()
		r.mu.Unlock()
	}
}
