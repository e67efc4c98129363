package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
)

// term is the time that this replica leads for.
type term struct {
	elector  *Elector
	ctx      context.Context // ends with the term
	cancel   context.CancelCauseFunc
	renewing sync.WaitGroup
	renewed  time.Time // when the last renewal that succeeded was sent
}

// begin starts to renew the Lease that was just taken; sent is when that was asked for.
func (e *Elector) begin(ctx context.Context, sent time.Time) *term {
	t := &term{elector: e, renewed: sent}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.renewing.Go(t.run)
	return t
}

// errLost says that somebody else leads, or has.
var errLost = errors.New("another replica has taken the Lease, or it was taken from this one")

// run renews until the term ends, or ends it.
func (t *term) run() {
	timing := t.elector.timing
	due := time.NewTimer(timing.renew)
	defer due.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-due.C:
		case <-t.elector.changed:
			if t.elector.sighted().holder() == t.elector.holder {
				continue
			}
			// Somebody else, nobody, or what was there before: the next write tells.
		}
		due.Reset(t.renew())
	}
}

// renew writes the Lease once more, ends the term when that is hopeless, and returns when to do so
// again.
func (t *term) renew() time.Duration {
	e := t.elector
	deadline := t.renewed.Add(e.timing.deadline)
	ctx, cancel := context.WithDeadline(t.ctx, deadline)
	defer cancel()
	sent, err := t.write(ctx)
	if isRace(err) {
		if err = e.look(ctx); err == nil {
			sent, err = t.write(ctx) // an answer was lost, or it was deleted
		}
	}
	if errors.Is(err, errLost) {
		t.lose(err)
		return e.timing.renew
	}
	switch {
	case t.ctx.Err() != nil:
	case err == nil:
		t.renewed = sent
		e.fence.extend(sent, e.timing.deadline)
		e.setProblem(nil)
		// An answer may have been waited for beyond the deadline by a process that was stopped.
		return min(e.timing.renew, max(0, time.Until(sent.Add(e.timing.deadline))))
	case !time.Now().Before(deadline):
		t.lose(fmt.Errorf("the Lease could not be renewed for %v: %w", e.timing.deadline, err))
	default:
		e.cfg.Log.Warn("renewing the Lease, trying again", obs.Err(err))
	}
	return min(e.timing.retry, max(0, time.Until(deadline)))
}

// write renews the Lease as it was seen, unless it is seen not to be held by this process, and still is not:
// who has given it up, or was deprived of it, has led meanwhile. One that was deleted is made anew.
func (t *term) write(ctx context.Context) (sent time.Time, err error) {
	e := t.elector
	others := func(s sighting) bool { return s.object != nil && s.holder() != e.holder }
	seen := e.sighted()
	if others(seen) { // events come late: it may be who held it before
		if err := e.look(ctx); err != nil {
			return time.Time{}, err
		}
		if seen = e.sighted(); others(seen) {
			return time.Time{}, errLost
		}
	}
	sent = time.Now()
	return sent, e.write(ctx, seen, e.holder)
}

func (t *term) lose(why error) {
	t.elector.fence.shut()
	t.cancel(why)
}

// end gives the Lease up, if it is still held, and returns why the term has ended. The work of the
// term is over.
func (t *term) end() error {
	t.cancel(context.Canceled)
	t.renewing.Wait()
	why := context.Cause(t.ctx)
	e := t.elector
	held := e.fence.holds()
	e.fence.shut()
	if held {
		// The context of whoever stops has ended by now.
		ctx := context.WithoutCancel(t.ctx)
		err := e.write(ctx, e.sighted(), "")
		if isRace(err) && e.look(ctx) == nil && e.sighted().holder() == e.holder {
			err = e.write(ctx, e.sighted(), "") // the answer to a renewal was lost
		}
		if err != nil {
			e.cfg.Log.Warn("giving up the Lease: others take it when it ends", obs.Err(err))
		}
	}
	return why
}
