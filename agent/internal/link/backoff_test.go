package link

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/wire"
)

func TestBackoffStaysWithinItsWindows(t *testing.T) {
	t.Parallel()
	refused := &dialError{errors.New("refused")}
	lost := errors.New("lost")
	for range 200 {
		var b backoff
		window := backoffFirst
		for range 12 {
			if d := b.after(refused, 0); d < 0 || d > window {
				t.Fatalf("delay %s is not within %s", d, window)
			}
			window = min(2*window, backoffMax)
		}
		if d := b.after(&goodbye{reconnectWithin: 300 * time.Millisecond}, time.Hour); d > 300*time.Millisecond {
			t.Fatalf("after a Goodbye the delay is %s, longer than its window", d)
		}
		if d := b.after(lost, time.Hour); d > time.Second {
			t.Fatalf("after a stable connection was lost the delay is %s, longer than a second", d)
		}
		if d := b.after(refused, time.Hour); d > 2*time.Second {
			t.Fatalf("the next delay is %s, longer than two seconds", d)
		}
	}
}

// covers: C9
func TestBackoffIsJittered(t *testing.T) {
	t.Parallel()
	const fleet = 1000
	buckets := make([]int, 10)
	for range fleet {
		var b backoff
		b.attempts.Skip(7)
		buckets[int(b.after(errors.New("x"), 0)*10/backoffMax)]++
	}
	for i, n := range buckets {
		if n < fleet/20 || n > fleet/5 {
			t.Errorf("%d of %d agents reconnect in tenth %d of the window: %v", n, fleet, i, buckets)
		}
	}
}

// A server that restarts repeatedly accepts agents for a short time after each start. The delays must not become longer
// than after a single restart.
//
// covers: C9
func TestShortConnectionsDelayAtMostTenSeconds(t *testing.T) {
	t.Parallel()
	refused := &dialError{errors.New("refused")}
	lost := errors.New("lost")
	for range 200 {
		var b backoff
		for i := range 20 {
			for _, err := range []error{lost, refused} {
				if d := b.after(err, time.Second); d > 10*time.Second {
					t.Fatalf("after %d short connections the delay is %s, longer than ten seconds", i, d)
				}
			}
		}
	}
}

// While the server restarts, all attempts use the window of its Goodbye, which depends on the size of its fleet.
//
// covers: C9
func TestGoodbyeBoundsAttemptsUntilTheNextConnection(t *testing.T) {
	t.Parallel()
	refused := &dialError{errors.New("refused")}
	for _, testContext := range []time.Duration{time.Second, 3 * time.Second, 20 * time.Second} {
		var b backoff
		var longest time.Duration
		for range 20 {
			b.after(refused, 0)
		}
		if d := b.after(&goodbye{reconnectWithin: testContext}, time.Second); d > testContext {
			t.Fatalf("after a Goodbye with %s the delay is %s", testContext, d)
		}
		for range 40 {
			longest = max(longest, b.after(refused, 0))
		}
		if longest > testContext || longest < testContext/4 {
			t.Errorf("after a Goodbye with %s the longest delay is %s, want the delays spread over the window", testContext, longest)
		}
		b.after(errors.New("lost"), time.Second) // a lost connection: the agent was accepted since
		if b.goodbye != 0 {
			t.Error("the window of the Goodbye outlives the next connection")
		}
	}
	b := backoff{goodbye: time.Second}
	b.attempts.Skip(goodbyeAttempts)
	for longest := time.Duration(0); longest < 2*time.Second; {
		longest = max(longest, b.after(refused, 0)) // the window grows again while the server stays unavailable
	}
}

// covers: C12 (the agent's side)
func TestThrottledAgentWaits(t *testing.T) {
	t.Parallel()
	err := &beforeWelcomeError{status.Error(codes.ResourceExhausted, "slow down")}
	for _, lived := range []time.Duration{0, time.Hour} {
		var b backoff
		last := time.Duration(0)
		for i := range 10 {
			delay := b.after(err, lived)
			if delay < 2*time.Second || delay > refusedMax {
				t.Errorf("delay %d is %v, want at least 2 s and at most %v", i, delay, refusedMax)
			}
			last = delay
		}
		if last < refusedMax/2 {
			t.Errorf("after many refusals the delay is %v, want a longer one", last)
		}
	}
}

// covers: C11
func TestRunRetriesForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := NewMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		attempts := 0
		c, err := New(Config{
			Address: "grpc://127.0.0.1:1", Tokens: TokenFile(t.TempDir() + "/missing"), Log: slog.New(slog.DiscardHandler), Metrics: metrics,
			Hello:    func(context.Context) wire.Hello { return wire.Hello{} },
			Welcomed: func(context.Context, wire.Welcome) (Engine, []engine.Held, error) { return nil, nil, nil },
			Proxy:    nil,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.log = slog.New(countingHandler{Handler: slog.DiscardHandler, n: &attempts})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
		// With full jitter the mean delay is half of the cap: about 240 attempts in an hour.
		if attempts < 150 || attempts > 400 {
			t.Errorf("%d attempts in an hour, want about 240", attempts)
		}
		if c.Ready(ctx) == nil {
			t.Error("Ready() = nil without a connection")
		}
	})
}

type countingHandler struct {
	slog.Handler
	n *int
}

func (h countingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h countingHandler) Handle(context.Context, slog.Record) error {
	*h.n++
	return nil
}
