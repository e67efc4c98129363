package link_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryEngine applies everything at once and reports it.
type memoryEngine struct {
	reporter engine.Reporter

	mu      sync.Mutex
	sets    []engine.Desired
	calls   []string      // "pending 2", "set tgt-1", in order
	changed chan struct{} // signals a call
}

func (e *memoryEngine) Pending(n int) { e.note(fmt.Sprintf("pending %d", n)) }

func (e *memoryEngine) note(call string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, call)
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// awaitCall waits until call is the newest one, and returns all.
func (e *memoryEngine) awaitCall(ctx context.Context, t *testing.T, call string) []string {
	t.Helper()
	for {
		e.mu.Lock()
		calls := slices.Clone(e.calls)
		e.mu.Unlock()
		if len(calls) > 0 && calls[len(calls)-1] == call {
			return calls
		}
		select {
		case <-e.changed:
		case <-ctx.Done():
			t.Fatalf("calls %q do not end with %q", calls, call)
		}
	}
}

func (e *memoryEngine) Set(d engine.Desired) {
	e.mu.Lock()
	e.sets = append(e.sets, d)
	e.mu.Unlock()
	e.note("set " + string(d.Target))
	s := engine.Status{Target: d.Target, Observed: fleet.Observed{
		Version: d.State.Version, Digest: d.State.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: time.Now(),
	}}
	switch {
	case d.State.Tombstone:
		s.Observed.Sync = fleet.SyncDeleted
	case d.State.Detached:
		s.Observed.Sync = fleet.SyncDetached
	default:
		for _, o := range d.Objects.Objects() {
			s.Objects = append(s.Objects, fleet.ObjectStatus{ObjectRef: o.Ref, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent})
		}
	}
	e.reporter.Status(s)
}

func (e *memoryEngine) received() []engine.Desired {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]engine.Desired(nil), e.sets...)
}

// testClient is a client that runs until the test ends.
type testClient struct {
	*link.Client
	engine   *memoryEngine
	metrics  *prometheus.Registry
	welcomed chan wire.Welcome // of the first connections
	stop     context.CancelFunc
	done     chan struct{}
}

// start runs a client against the given address; edit may change its configuration.
func start(t *testing.T, address, token string, edit func(*link.Config)) *testClient {
	t.Helper()
	r := &testClient{engine: &memoryEngine{changed: make(chan struct{}, 1)}, metrics: prometheus.NewRegistry(), welcomed: make(chan wire.Welcome, 16), done: make(chan struct{})}
	metrics, err := link.NewMetrics(r.metrics)
	if err != nil {
		t.Fatal(err)
	}
	cfg := link.Config{
		Address: address, Tokens: link.TokenFile(write(t, "token", token+"\n")),
		Hello: func(context.Context) wire.Hello {
			return wire.Hello{AgentVersion: "test", KubeVersion: "v1.36.3", Replica: "replica-0"}
		},
		Welcomed: func(_ context.Context, w wire.Welcome) (link.Engine, []engine.Held, error) {
			select {
			case r.welcomed <- w:
			default:
			}
			return r.engine, nil, nil
		},
		Log: slog.New(slog.DiscardHandler), Metrics: metrics,
	}
	if edit != nil {
		edit(&cfg)
	}
	if r.Client, err = link.New(cfg); err != nil {
		t.Fatal(err)
	}
	r.engine.reporter = r.Client
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() {
		defer close(r.done)
		_ = r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

func serve(t *testing.T, m *gatewaytest.Memory, o gatewaytest.Options) *gatewaytest.Server {
	t.Helper()
	s, err := gatewaytest.Start(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// testContext bounds every wait of a test, which should take milliseconds.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// configMaps returns a set of n objects, each with noise bytes that are hard to compress.
func configMaps(t *testing.T, n, noise int) *manifest.Set {
	t.Helper()
	var doc strings.Builder
	for i := range n {
		fmt.Fprintf(&doc, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm-%d, namespace: default}\ndata: {key: %q}\n", i, random(noise))
	}
	objects, err := manifest.Parse("test.yaml", []byte(doc.String()))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, "default")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func random(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	out := make([]byte, n)
	for i := range out {
		out[i] = letters[rand.IntN(len(letters))]
	}
	return string(out)
}
