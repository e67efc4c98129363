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

func expectNone(t *testing.T, ch <-chan string, what string) {
	t.Helper()
	select {
	case replica := <-ch:
		t.Errorf("%s: %s", what, replica)
	default:
	}
}

// covers: D6
func TestTermContinuesAfterAPIServerOutage(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	a := c.start(t, "a")
	expect(t, c.startedTerm, "a")
	expect(t, c.startedLeading, "a")
	a.network.block()
	blocked := time.Now()
	expect(t, c.stoppedLeading, "a")
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if !a.following.Load() || time.Since(blocked) < 2*short.duration {
			return errors.New("the Lease may not have expired")
		}
		return nil
	})
	if a.Leads() {
		t.Error("a may change the cluster without knowing whether another replica leads")
	}
	a.network.restore()
	expect(t, c.startedLeading, "a")
	expectNone(t, c.stoppedTerm, "the term stopped although no other replica led")
	expectNone(t, c.startedTerm, "a second term started")
	if err := a.stop(); err != nil {
		t.Errorf("a ended with %v", err)
	}
	expect(t, c.stoppedTerm, "a")
}

// covers: D6
func TestTermStopsWhenAnotherReplicaHasLed(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	cases := []struct {
		reason string
		then   func(b *candidate)
	}{
		{"another replica leads", func(*candidate) {}},
		{"another replica led and released the Lease", func(b *candidate) { _ = b.stop() }},
	}
	for _, tt := range cases {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			c := &election{cluster: c.cluster, namespace: c.cluster.Namespace(t), timing: short, log: c.log,
				startedLeading: make(chan string, 64), stoppedLeading: make(chan string, 64), startedTerm: make(chan string, 64), stoppedTerm: make(chan string, 64)}
			a := c.start(t, "a")
			expect(t, c.startedTerm, "a")
			expect(t, c.startedLeading, "a")
			a.network.block()
			expect(t, c.stoppedLeading, "a")
			b := c.start(t, "b")
			expectEventually(t, c.startedTerm, "b")
			expectEventually(t, c.startedLeading, "b")
			expectNone(t, c.stoppedTerm, "a replica without a network stopped its term")
			tt.then(b)
			a.network.restore()
			for replica := ""; replica != "a"; { // the term of b may stop too
				select {
				case replica = <-c.stoppedTerm:
				case <-time.After(testTimeout):
					t.Fatal("the term of a continues after b has led")
				}
			}
		})
	}
}

func TestFailedTermStopsTheElector(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	broken := errors.New("broken")
	replica := c.start(t, "idle") // for its client
	_ = replica.stop()
	e, err := newElector(replica.cfg, short)
	if err != nil {
		t.Fatal(err)
	}
	err = e.Run(t.Context(), func(context.Context) (Term, error) { return failing{broken}, nil }, func(ctx context.Context) error { <-ctx.Done(); return nil })
	if !errors.Is(err, broken) {
		t.Errorf("Run() = %v, want the error of the term", err)
	}
	if e.Leads() {
		t.Error("it still leads")
	}
}

type failing struct{ err error }

func (f failing) Run(context.Context) error      { return f.err }
func (f failing) Lead(ctx context.Context) error { <-ctx.Done(); return nil }

func TestFenceCancelsRequestsInFlight(t *testing.T) {
	t.Parallel()
	var f Fence
	f.extend(time.Now(), time.Minute)
	arrived := make(chan struct{})
	transport := f.Wrap(roundTripperFunc(func(r *http.Request) (*http.Response, error) {
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
	f.close()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a request in flight when the fence closes ends with %v", err)
	}
	if len(f.inFlight) != 0 {
		t.Errorf("%d finished requests are recorded as in flight", len(f.inFlight))
	}
}
