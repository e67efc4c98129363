package lease

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// short is a fifth of the default timing.
var short = timing{duration: 2 * time.Second, deadline: 1200 * time.Millisecond, renew: 400 * time.Millisecond, retry: 200 * time.Millisecond, request: 600 * time.Millisecond}

// testTimeout bounds every wait of a test.
const testTimeout = 30 * time.Second

// election is one Lease and its candidates. It fails the test when two of them lead at once.
type election struct {
	cluster        *testkit.Cluster
	namespace      string
	timing         timing
	log            *slog.Logger
	leading        atomic.Int32
	startedLeading chan string
	stoppedLeading chan string
	startedTerm    chan string
	stoppedTerm    chan string
}

func newElection(t *testing.T) *election {
	t.Helper()
	c := testkit.SharedCluster(t)
	return &election{
		cluster: c, namespace: c.Namespace(t), timing: short, log: slog.New(slog.DiscardHandler), startedLeading: make(chan string, 64), stoppedLeading: make(chan string, 64),
		startedTerm: make(chan string, 64), stoppedTerm: make(chan string, 64),
	}
}

// candidate is one replica. Its network can be blocked.
type candidate struct {
	*Elector
	name      string
	network   network
	requests  sync.Map // method -> *atomic.Int32
	following atomic.Bool
	stop      func() error
}

// network is a connection that can be blocked, as by a firewall that drops packets.
type network struct {
	mu       sync.Mutex
	restored chan struct{} // nil unless the network is blocked
}

func (n *network) block() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.restored == nil {
		n.restored = make(chan struct{})
	}
}

func (n *network) restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.restored != nil {
		close(n.restored)
		n.restored = nil
	}
}

// blockedUntil returns nil while the network works, and otherwise a channel that is closed when it works again.
func (n *network) blockedUntil() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.restored
}

// roundTrip wraps the transport of a candidate. A blocked network also stops responses that have started: otherwise an
// open watch would continue to deliver events.
func (c *candidate) roundTrip(expect http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		if c.network.blockedUntil() != nil {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		count, _ := c.requests.LoadOrStore(r.Method, new(atomic.Int32))
		count.(*atomic.Int32).Add(1)
		resp, err := expect.RoundTrip(r)
		if err == nil {
			resp.Body = blockedBody{resp.Body, r.Context(), &c.network}
		}
		return resp, err
	})
}

// blockedBody is the body of a response that arrives only while the network works.
type blockedBody struct {
	io.ReadCloser
	ctx     context.Context
	network *network
}

func (b blockedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for restored := b.network.blockedUntil(); restored != nil; restored = b.network.blockedUntil() {
		select {
		case <-restored:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	return n, err
}

func (c *candidate) count(method string) int32 {
	n, ok := c.requests.Load(method)
	if !ok {
		return 0
	}
	return n.(*atomic.Int32).Load()
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// start starts a candidate. It runs until stop or the end of the test.
func (c *election) start(t *testing.T, name string) *candidate {
	t.Helper()
	replica := &candidate{name: name}
	cfg := c.cluster.RESTConfig()
	cfg.Wrap(replica.roundTrip)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	replica.Elector, err = newElector(Config{
		Leases: client.Resource(leases).Namespace(c.namespace), Name: "kedge-agent", Replica: name, Log: c.log,
	}, c.timing)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- replica.Run(ctx, c.newTerm(t, replica), replica.follow) }()
	replica.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = replica.stop() })
	return replica
}

// testTerm is the term of a candidate.
type testTerm struct {
	c       *election
	t       *testing.T
	replica *candidate
}

func (c *election) newTerm(t *testing.T, replica *candidate) func(context.Context) (Term, error) {
	return func(context.Context) (Term, error) {
		c.startedTerm <- replica.name
		return testTerm{c, t, replica}, nil
	}
}

func (r testTerm) Run(ctx context.Context) error {
	<-ctx.Done()
	r.c.stoppedTerm <- r.replica.name
	return nil
}

func (r testTerm) Lead(ctx context.Context) error {
	if n := r.c.leading.Add(1); n > 1 {
		r.t.Errorf("%s leads while another replica leads", r.replica.name)
	}
	r.c.startedLeading <- r.replica.name
	<-ctx.Done()
	r.c.leading.Add(-1)
	r.c.stoppedLeading <- r.replica.name
	return nil
}

func (c *candidate) follow(ctx context.Context) error {
	c.following.Store(true)
	<-ctx.Done()
	c.following.Store(false)
	return nil
}

func expect(t *testing.T, ch <-chan string, want string) time.Time {
	t.Helper()
	select {
	case got := <-ch:
		if got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	case <-time.After(testTimeout):
		t.Fatalf("nothing from %s after %v", want, testTimeout)
	}
	return time.Now()
}

// expectEventually waits until a candidate reports and skips the reports of others: on a machine that is busy for longer
// than the deadline, a leader stops leading and starts again.
func expectEventually(t *testing.T, ch <-chan string, want string) {
	t.Helper()
	for deadline := time.After(testTimeout); ; {
		select {
		case got := <-ch:
			if got == want {
				return
			}
		case <-deadline:
			t.Fatalf("nothing from %s after %v", want, testTimeout)
		}
	}
}

// covers: D6
func TestFollowerAcquiresReleasedLeaseAtOnce(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	a := c.start(t, "a")
	expect(t, c.startedLeading, "a")
	b := c.start(t, "b")
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if !b.following.Load() {
			return errors.New("b does not follow")
		}
		return nil
	})
	startedAt := time.Now()
	if err := a.stop(); err != nil {
		t.Errorf("a ended with %v", err)
	}
	if took := expect(t, c.startedLeading, "b").Sub(startedAt); took > short.duration/2 {
		t.Errorf("b leads after %v, want at the watch event and not when the Lease expires", took)
	}
	if b.following.Load() {
		t.Error("b follows and leads")
	}
}

// covers: D6
func TestFollowerSendsNoRequestsWhileItWaits(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	a := c.start(t, "a")
	expect(t, c.startedLeading, "a")
	b := c.start(t, "b")
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if a.count(http.MethodPut) < 8 {
			return errors.New("the leader has not renewed often enough yet")
		}
		return nil
	})
	if b.count(http.MethodPut)+b.count(http.MethodPost) != 0 || b.count(http.MethodGet) > 3 {
		t.Errorf("a follower has written %d times and read %d times, want a get, a list and a watch",
			b.count(http.MethodPut)+b.count(http.MethodPost), b.count(http.MethodGet))
	}
}

// covers: D6
func TestDisconnectedLeaderStopsBeforeAnotherStarts(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	a := c.start(t, "a")
	expect(t, c.startedLeading, "a")
	c.start(t, "b")
	startedAt := time.Now()
	a.network.block()
	expect(t, c.stoppedLeading, "a")
	if a.Fence().isOpen() {
		t.Error("a may still change the cluster")
	}
	if took := expect(t, c.startedLeading, "b").Sub(startedAt); took > 2*short.duration {
		t.Errorf("b leads after %v, with a Lease of %v", took, short.duration)
	}
	a.network.restore()
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if !a.following.Load() || a.Problem() != nil {
			return errors.New("a does not follow")
		}
		return nil
	})
}

// covers: D6, O7
func TestReplicaLeadsAfterAPIServerOutage(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	a := c.start(t, "a")
	expect(t, c.startedLeading, "a")
	b := c.start(t, "b")
	a.network.block()
	b.network.block()
	expect(t, c.stoppedLeading, "a")
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if a.Problem() == nil || b.Problem() == nil {
			return errors.New("the replicas have not noticed")
		}
		return nil
	})
	a.network.restore()
	b.network.restore()
	select {
	case <-c.startedLeading:
	case <-time.After(testTimeout):
		t.Fatal("no replica leads")
	}
}

// covers: D6
func TestDeletedLeaseKeepsItsLeader(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	c.timing = defaultTiming() // long enough for a busy machine: the Lease must not expire
	a := c.start(t, "a")
	expect(t, c.startedLeading, "a")
	b := c.start(t, "b")
	testkit.Eventually(t, testTimeout, func(context.Context) error {
		if b.observed().holder() != a.identity {
			return errors.New("b has not observed yet that a leads")
		}
		return nil
	})
	client := c.cluster.Dynamic(t).Resource(leases).Namespace(c.namespace)
	for range 3 {
		if err := client.Delete(t.Context(), "kedge-agent", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, testTimeout, func(ctx context.Context) error {
			_, err := client.Get(ctx, "kedge-agent", metav1.GetOptions{})
			return err
		})
	}
	if b.count(http.MethodPost) != 0 {
		t.Error("a follower acquired a Lease whose holder is alive")
	}
	select {
	case replica := <-c.stoppedLeading:
		t.Errorf("%s lost the Lease", replica)
	default:
	}
	_ = a.stop()
	expect(t, c.startedLeading, "b")
}

func TestRemainingTimeOfALease(t *testing.T) {
	t.Parallel()
	heldBy := func(identity string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"holderIdentity": identity}}}
	}
	now := time.Now()
	timing := defaultTiming()
	cases := []struct {
		reason string
		seen   observedLease
		least  time.Duration
		most   time.Duration
	}{
		{"another replica holds it", observedLease{object: heldBy("a_1"), at: now}, timing.duration - time.Second, timing.duration},
		{"it was not renewed", observedLease{object: heldBy("a_1"), at: now.Add(-timing.duration)}, 0, 0},
		{"it was released", observedLease{object: heldBy(""), at: now}, 0, 0},
		{"it was deleted while held", observedLease{deletedFrom: "a_1", at: now}, timing.duration - time.Second, timing.duration},
		{"it was deleted while held, long ago", observedLease{deletedFrom: "a_1", at: now.Add(-timing.duration)}, 0, 0},
		{"it does not exist, and may have been deleted", observedLease{at: now}, 1, timing.retry},
		{"it has not existed for a while", observedLease{at: now.Add(-timing.retry)}, 0, 0},
	}
	for _, tt := range cases {
		e, err := New(Config{Leases: struct{ dynamic.ResourceInterface }{}, Name: "kedge-agent", Replica: "b", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.remaining(tt.seen); got < tt.least || got > tt.most {
			t.Errorf("%s: remaining %v, want between %v and %v", tt.reason, got, tt.least, tt.most)
		}
	}
}

func TestRestartedReplicaAcquiresItsLeaseAtOnce(t *testing.T) {
	t.Parallel()
	c := newElection(t)
	a := c.start(t, "a")
	expect(t, c.startedLeading, "a")
	a.network.block() // as after kill -9: the Lease is not released
	_ = a.stop()
	startedAt := time.Now()
	c.start(t, "a")
	if took := expect(t, c.startedLeading, "a").Sub(startedAt); took > short.duration/2 {
		t.Errorf("the same replica leads again after %v", took)
	}
}

func TestLeaderStopsWhenItIsNotTheHolder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ identity, reason string }{
		{"somebody", "another replica holds it"},
		{"", "another replica held and released it"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			c := newElection(t)
			c.start(t, "a")
			expect(t, c.startedTerm, "a")
			expect(t, c.startedLeading, "a")
			out := c.cluster.Kubectl(t, "-n", c.namespace, "patch", "lease", "kedge-agent", "--type=merge", "-p", `{"spec":{"holderIdentity":"`+tt.identity+`"}}`)
			if !strings.Contains(out, "patched") {
				t.Fatal(out)
			}
			expect(t, c.stoppedLeading, "a")
			expect(t, c.stoppedTerm, "a")
			expect(t, c.startedTerm, "a") // the other holder does not renew it
			expect(t, c.startedLeading, "a")
		})
	}
}

func TestFenceRejectsChangesAfterItsDeadline(t *testing.T) {
	t.Parallel()
	var f Fence
	var sent []string
	transport := f.Wrap(roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Method)
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	try := func(method string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://cluster.test/", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	cases := []struct {
		reason string
		set    func()
		method string
		want   error
	}{
		{"it never led", func() {}, http.MethodPatch, ErrNotLeading},
		{"reads are allowed", func() {}, http.MethodGet, nil},
		{"it leads", func() { f.extend(time.Now(), time.Minute) }, http.MethodPatch, nil},
		{"the renewal was sent too long ago", func() { f.extend(time.Now().Add(-time.Hour), time.Minute) }, http.MethodDelete, ErrNotLeading},
		{"the deadline has passed by the wall clock only", func() { f.deadline = time.Now().Round(0).Add(-time.Second) }, http.MethodPut, ErrNotLeading},
		{"it lost the Lease", func() { f.extend(time.Now(), time.Minute); f.close() }, http.MethodPost, ErrNotLeading},
	}
	for _, tt := range cases {
		tt.set()
		if err := try(tt.method); !errors.Is(err, tt.want) {
			t.Errorf("%s: %s = %v, want %v", tt.reason, tt.method, err, tt.want)
		}
	}
	if strings.Join(sent, " ") != "GET PATCH" {
		t.Errorf("sent %v", sent)
	}
}
