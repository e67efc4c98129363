package gitsource

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestAHostIsAskedOnlySoOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		start := time.Now()
		for range hostBurst/2 + perHostMinute/2 {
			if err := p.wait(t.Context(), "a", "host"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("an owner's share of a minute took %s", took)
		}
		start = time.Now()
		for _, err := range []error{p.wait(t.Context(), "b", "host"), p.wait(t.Context(), "a", "other"), p.wait(t.Context(), "a", "")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("another owner, another host and no host waited %s", took)
		}
		<-time.After(time.Hour)
		for i := range manyHosts + 2 {
			if err := p.wait(t.Context(), "a", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if len(p.shares) > manyHosts+2 || p.shares[asker{owner: "b", host: "host"}] != nil {
			t.Errorf("%d hosts are remembered", len(p.shares))
		}
	})
}

// newTestRoute returns a route to nowhere.
func newTestRoute(b *budget, owner string) *route {
	return &route{
		url: "https://host/app", who: asker{owner: owner, host: "host"}, budget: b, timeout: time.Minute,
		way: func(context.Context, service) (*passage, error) { return &passage{}, nil },
	}
}

// A call that waits for its turn has not begun: what hangs before it does not make it fail.
func TestWaitingForATurnIsNotPartOfTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(8, defaultMostAtOnce) // one owner has one turn at a host
		slow, waiting := newTestRoute(b, "a"), newTestRoute(b, "a")
		ctx, cancel := slow.within(t.Context())
		defer cancel()
		held, err := slow.open(ctx, uploadPack)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-time.After(50 * time.Second)
			held.close()
		}()
		ctx, end := waiting.within(t.Context())
		defer end()
		p, err := waiting.open(ctx, uploadPack)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		<-time.After(59 * time.Second)
		if ctx.Err() != nil {
			t.Error("the time of waiting was counted")
		}
		<-time.After(2 * time.Second)
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("a run took longer than its timeout: %v", context.Cause(ctx))
		}
	})
}

// A host that asks to be left alone while somebody waits for it is not asked by that one either.
func TestAHostIsLeftAloneByThoseWhoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(8, defaultMostAtOnce)
		open := func(r *route) (*passage, error) {
			ctx, cancel := r.within(t.Context())
			t.Cleanup(cancel)
			return r.open(ctx, uploadPack)
		}
		busy, err := open(newTestRoute(b, "a"))
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			p, err := open(newTestRoute(b, "a"))
			p.close()
			failed <- err
		}()
		synctest.Wait()
		busy.fault.later(time.Minute)
		busy.fault.status(uploadPack, 429, "")
		busy.close()
		var remote *RemoteError
		if err := <-failed; !errors.As(err, &remote) || remote.RetryAfter != time.Minute || remote.URL == "" || remote.Detail != "HTTP 429" {
			t.Errorf("who has waited: %v", err)
		}
		if p, err := open(newTestRoute(b, "b")); err != nil {
			t.Errorf("another owner: %v", err)
		} else {
			p.close()
		}
		<-time.After(time.Minute)
		if p, err := open(newTestRoute(b, "a")); err != nil {
			t.Errorf("after a minute: %v", err)
		} else {
			p.close()
		}
		b.leaveAlone(asker{host: "other"}, &RemoteError{RetryAfter: time.Minute})
		if len(b.quiet) != 1 {
			t.Errorf("%d silences are remembered, want one", len(b.quiet))
		}
	})
}
