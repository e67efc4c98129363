package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/gateway"
)

func TestMain(m *testing.M) {
	code := pgServer.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// testAgent is an agent that does only what a test makes it do.
type testAgent struct {
	t      *testing.T
	rpc    agentv1.AgentServiceClient
	ctx    context.Context
	stream grpc.BidiStreamingClient[agentv1.ConnectRequest, agentv1.ConnectResponse]
	cancel context.CancelFunc
}

func serve(t *testing.T, m *gatewaytest.Memory, o gatewaytest.Options) *gatewaytest.Server {
	t.Helper()
	s := serveControl(t, m, o)
	s.Memory = m
	return s
}

// serveControl serves an implementation of control.
func serveControl(t *testing.T, c gateway.Control, o gatewaytest.Options) *gatewaytest.Server {
	t.Helper()
	s, err := gatewaytest.Serve(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stopping the server: %v", err)
		}
	})
	return s
}

func dial(t *testing.T, s *gatewaytest.Server, token string) *testAgent {
	t.Helper()
	return dialAddress(t, s.Addr(), token)
}

func dialAddress(t *testing.T, address, token string, options ...grpc.DialOption) *testAgent {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token), 30*time.Second)
	p := &testAgent{t: t, rpc: agentv1.NewAgentServiceClient(cc), ctx: ctx, cancel: cancel}
	t.Cleanup(func() {
		cancel()
		_ = cc.Close()
	})
	if p.stream, err = p.rpc.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	return p
}

// connect dials and completes the handshake.
func connect(t *testing.T, s *gatewaytest.Server, token string, edit func(*wire.Hello)) (*testAgent, wire.Welcome) {
	t.Helper()
	p := dial(t, s, token)
	return p, p.welcome(edit)
}

// connectInMemory serves control and connects without a network, so that it can run in a synctest bubble.
func connectInMemory(t *testing.T, c gateway.Control, token string, cfg gateway.Config) (*testAgent, wire.Welcome) {
	t.Helper()
	cfg.Version, cfg.Log, cfg.Metrics = "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	g, err := gateway.New(cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	server, listener := g.NewServer(), bufconn.Listen(1<<20)
	ctx, stop := context.WithCancel(t.Context())
	var running errgroup.Group
	running.Go(func() error { return g.Run(ctx) })
	running.Go(func() error { return server.Serve(listener) })
	t.Cleanup(func() {
		stop()
		server.Stop()
		if err := running.Wait(); err != nil {
			t.Errorf("stopping the gateway: %v", err)
		}
	})
	p := dialAddress(t, "gateway", token, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	}))
	return p, p.welcome(nil)
}

// welcome completes the handshake.
func (p *testAgent) welcome(edit func(*wire.Hello)) wire.Welcome {
	p.t.Helper()
	hello := wire.Hello{AgentVersion: "test", Replica: "r-0", Clock: time.Now()}
	if edit != nil {
		edit(&hello)
	}
	p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Hello{Hello: hello.Proto()}})
	w, err := wire.ParseWelcome(p.recv().GetWelcome())
	if err != nil {
		p.t.Fatal(err)
	}
	return w
}

// handshake sends Hello and waits for the Welcome.
func (p *testAgent) handshake() error {
	hello := wire.Hello{AgentVersion: "test", Replica: "r-0", Clock: time.Now()}
	if err := p.stream.Send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Hello{Hello: hello.Proto()}}); err != nil {
		return err
	}
	_, err := p.stream.Recv()
	return err
}

func (p *testAgent) send(frame *agentv1.ConnectRequest) {
	p.t.Helper()
	if err := p.stream.Send(frame); err != nil {
		_, why := p.stream.Recv()
		p.t.Fatal(errors.Join(err, why))
	}
}

func (p *testAgent) held(held ...wire.TargetState) {
	p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_TargetStates{TargetStates: wire.TargetStatesProto(held)}})
}

func (p *testAgent) status(s wire.Status) {
	p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Status{Status: s.Proto()}})
}

func (p *testAgent) recv() *agentv1.ConnectResponse {
	p.t.Helper()
	frame, err := p.stream.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	return frame
}

// snapshot reads until SnapshotComplete and returns the desired states before it.
func (p *testAgent) snapshot() []*agentv1.Desired {
	p.t.Helper()
	var out []*agentv1.Desired
	for {
		frame := p.recv()
		if frame.GetSnapshotComplete() != nil {
			return out
		}
		if d := frame.GetDesired(); d != nil {
			out = append(out, d)
		}
	}
}

// ended reads until the stream ends and returns the error.
func (p *testAgent) ended() error {
	for {
		if _, err := p.stream.Recv(); err != nil {
			return err
		}
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func configMap(t *testing.T, value string) *manifest.Set {
	t.Helper()
	objects, err := manifest.Parse("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\ndata: {v: \""+value+"\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, "default")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func heldOf(t fleet.Target) wire.TargetState {
	return wire.TargetState{Target: t.ID, Version: t.Desired.Version, Digest: t.Desired.Digest}
}

// awaitFrames waits until the server has received n frames of a kind.
func awaitFrames(t *testing.T, s *gatewaytest.Server, kind string, n float64) {
	t.Helper()
	ctx, tick := within(t), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		families, err := s.Metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				if f.GetName() == "kedge_gateway_frames_total" && len(metric.GetLabel()) == 2 &&
					metric.GetLabel()[1].GetValue() == kind && metric.GetCounter().GetValue() >= n {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the server never received %v frames of kind %q", n, kind)
		case <-tick.C:
		}
	}
}
