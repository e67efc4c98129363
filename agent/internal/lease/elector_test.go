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

// short is a fifth of what a real agent takes.
var short = timing{duration: 2 * time.Second, deadline: 1200 * time.Millisecond, renew: 400 * time.Millisecond, retry: 200 * time.Millisecond, request: 600 * time.Millisecond}

// limit is how long anything may take.
const limit = 30 * time.Second

// court is one Lease and those who compete for it. It notices when two lead at once.
type court struct {
	cluster   *testkit.Cluster
	namespace string
	timing    timing
	log       *slog.Logger
	leading   atomic.Int32
	crowned   chan string // who has begun to lead
	ended     chan string // who has ended to
	begun     chan string // who has begun a reign
	over      chan string // whose reign is over
}

func newCourt(t *testing.T) *court {
	t.Helper()
	c := testkit.SharedCluster(t)
	return &court{
		cluster: c, namespace: c.Namespace(t), timing: short, log: slog.New(slog.DiscardHandler), crowned: make(chan string, 64), ended: make(chan string, 64),
		begun: make(chan string, 64), over: make(chan string, 64),
	}
}

// candidate is one replica, with a cable to the API server that can be cut.
type candidate struct {
	*Elector
	name      string
	cut       cutting
	requests  sync.Map // method -> *atomic.Int32
	following atomic.Bool
	stop      func() error
}

// cutting is whether a cable is cut, as when packets are dropped.
type cutting struct {
	mu     sync.Mutex
	mended chan struct{} // nil unless it is cut
}

func (c *cutting) Store(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cut == (c.mended != nil) {
		return
	}
	if cut {
		c.mended = make(chan struct{})
		return
	}
	close(c.mended)
	c.mended = nil
}

// Load is nil while the cable is whole, and otherwise a channel that is closed when it is mended.
func (c *cutting) Load() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mended
}

// roundTrip stands between a candidate and the API server. A cut cable holds up answers that have begun, too: a watch
// that goes on would tell a candidate what it cannot know.
func (c *candidate) roundTrip(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		if c.cut.Load() != nil {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		count, _ := c.requests.LoadOrStore(r.Method, new(atomic.Int32))
		count.(*atomic.Int32).Add(1)
		resp, err := next.RoundTrip(r)
		if err == nil {
			resp.Body = cutBody{resp.Body, r.Context(), &c.cut}
		}
		return resp, err
	})
}

// cutBody is the body of an answer that arrives only while the cable is whole.
type cutBody struct {
	io.ReadCloser
	ctx context.Context
	cut *cutting
}

func (b cutBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for mended := b.cut.Load(); mended != nil; mended = b.cut.Load() {
		select {
		case <-mended:
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

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// enter starts a candidate, which runs until stop or the end of the test.
func (c *court) enter(t *testing.T, name string) *candidate {
	t.Helper()
	who := &candidate{name: name}
	cfg := c.cluster.RESTConfig()
	cfg.Wrap(who.roundTrip)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	who.Elector, err = newElector(Config{
		Leases: client.Resource(leases).Namespace(c.namespace), Name: "kedge-agent", Replica: name, Log: c.log,
	}, c.timing)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- who.Run(ctx, c.begin(t, who), who.follow) }()
	who.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = who.stop() })
	return who
}

// reigning is what a candidate does when it has the Lease.
type reigning struct {
	c   *court
	t   *testing.T
	who *candidate
}

func (c *court) begin(t *testing.T, who *candidate) func(context.Context) (Reign, error) {
	return func(context.Context) (Reign, error) {
		c.begun <- who.name
		return reigning{c, t, who}, nil
	}
}

func (r reigning) Run(ctx context.Context) error {
	<-ctx.Done()
	r.c.over <- r.who.name
	return nil
}

func (r reigning) Lead(ctx context.Context) error {
	if n := r.c.leading.Add(1); n > 1 {
		r.t.Errorf("%s leads while another one does", r.who.name)
	}
	r.c.crowned <- r.who.name
	<-ctx.Done()
	r.c.leading.Add(-1)
	r.c.ended <- r.who.name
	return nil
}

func (c *candidate) follow(ctx context.Context) error {
	c.following.Store(true)
	<-ctx.Done()
	c.following.Store(false)
	return nil
}

func next(t *testing.T, ch <-chan string, want string) time.Time {
	t.Helper()
	select {
	case got := <-ch:
		if got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	case <-time.After(limit):
		t.Fatalf("no word of %s after %v", want, limit)
	}
	return time.Now()
}

// eventually waits for the word of one candidate and skips that of others: on a machine that is busy for longer than a
// deadline, a leader ends and leads again, and says so.
func eventually(t *testing.T, ch <-chan string, want string) {
	t.Helper()
	for deadline := time.After(limit); ; {
		select {
		case got := <-ch:
			if got == want {
				return
			}
		case <-deadline:
			t.Fatalf("no word of %s after %v", want, limit)
		}
	}
}

// covers: D6
func TestLeaderThatStopsIsFollowedAtOnce(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	a := c.enter(t, "a")
	next(t, c.crowned, "a")
	b := c.enter(t, "b")
	testkit.Eventually(t, limit, func(context.Context) error {
		if !b.following.Load() {
			return errors.New("b does not follow")
		}
		return nil
	})
	began := time.Now()
	if err := a.stop(); err != nil {
		t.Errorf("a ended with %v", err)
	}
	if took := next(t, c.crowned, "b").Sub(began); took > short.duration/2 {
		t.Errorf("b leads after %v, want it at the event, not when the Lease ends", took)
	}
	if b.following.Load() {
		t.Error("b follows and leads")
	}
}

// covers: D6
func TestFollowerAsksNothingWhileItWaits(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	a := c.enter(t, "a")
	next(t, c.crowned, "a")
	b := c.enter(t, "b")
	testkit.Eventually(t, limit, func(context.Context) error {
		if a.count(http.MethodPut) < 8 {
			return errors.New("too early to tell")
		}
		return nil
	})
	if b.count(http.MethodPut)+b.count(http.MethodPost) != 0 || b.count(http.MethodGet) > 3 {
		t.Errorf("a follower has written %d times and read %d times, want a look, a list and a watch",
			b.count(http.MethodPut)+b.count(http.MethodPost), b.count(http.MethodGet))
	}
}

// covers: D6
func TestLeaderThatIsCutOffEndsBeforeAnotherBegins(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	a := c.enter(t, "a")
	next(t, c.crowned, "a")
	c.enter(t, "b")
	began := time.Now()
	a.cut.Store(true)
	next(t, c.ended, "a")
	if a.Fence().holds() {
		t.Error("a may still change things")
	}
	if took := next(t, c.crowned, "b").Sub(began); took > 2*short.duration {
		t.Errorf("b leads after %v, with a Lease of %v", took, short.duration)
	}
	a.cut.Store(false)
	testkit.Eventually(t, limit, func(context.Context) error {
		if !a.following.Load() || a.Problem() != nil {
			return errors.New("a does not follow")
		}
		return nil
	})
}

// covers: D6, O7
func TestSomebodyLeadsAfterTheClusterWasAway(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	a := c.enter(t, "a")
	next(t, c.crowned, "a")
	b := c.enter(t, "b")
	a.cut.Store(true)
	b.cut.Store(true)
	next(t, c.ended, "a")
	testkit.Eventually(t, limit, func(context.Context) error {
		if a.Problem() == nil || b.Problem() == nil {
			return errors.New("nobody has noticed")
		}
		return nil
	})
	a.cut.Store(false)
	b.cut.Store(false)
	select {
	case <-c.crowned:
	case <-time.After(limit):
		t.Fatal("nobody leads")
	}
}

// covers: D6
func TestLeaseDeletedByHandChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	c.timing = defaultTiming() // no leader is so slow that its Lease ends meanwhile, however busy the machine is
	a := c.enter(t, "a")
	next(t, c.crowned, "a")
	b := c.enter(t, "b")
	testkit.Eventually(t, limit, func(context.Context) error {
		if b.sighted().holder() != a.holder {
			return errors.New("b has not seen yet that a leads")
		}
		return nil
	})
	client := c.cluster.Dynamic(t).Resource(leases).Namespace(c.namespace)
	for range 3 {
		if err := client.Delete(t.Context(), "kedge-agent", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, limit, func(ctx context.Context) error {
			_, err := client.Get(ctx, "kedge-agent", metav1.GetOptions{})
			return err
		})
	}
	if b.count(http.MethodPost) != 0 {
		t.Error("a follower took a Lease whose holder is alive")
	}
	select {
	case who := <-c.ended:
		t.Errorf("%s lost the Lease", who)
	default:
	}
	_ = a.stop()
	next(t, c.crowned, "b")
}

func TestHowLongALeaseIsLeftToItsHolder(t *testing.T) {
	t.Parallel()
	held := func(holder string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"holderIdentity": holder}}}
	}
	now := time.Now()
	timing := defaultTiming()
	cases := []struct {
		reason string
		seen   sighting
		least  time.Duration
		most   time.Duration
	}{
		{"somebody holds it", sighting{object: held("a_1"), at: now}, timing.duration - time.Second, timing.duration},
		{"it was not renewed", sighting{object: held("a_1"), at: now.Add(-timing.duration)}, 0, 0},
		{"it was given up", sighting{object: held(""), at: now}, 0, 0},
		{"it was deleted under its holder", sighting{deprived: "a_1", at: now}, timing.duration - time.Second, timing.duration},
		{"it was deleted under its holder long ago", sighting{deprived: "a_1", at: now.Add(-timing.duration)}, 0, 0},
		{"there is none, and whether there was one is not known", sighting{at: now}, 1, timing.retry},
		{"there has been none for a while", sighting{at: now.Add(-timing.retry)}, 0, 0},
	}
	for _, tt := range cases {
		e, err := New(Config{Leases: struct{ dynamic.ResourceInterface }{}, Name: "kedge-agent", Replica: "b", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.mustWait(tt.seen); got < tt.least || got > tt.most {
			t.Errorf("%s: it waits for %v, want between %v and %v", tt.reason, got, tt.least, tt.most)
		}
	}
}

func TestSuccessorOfTheSameNameDoesNotWait(t *testing.T) {
	t.Parallel()
	c := newCourt(t)
	a := c.enter(t, "a")
	next(t, c.crowned, "a")
	a.cut.Store(true) // as after kill -9: it is not given up
	_ = a.stop()
	began := time.Now()
	c.enter(t, "a")
	if took := next(t, c.crowned, "a").Sub(began); took > short.duration/2 {
		t.Errorf("the same replica leads again after %v", took)
	}
}

func TestLeaderYieldsToWhoeverHoldsTheLease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ holder, reason string }{
		{"somebody", "another one holds it"},
		{"", "another one has held it and given it up, or was told to"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			c := newCourt(t)
			c.enter(t, "a")
			next(t, c.begun, "a")
			next(t, c.crowned, "a")
			out := c.cluster.Kubectl(t, "-n", c.namespace, "patch", "lease", "kedge-agent", "--type=merge", "-p", `{"spec":{"holderIdentity":"`+tt.holder+`"}}`)
			if !strings.Contains(out, "patched") {
				t.Fatal(out)
			}
			next(t, c.ended, "a")
			next(t, c.over, "a")
			next(t, c.begun, "a") // nobody renews it
			next(t, c.crowned, "a")
		})
	}
}

func TestFenceLetsNothingChangeAfterItsTime(t *testing.T) {
	t.Parallel()
	var f Fence
	var sent []string
	transport := f.Wrap(tripper(func(r *http.Request) (*http.Response, error) {
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
		{"looking is allowed", func() {}, http.MethodGet, nil},
		{"it leads", func() { f.extend(time.Now(), time.Minute) }, http.MethodPatch, nil},
		{"the renewal was sent too long ago", func() { f.extend(time.Now().Add(-time.Hour), time.Minute) }, http.MethodDelete, ErrNotLeading},
		{"the time has passed, by the wall clock only", func() { f.until = time.Now().Round(0).Add(-time.Second) }, http.MethodPut, ErrNotLeading},
		{"it lost the Lease", func() { f.extend(time.Now(), time.Minute); f.shut() }, http.MethodPost, ErrNotLeading},
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
