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
		window := backoffStart
		for range 12 {
			if d := b.after(refused, 0); d < 0 || d > window {
				t.Fatalf("delay %s is not within %s", d, window)
			}
			window = min(2*window, backoffCap)
		}
		if d := b.after(&goodbye{within: 300 * time.Millisecond}, time.Hour); d > 300*time.Millisecond {
			t.Fatalf("after a goodbye it waits %s, longer than it was told", d)
		}
		if d := b.after(lost, time.Hour); d > time.Second {
			t.Fatalf("after a good connection broke off it waits %s, longer than a second", d)
		}
		if d := b.after(refused, time.Hour); d > 2*time.Second {
			t.Fatalf("the attempt after that waits %s, longer than two seconds", d)
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
		buckets[int(b.after(errors.New("x"), 0)*10/backoffCap)]++
	}
	for i, n := range buckets {
		if n < fleet/20 || n > fleet/5 {
			t.Errorf("%d of %d agents come back in tenth %d of the window: %v", n, fleet, i, buckets)
		}
	}
}

// A server that is restarted again and again lets agents in for a moment each time. No push may wait
// longer for them than for a server that was killed once.
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
					t.Fatalf("after %d short connections the agent waits %s, longer than ten seconds", i, d)
				}
			}
		}
	}
}

// While a server that said when to come back is away, attempts keep to that window: it is as wide as the
// server's fleet needs.
//
// covers: C9
func TestGoodbyeBoundsAttemptsUntilTheNextConnection(t *testing.T) {
	t.Parallel()
	refused := &dialError{errors.New("refused")}
	for _, within := range []time.Duration{time.Second, 3 * time.Second, 20 * time.Second} {
		var b backoff
		var longest time.Duration
		for range 20 {
			b.after(refused, 0)
		}
		if d := b.after(&goodbye{within: within}, time.Second); d > within {
			t.Fatalf("after a goodbye that says %s the agent waits %s", within, d)
		}
		for range 40 {
			longest = max(longest, b.after(refused, 0))
		}
		if longest > within || longest < within/4 {
			t.Errorf("after a goodbye that says %s the longest delay is %s, want it within that and spread over it", within, longest)
		}
		b.after(errors.New("lost"), time.Second) // it was let in meanwhile, so that what was said is over
		if b.announced != 0 {
			t.Error("what the goodbye said outlives the next connection")
		}
	}
	b := backoff{announced: time.Second}
	b.attempts.Skip(announcedTries)
	for longest := time.Duration(0); longest < 2*time.Second; {
		longest = max(longest, b.after(refused, 0)) // a server that stays away is asked less often
	}
}

// covers: C12 (the agent's side)
func TestServerThatWantsLessIsGivenTime(t *testing.T) {
	t.Parallel()
	err := &unwelcome{status.Error(codes.ResourceExhausted, "slow down")}
	for _, lived := range []time.Duration{0, time.Hour} {
		var b backoff
		last := time.Duration(0)
		for i := range 10 {
			delay := b.after(err, lived)
			if delay < 2*time.Second || delay > refusedCap {
				t.Errorf("delay %d is %v, want at least 2 s and at most %v", i, delay, refusedCap)
			}
			last = delay
		}
		if last < refusedCap/2 {
			t.Errorf("after many refusals the delay is %v, want it to have grown", last)
		}
	}
}

// covers: C11
func TestRunBacksOffAndNeverGivesUp(t *testing.T) {
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
