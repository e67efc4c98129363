package gitsource

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestRateOfAHostIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p hostRates
		start := time.Now()
		for range hostBurst/2 + perHostMinute/2 {
			if err := p.wait(t.Context(), "a", "host"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("the requests of an owner within its share of a minute took %s", took)
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
		for i := range sweepThreshold + 2 {
			if err := p.wait(t.Context(), "a", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if len(p.shares) > sweepThreshold+2 || p.shares[requester{owner: "b", host: "host"}] != nil {
			t.Errorf("%d limiters are in memory", len(p.shares))
		}
	})
}

// newTestRoute returns a route that connects to nothing.
func newTestRoute(b *budget, owner string) *route {
	return &route{
		url: "https://host/app", from: requester{owner: owner, host: "host"}, budget: b, timeout: time.Minute,
		connect: func(context.Context, service) (*connection, error) { return &connection{}, nil },
	}
}

// The wait for a slot does not count toward the timeout of a call.
func TestWaitForASlotIsNotPartOfTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(8, defaultMaxConcurrency) // one slot per owner and host
		slow, waiting := newTestRoute(b, "a"), newTestRoute(b, "a")
		ctx, cancel := slow.withTimeout(t.Context())
		defer cancel()
		held, err := slow.open(ctx, uploadPack)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-time.After(50 * time.Second)
			held.close()
		}()
		ctx, end := waiting.withTimeout(t.Context())
		defer end()
		p, err := waiting.open(ctx, uploadPack)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		<-time.After(59 * time.Second)
		if ctx.Err() != nil {
			t.Error("the wait for a slot counted toward the timeout")
		}
		<-time.After(2 * time.Second)
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("a run exceeded its timeout: %v", context.Cause(ctx))
		}
	})
}

// When a host asks clients to wait, requests that already wait for a slot are not sent either.
func TestBackOffAppliesToWaitingRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(8, defaultMaxConcurrency)
		open := func(r *route) (*connection, error) {
			ctx, cancel := r.withTimeout(t.Context())
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
		busy.fault.setRetryAfter(time.Minute)
		busy.fault.httpStatus(uploadPack, 429, "")
		busy.close()
		var remote *RemoteError
		if err := <-failed; !errors.As(err, &remote) || remote.RetryAfter != time.Minute || remote.URL == "" || remote.Detail != "HTTP 429" {
			t.Errorf("the waiting request returned %v", err)
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
		b.backOff(requester{host: "other"}, &RemoteError{RetryAfter: time.Minute})
		if len(b.backoffs) != 1 {
			t.Errorf("%d back-offs are in memory, want one", len(b.backoffs))
		}
	})
}
