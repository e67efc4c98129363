package lease

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
)

func none(t *testing.T, ch <-chan string, what string) {
	t.Helper()
	select {
	case who := <-ch:
		t.Errorf("%s: %s", what, who)
	default:
	}
}

// covers: D6
func TestReignGoesOnWhenTheClusterWasAway(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	a := c.enter(t, "a")
	next(t, c.begun, "a")
	next(t, c.crowned, "a")
	a.cut.Store(true)
	cut := time.Now()
	next(t, c.ended, "a")
	testkit.Eventually(t, limit, func(context.Context) error {
		if !a.following.Load() || time.Since(cut) < 2*short.duration {
			return errors.New("the Lease may not have ended")
		}
		return nil
	})
	if a.Leads() {
		t.Error("a may change things that it cannot know whether another one does")
	}
	a.cut.Store(false)
	next(t, c.crowned, "a")
	none(t, c.over, "a reign that nobody has put an end to is over")
	none(t, c.begun, "a second reign has begun")
	if err := a.stop(); err != nil {
		t.Errorf("a ended with %v", err)
	}
	next(t, c.over, "a")
}

// covers: D6
func TestReignEndsWhenAnotherReplicaHasLed(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	cases := []struct {
		reason string
		then   func(b *candidate)
	}{
		{"another replica leads", func(*candidate) {}},
		{"another replica led and gave the Lease up", func(b *candidate) { _ = b.stop() }},
	}
	for _, tt := range cases {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			c := &court{cluster: c.cluster, namespace: c.cluster.Namespace(t), timing: short, log: c.log,
				crowned: make(chan string, 64), ended: make(chan string, 64), begun: make(chan string, 64), over: make(chan string, 64)}
			a := c.enter(t, "a")
			next(t, c.begun, "a")
			next(t, c.crowned, "a")
			a.cut.Store(true)
			next(t, c.ended, "a")
			b := c.enter(t, "b")
			eventually(t, c.begun, "b")
			eventually(t, c.crowned, "b")
			none(t, c.over, "who cannot know it has ended its reign")
			tt.then(b)
			a.cut.Store(false)
			for who := ""; who != "a"; { // b's may be over, too
				select {
				case who = <-c.over:
				case <-time.After(limit):
					t.Fatal("the reign of a goes on after b has led")
				}
			}
		})
	}
}

func TestReignThatFailsEndsEverything(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	broken := errors.New("broken")
	who := c.enter(t, "idle") // for its way to the API server
	_ = who.stop()
	e, err := newElector(who.cfg, short)
	if err != nil {
		t.Fatal(err)
	}
	err = e.Run(t.Context(), func(context.Context) (Reign, error) { return failing{broken}, nil }, func(ctx context.Context) error { <-ctx.Done(); return nil })
	if !errors.Is(err, broken) {
		t.Errorf("Run() = %v, want what the reign ended with", err)
	}
	if e.Leads() {
		t.Error("it still leads")
	}
}

type failing struct{ err error }

func (f failing) Run(context.Context) error      { return f.err }
func (f failing) Lead(ctx context.Context) error { <-ctx.Done(); return nil }

func TestFenceBreaksOffWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	var f Fence
	f.extend(time.Now(), time.Minute)
	arrived := make(chan struct{})
	transport := f.Wrap(tripper(func(r *http.Request) (*http.Response, error) {
		close(arrived)
		<-r.Context().Done()
		return nil, r.Context().Err()
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://cluster.test/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		resp, err := transport.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		done <- err
	}()
	<-arrived
	f.shut()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a request that hangs when the fence is shut ends with %v", err)
	}
	if len(f.passing) != 0 {
		t.Errorf("%d requests are remembered that are over", len(f.passing))
	}
}
