package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
)

// renewal renews the Lease from when this replica acquires it until it releases or loses it.
type renewal struct {
	elector *Elector
	ctx     context.Context // ends when this replica stops leading
	cancel  context.CancelCauseFunc
	loop    sync.WaitGroup
	renewed time.Time // when the last successful renewal was sent
}

// startRenewal starts to renew the Lease, which this replica has just acquired with a request that it sent at sent.
func (e *Elector) startRenewal(ctx context.Context, sent time.Time) *renewal {
	r := &renewal{elector: e, renewed: sent}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.loop.Go(r.run)
	return r
}

// errLost means that another replica leads or may have led.
var errLost = errors.New("another replica has acquired the Lease, or its holder was removed")

// run renews the Lease until the leadership ends.
func (r *renewal) run() {
	timing := r.elector.timing
	due := time.NewTimer(timing.renew)
	defer due.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-due.C:
		case <-r.elector.changed:
			if r.elector.observed().holder() == r.elector.identity {
				continue
			}
			// The event may be late and show an earlier holder. The next renewal fails if this replica has lost the Lease.
		}
		due.Reset(r.renew())
	}
}

// renew renews the Lease once. It ends the leadership when the Lease is lost or the deadline has passed, and otherwise
// returns when to renew next.
func (r *renewal) renew() time.Duration {
	e := r.elector
	deadline := r.renewed.Add(e.timing.deadline)
	ctx, cancel := context.WithDeadline(r.ctx, deadline)
	defer cancel()
	sent, err := r.write(ctx)
	if isConflict(err) {
		// The response to the previous renewal was lost, or the Lease was deleted.
		if err = e.refresh(ctx); err == nil {
			sent, err = r.write(ctx)
		}
	}
	if errors.Is(err, errLost) {
		r.lose(err)
		return e.timing.renew
	}
	switch {
	case r.ctx.Err() != nil:
	case err == nil:
		r.renewed = sent
		e.fence.extend(sent, e.timing.deadline)
		e.setProblem(nil)
		// A process that was suspended while it waited for the response may be past the new deadline already.
		return min(e.timing.renew, max(0, time.Until(sent.Add(e.timing.deadline))))
	case !time.Now().Before(deadline):
		r.lose(fmt.Errorf("the Lease could not be renewed for %v: %w", e.timing.deadline, err))
	default:
		e.cfg.Log.Warn("renewing the Lease failed, retrying", obs.Err(err))
	}
	return min(e.timing.retry, max(0, time.Until(deadline)))
}

// write renews the observed Lease, and creates it if it was deleted. It fails with errLost when the Lease exists and this
// process is not its holder: another replica may have led, even if the Lease has no holder now.
func (r *renewal) write(ctx context.Context) (sent time.Time, err error) {
	e := r.elector
	lost := func(l observedLease) bool { return l.object != nil && l.holder() != e.identity }
	lease := e.observed()
	if lost(lease) { // a late event may show an earlier holder
		if err := e.refresh(ctx); err != nil {
			return time.Time{}, err
		}
		if lease = e.observed(); lost(lease) {
			return time.Time{}, errLost
		}
	}
	sent = time.Now()
	return sent, e.write(ctx, lease, e.identity)
}

func (r *renewal) lose(reason error) {
	r.elector.fence.close()
	r.cancel(reason)
}

// release stops the renewals, releases the Lease if this replica still holds it, and returns why the leadership ended. The
// caller has stopped all work that needs the leadership.
func (r *renewal) release() error {
	r.cancel(context.Canceled)
	r.loop.Wait()
	reason := context.Cause(r.ctx)
	e := r.elector
	leads := e.fence.isOpen()
	e.fence.close()
	if leads {
		ctx := context.WithoutCancel(r.ctx)
		err := e.write(ctx, e.observed(), "")
		if isConflict(err) && e.refresh(ctx) == nil && e.observed().holder() == e.identity {
			err = e.write(ctx, e.observed(), "") // the response to a renewal was lost
		}
		if err != nil {
			e.cfg.Log.Warn("releasing the Lease failed: another replica can acquire it when it expires", obs.Err(err))
		}
	}
	return reason
}
