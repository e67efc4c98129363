package link_test

import (
	"cmp"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// scriptedServer is a server that sends what a test specifies.
type scriptedServer struct {
	agentv1.UnimplementedAgentServiceServer
	desired wire.Desired
	agent   fleet.AgentID                 // agt-1 when empty
	more    chan *agentv1.ConnectResponse // sent after desired
	fetch   func(attempt int, offset int64, send func([]byte, int64) error) error

	mu      sync.Mutex
	offsets []int64
	frames  chan *agentv1.ConnectRequest
}

func (s *scriptedServer) Connect(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) error {
	welcome := wire.Welcome{Session: "ses-1", AgentID: cmp.Or(s.agent, "agt-1"), Lease: time.Minute, Scope: fleet.ScopeCluster}
	frames := []*agentv1.ConnectResponse{
		{Frame: &agentv1.ConnectResponse_Welcome{Welcome: welcome.Proto()}},
		{Frame: &agentv1.ConnectResponse_Desired{Desired: s.desired.Proto()}},
	}
	for _, f := range frames {
		if err := stream.Send(f); err != nil {
			return err
		}
	}
	go func() {
		for {
			select {
			case f := <-s.more:
				_ = stream.Send(f)
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		s.frames <- frame
	}
}

func (s *scriptedServer) FetchBundle(req *agentv1.FetchBundleRequest, stream grpc.ServerStreamingServer[agentv1.FetchBundleResponse]) error {
	s.mu.Lock()
	s.offsets = append(s.offsets, req.GetOffset())
	attempt := len(s.offsets)
	s.mu.Unlock()
	return s.fetch(attempt, req.GetOffset(), func(chunk []byte, total int64) error {
		return stream.Send(&agentv1.FetchBundleResponse{Chunk: chunk, Total: total})
	})
}

func (s *scriptedServer) serve(t *testing.T) string {
	t.Helper()
	s.frames, s.more = make(chan *agentv1.ConnectRequest, 1000), make(chan *agentv1.ConnectResponse)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	agentv1.RegisterAgentServiceServer(srv, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
	return "grpc://" + l.Addr().String()
}

// status returns the first Status frame that ok accepts.
func (s *scriptedServer) status(ctx context.Context, t *testing.T, ok func(*agentv1.Status) bool) *agentv1.Status {
	t.Helper()
	for {
		select {
		case f := <-s.frames:
			if st := f.GetStatus(); st != nil && ok(st) {
				return st
			}
		case <-ctx.Done():
			t.Fatal("the status was not sent")
		}
	}
}

func desire(set *manifest.Set) (wire.Desired, []byte) {
	digest, content, _ := set.Pack()
	return wire.Desired{Target: "tgt-1", Deployment: "shop", State: fleet.Desired{Version: fleet.Version{Generation: 1}, Digest: digest}}, content
}

func TestInterruptedFetchIsResumed(t *testing.T) {
	t.Parallel()
	set := configMaps(t, 1, 100_000)
	d, content := desire(set)
	half := len(content) / 2
	s := &scriptedServer{desired: d, fetch: func(attempt int, offset int64, send func([]byte, int64) error) error {
		if attempt == 1 {
			if err := send(content[:half], int64(len(content))); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "broken")
		}
		return send(content[offset:], int64(len(content)))
	}}
	r := start(t, s.serve(t), "kedge-agent-x", nil)
	s.status(testContext(t), t, func(st *agentv1.Status) bool { return st.GetSync() == string(fleet.SyncSynced) })
	if got := r.engine.received(); len(got) != 1 || got[0].Objects.Digest() != set.Digest() {
		t.Errorf("the engine received %d states, want the complete set once", len(got))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.offsets) != 2 || s.offsets[1] != int64(half) {
		t.Errorf("fetched from offsets %v, want the second to start at %d", s.offsets, half)
	}
}

func TestDamagedBundleIsNeverApplied(t *testing.T) {
	t.Parallel()
	good, bad := configMaps(t, 1, 10), configMaps(t, 2, 10)
	d, content := desire(good)
	_, forged, _ := bad.Pack()
	tests := []struct {
		name, reason string
		fetch        func(attempt int, offset int64, send func([]byte, int64) error) error
	}{
		{"another bundle", "its digest does not match", func(_ int, _ int64, send func([]byte, int64) error) error {
			return send(forged, int64(len(forged)))
		}},
		{"longer than announced", "sizes are bounded by what was announced", func(_ int, _ int64, send func([]byte, int64) error) error {
			return send(append(content[:len(content):len(content)], forged...), int64(len(content)))
		}},
		{"absurdly large", "memory is bounded", func(_ int, _ int64, send func([]byte, int64) error) error { return send(nil, 1<<40) }},
		{"missing", "the server has lost it", func(int, int64, func([]byte, int64) error) error {
			return status.Error(codes.NotFound, "no bundle")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &scriptedServer{desired: d, fetch: tt.fetch}
			r := start(t, s.serve(t), "kedge-agent-x", nil)
			st := s.status(testContext(t), t, func(st *agentv1.Status) bool { return st.GetSync() == string(fleet.SyncFailed) })
			if st.GetTarget() != "tgt-1" || st.GetMessage() == "" {
				t.Errorf("status = %v, want the reason: %s", st, tt.reason)
			}
			if got := r.engine.received(); len(got) != 0 {
				t.Errorf("the engine received %v", got)
			}
		})
	}
}

func TestDamagedInlineBundleIsFetched(t *testing.T) {
	t.Parallel()
	set := configMaps(t, 1, 10)
	d, content := desire(set)
	d.Bundle = []byte("noise")
	s := &scriptedServer{desired: d, fetch: func(_ int, _ int64, send func([]byte, int64) error) error { return send(content, int64(len(content))) }}
	r := start(t, s.serve(t), "kedge-agent-x", nil)
	s.status(testContext(t), t, func(st *agentv1.Status) bool { return st.GetSync() == string(fleet.SyncSynced) })
	if got := r.engine.received(); len(got) != 1 {
		t.Errorf("the engine received %d states, want one", len(got))
	}
}
