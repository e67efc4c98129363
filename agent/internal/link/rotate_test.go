package link_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/link"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// gate is a server that knows tokens and confirms nothing unless told to.
type gate struct {
	agentv1.UnimplementedAgentServiceServer
	send chan *agentv1.ConnectResponse // to whoever is connected

	mu    sync.Mutex
	valid map[string]bool

	attempts chan string // tokens that came, accepted or not
	frames   chan *agentv1.ConnectRequest
	// end, when not nil, is asked after each frame whether to end the stream.
	end func(*agentv1.ConnectRequest) error
	// takes is whether Capabilities are taken whenever they change.
	takes bool
}

func newGate(t *testing.T, tokens ...string) (*gate, string) {
	t.Helper()
	g := &gate{
		send: make(chan *agentv1.ConnectResponse), valid: map[string]bool{},
		attempts: make(chan string, 1000), frames: make(chan *agentv1.ConnectRequest, 1000),
	}
	for _, token := range tokens {
		g.valid[token] = true
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	agentv1.RegisterAgentServiceServer(srv, g)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
	return g, "grpc://" + l.Addr().String()
}

func (g *gate) set(token string, valid bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.valid[token] = valid
}

func (g *gate) Connect(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	token := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
	g.mu.Lock()
	valid := g.valid[token]
	g.mu.Unlock()
	g.attempts <- token
	if !valid {
		return status.Error(codes.Unauthenticated, "the token is missing, wrong or revoked")
	}
	welcome := wire.Welcome{Session: "ses-1", AgentID: "agt-1", Lease: time.Minute, Scope: fleet.ScopeCluster, TakeCapabilities: g.takes}
	if err := stream.Send(&agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Welcome{Welcome: welcome.Proto()}}); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case f := <-g.send:
				_ = stream.Send(f)
			case <-ended:
				return
			}
		}
	}()
	for {
		frame, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the agent has left
		}
		g.frames <- frame
		if g.end != nil {
			if err := g.end(frame); err != nil {
				return err
			}
		}
	}
}

func (g *gate) attempt(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-g.attempts:
		if got != want {
			t.Fatalf("the agent came with %q, want %q", got, want)
		}
	case <-ctx.Done():
		t.Fatalf("the agent did not come with %q", want)
	}
}

// frame returns the next frame that pick finds something in.
func frame[T any](ctx context.Context, t *testing.T, g *gate, pick func(*agentv1.ConnectRequest) *T) *T {
	t.Helper()
	for {
		select {
		case f := <-g.frames:
			if got := pick(f); got != nil {
				return got
			}
		case <-ctx.Done():
			t.Fatal("the frame never came")
		}
	}
}

func newToken(operation, token string) *agentv1.ConnectResponse {
	return &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_NewToken{
		NewToken: wire.NewToken{Operation: fleet.OperationID(operation), Token: token}.Proto(),
	}}
}

func synced() engine.Status {
	return engine.Status{Target: "tgt-1", Observed: fleet.Observed{Version: fleet.Version{Epoch: 1, Generation: 1}, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent}}
}

// covers: C7 (in-band rotation, no restart, nothing lost)
func TestNewTokenIsKeptAndUsedAtOnce(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "old")
	file := write(t, "token", "old\n")
	r := start(t, address, "", func(c *link.Config) { c.Tokens = link.TokenFile(file) })
	ctx := within(t)
	g.attempt(ctx, t, "old")
	r.Status(synced())
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus)

	g.set("new", true)
	g.send <- newToken("op-1", "new")
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored); got.GetOperation() != "op-1" || got.GetProblem() != "" {
		t.Errorf("the answer is %v, want that it is kept", got)
	}
	g.attempt(ctx, t, "new")
	if content, err := os.ReadFile(file); err != nil || string(content) != "new\n" {
		t.Errorf("the file holds %q, %v", content, err)
	}
	// The server has confirmed nothing: what it was told before is told again.
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus); got.GetSync() != string(fleet.SyncSynced) || !got.GetFull() {
		t.Errorf("the status came again as %v, want it whole", got)
	}
	r.stop()
	<-r.done
	g.set("old", false)
	start(t, address, "", func(c *link.Config) { c.Tokens = link.TokenFile(file) })
	g.attempt(ctx, t, "new")
}

// covers: C7
func TestTokenInUseNeedsNoNewConnection(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "same")
	start(t, address, "same", nil)
	ctx := within(t)
	g.attempt(ctx, t, "same")
	g.send <- newToken("op-1", "same") // the server did not hear that it was kept
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored)
	g.send <- newToken("op-2", "same")
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored); got.GetOperation() != "op-2" {
		t.Errorf("the answer is %v", got)
	}
	if n := len(g.attempts); n != 0 {
		t.Errorf("%d connections more were made, want none", n)
	}
}

// covers: C7
func TestRefusedNewTokenFallsBackToTheOld(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "old")
	start(t, address, "old", nil)
	ctx := within(t)
	g.attempt(ctx, t, "old")
	g.send <- newToken("op-1", "never-valid")
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored)
	g.attempt(ctx, t, "never-valid")
	g.attempt(ctx, t, "old")
	// It is connected, and is rotated again.
	g.set("newer", true)
	g.send <- newToken("op-2", "newer")
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored)
	g.attempt(ctx, t, "newer")
}

// Replicas share the place of their token. One whose token is revoked because another has replaced it may just
// have been handed a new one, which is dead by now: to keep it would lock both out at their next start.
//
// covers: C7
func TestTokenThatAnotherReplicaHasKeptIsNotOverwritten(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "old")
	file := write(t, "token", "old")
	start(t, address, "", func(c *link.Config) { c.Tokens = link.TokenFile(file) })
	ctx := within(t)
	g.attempt(ctx, t, "old")
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
	g.set("newer", true)
	if err := link.TokenFile(file).Store(ctx, "old", "newer"); err != nil { // by the other replica
		t.Fatal(err)
	}
	g.send <- newToken("op-1", "dead")
	g.attempt(ctx, t, "newer")
	if content, err := os.ReadFile(file); err != nil || string(content) != "newer\n" {
		t.Errorf("the file holds %q, %v", content, err)
	}
	// It is rotated as usual after that.
	g.set("newest", true)
	g.send <- newToken("op-1", "newest")
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored); got.GetProblem() != "" {
		t.Errorf("the answer is %v, want that it is kept", got)
	}
	g.attempt(ctx, t, "newest")
}

// stubborn keeps no token.
type stubborn struct{ link.Tokens }

func (stubborn) Store(context.Context, string, string) error {
	return errors.New("the Secret is read-only")
}

// covers: C7
func TestTokenThatCannotBeKeptChangesNothing(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "old", "new")
	r := start(t, address, "old", func(c *link.Config) { c.Tokens = stubborn{c.Tokens} })
	ctx := within(t)
	g.attempt(ctx, t, "old")
	for _, operation := range []string{"op-1", "op-2"} {
		g.send <- newToken(operation, "new")
		if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored); got.GetOperation() != operation || got.GetProblem() != "the Secret is read-only" {
			t.Errorf("the answer is %v, want the reason", got)
		}
	}
	r.Status(synced()) // the connection goes on
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus)
	if n := len(g.attempts); n != 0 {
		t.Errorf("%d connections more were made, want none", n)
	}
}

// covers: C8
func TestDeletedAgentSaysSoAndChangesNothing(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "token")
	g.end = func(f *agentv1.ConnectRequest) error {
		if f.GetStatus() == nil {
			return nil
		}
		g.set("token", false)
		return status.Error(codes.Unauthenticated, "the agent was deleted")
	}
	problems := newProblemLog()
	r := start(t, address, "token", func(c *link.Config) {
		c.Log = slog.New(problems)
	})
	ctx := within(t)
	g.attempt(ctx, t, "token")
	r.Status(synced())
	for range 3 {
		problems.await(t, ctx)
		g.attempt(ctx, t, "token") // it goes on asking
	}
	assertProblem(t, r, link.KindToken, "this agent was deleted at the server; what it has deployed stays")
	if got := r.engine.received(); len(got) != 0 {
		t.Errorf("the engine was told %v", got)
	}
}

// covers: C12 (the agent's side)
func TestStatusThatTheServerHadNoRoomForIsSentAgain(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "token")
	var once sync.Once
	g.end = func(f *agentv1.ConnectRequest) (err error) {
		if f.GetStatus() != nil {
			once.Do(func() { err = status.Error(codes.ResourceExhausted, "too many frames") })
		}
		return err
	}
	r := start(t, address, "token", nil)
	ctx := within(t)
	g.attempt(ctx, t, "token")
	r.Status(synced())
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus)
	refused := time.Now()
	g.attempt(ctx, t, "token")
	if pause := time.Since(refused); pause < time.Second {
		t.Errorf("the agent came back after %v, want it to wait a little", pause)
	}
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus); !got.GetFull() {
		t.Errorf("the status came again as %v, want it whole", got)
	}
}

// A target that was let go of is forgotten when the server knows.
func TestDetachedTargetIsForgotten(t *testing.T) {
	t.Parallel()
	g, address := newGate(t, "token")
	r := start(t, address, "token", nil)
	ctx := within(t)
	g.attempt(ctx, t, "token")
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
	desired := wire.Desired{Target: "tgt-1", Deployment: "shop", State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Detached: true}}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: desired.Proto()}}
	got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus)
	if got.GetSync() != string(fleet.SyncDetached) || got.GetGeneration() != 2 {
		t.Errorf("status = %v, want it let go of", got)
	}
	if sets := r.engine.received(); len(sets) != 1 || !sets[0].State.Detached || sets[0].Objects != nil {
		t.Errorf("the engine received %v", sets)
	}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_StatusStored{StatusStored: &agentv1.StatusStored{Count: 1}}}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{Goodbye: &agentv1.Goodbye{Reason: "test"}}}
	g.attempt(ctx, t, "token")
	hello := frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
	if len(hello.GetStateHash()) != 0 || len(hello.GetStatusHash()) != 0 {
		t.Errorf("hello = %v, want nothing held any more", hello)
	}
}
