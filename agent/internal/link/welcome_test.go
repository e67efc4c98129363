package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// mute takes connections and never says Welcome.
type mute struct {
	agentv1.UnimplementedAgentServiceServer
	hangUp bool
}

func (m mute) Connect(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) error {
	if !m.hangUp {
		<-stream.Context().Done()
	}
	return nil
}

func connectTo(t *testing.T, server agentv1.AgentServiceServer, patience time.Duration) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	agentv1.RegisterAgentServiceServer(srv, server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		Address: "grpc://" + l.Addr().String(), Tokens: TokenFile(token), Log: slog.New(slog.DiscardHandler), Metrics: metrics,
		Hello:    func(context.Context) wire.Hello { return wire.Hello{Replica: "r"} },
		Welcomed: func(context.Context, wire.Welcome) (Engine, []engine.Held, error) { return nil, nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	c.patience = patience
	return c.connect(t.Context())
}

// covers: C11
func TestServerThatNeverWelcomesIsAnOrdinaryFailure(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		server   mute
		patience time.Duration
		want     error
		reason   string
	}{
		{"says nothing", mute{}, 50 * time.Millisecond, errNoWelcome, "a server that hangs must not hold the agent for ever"},
		{"hangs up", mute{hangUp: true}, time.Minute, errEarlyEnd, "a proxy that ends every stream must not be stormed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := connectTo(t, tt.server, tt.patience)
			if !errors.Is(err, tt.want) {
				t.Fatalf("connect() = %v, want %v: %s", err, tt.want, tt.reason)
			}
			if p := classify(err, Config{}, address{scheme: "grpc", host: "kedge"}); p.Kind != KindServer {
				t.Errorf("classified as %s, want %s", p.Kind, KindServer)
			}
			var b backoff
			for range 10 {
				b.after(err, welcomeTimeout)
			}
			if b.attempts.Attempts() < 7 {
				t.Errorf("the backoff is at step %d after ten times, want it to have grown to the cap", b.attempts.Attempts())
			}
		})
	}
}

// Somebody who comes to want a digest just when its fetch ends is not forgotten.
func TestFetchGoesOnForWhoCameLast(t *testing.T) {
	t.Parallel()
	s := newFetchSet()
	ending, came := make(chan struct{}), make(chan struct{})
	runs, waiting := 0, 0
	fn := func() {
		runs++
		waiting = 0
		if runs == 1 {
			close(ending) // it has looked for the last time
			<-came
		}
	}
	more := func() bool { return waiting > 0 }
	s.start("d", fn, more)
	<-ending
	waiting++
	s.start("d", func() { t.Error("fetched twice at once") }, more)
	close(came)
	s.wait()
	if runs != 2 || len(s.running) != 0 {
		t.Errorf("%d runs, %d left, want another run for the second", runs, len(s.running))
	}
}
