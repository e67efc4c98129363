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

// silentServer accepts connections and does not send Welcome.
type silentServer struct {
	agentv1.UnimplementedAgentServiceServer
	endStream bool
}

func (m silentServer) Connect(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) error {
	if !m.endStream {
		<-stream.Context().Done()
	}
	return nil
}

func connectTo(t *testing.T, server agentv1.AgentServiceServer, timeout time.Duration) error {
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
	c.welcomeTimeout = timeout
	return c.connect(t.Context())
}

// covers: C11
func TestMissingWelcomeIsRetried(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		server  silentServer
		timeout time.Duration
		want    error
		reason  string
	}{
		{"no frame", silentServer{}, 50 * time.Millisecond, errNoWelcome, "a server that hangs must not block the agent"},
		{"end of the stream", silentServer{endStream: true}, time.Minute, errEndedBeforeWelcome, "a proxy that ends every stream must not get too many requests"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := connectTo(t, tt.server, tt.timeout)
			if !errors.Is(err, tt.want) {
				t.Fatalf("connect() = %v, want %v: %s", err, tt.want, tt.reason)
			}
			if p := classify(err, Config{}, address{scheme: "grpc", host: "kedge"}); p.Kind != KindServer {
				t.Errorf("classified as %s, want %s", p.Kind, KindServer)
			}
			var b backoff
			for range 10 {
				b.after(err, defaultWelcomeTimeout)
			}
			if b.attempts.Attempts() < 7 {
				t.Errorf("the backoff counts %d attempts after ten failures, want the maximal delay", b.attempts.Attempts())
			}
		})
	}
}

// A target that starts to wait for a bundle just when its fetch ends is not missed.
func TestFetchContinuesForTheLastTarget(t *testing.T) {
	t.Parallel()
	s := newFetchSet()
	ending, came := make(chan struct{}), make(chan struct{})
	runs, waiting := 0, 0
	fn := func() {
		runs++
		waiting = 0
		if runs == 1 {
			close(ending) // it does not check again
			<-came
		}
	}
	more := func() bool { return waiting > 0 }
	s.start("d", fn, more)
	<-ending
	waiting++
	s.start("d", func() { t.Error("fetched concurrently") }, more)
	close(came)
	s.wait()
	if runs != 2 || len(s.running) != 0 {
		t.Errorf("%d runs, %d left, want another run for the second", runs, len(s.running))
	}
}
