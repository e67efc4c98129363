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

// tokenServer is a server that checks tokens and confirms nothing by itself.
type tokenServer struct {
	agentv1.UnimplementedAgentServiceServer
	send chan *agentv1.ConnectResponse // to the connected agent

	mu    sync.Mutex
	valid map[string]bool

	attempts chan string // tokens of all attempts, accepted or not
	frames   chan *agentv1.ConnectRequest
	// end, when not nil, is called after each frame and ends the stream with its error.
	end func(*agentv1.ConnectRequest) error
	// acceptsCapabilities means that Capabilities may be sent again when they change.
	acceptsCapabilities bool
}

func newTokenServer(t *testing.T, tokens ...string) (*tokenServer, string) {
	t.Helper()
	g := &tokenServer{
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

func (g *tokenServer) set(token string, valid bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.valid[token] = valid
}

func (g *tokenServer) Connect(stream grpc.BidiStreamingServer[agentv1.ConnectRequest, agentv1.ConnectResponse]) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	token := strings.TrimPrefix(strings.Join(md.Get("authorization"), ""), "Bearer ")
	g.mu.Lock()
	valid := g.valid[token]
	g.mu.Unlock()
	g.attempts <- token
	if !valid {
		return status.Error(codes.Unauthenticated, "the token is missing, wrong or revoked")
	}
	welcome := wire.Welcome{Session: "ses-1", AgentID: "agt-1", Lease: time.Minute, Scope: fleet.ScopeCluster, AcceptCapabilities: g.acceptsCapabilities}
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
			return nil //nolint:nilerr // the agent has closed the stream
		}
		g.frames <- frame
		if g.end != nil {
			if err := g.end(frame); err != nil {
				return err
			}
		}
	}
}

func (g *tokenServer) attempt(ctx context.Context, t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-g.attempts:
		if got != want {
			t.Fatalf("the agent used token %q, want %q", got, want)
		}
	case <-ctx.Done():
		t.Fatalf("the agent did not use token %q", want)
	}
}

// frame returns the next frame for which pick returns something.
func frame[T any](ctx context.Context, t *testing.T, g *tokenServer, pick func(*agentv1.ConnectRequest) *T) *T {
	t.Helper()
	for {
		select {
		case f := <-g.frames:
			if got := pick(f); got != nil {
				return got
			}
		case <-ctx.Done():
			t.Fatal("the frame was not sent")
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
func TestNewTokenIsStoredAndUsedAtOnce(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "old")
	file := write(t, "token", "old\n")
	r := start(t, address, "", func(c *link.Config) { c.Tokens = link.TokenFile(file) })
	ctx := testContext(t)
	g.attempt(ctx, t, "old")
	r.Status(synced())
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus)

	g.set("new", true)
	g.send <- newToken("op-1", "new")
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored); got.GetOperation() != "op-1" || got.GetProblem() != "" {
		t.Errorf("the answer is %v, want no problem", got)
	}
	g.attempt(ctx, t, "new")
	if content, err := os.ReadFile(file); err != nil || string(content) != "new\n" {
		t.Errorf("the file contains %q, %v", content, err)
	}
	// The server has confirmed nothing, so that the agent sends the status again.
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus); got.GetSync() != string(fleet.SyncSynced) || !got.GetFull() {
		t.Errorf("the repeated status is %v, want it complete", got)
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
	g, address := newTokenServer(t, "same")
	start(t, address, "same", nil)
	ctx := testContext(t)
	g.attempt(ctx, t, "same")
	g.send <- newToken("op-1", "same") // the answer to an earlier one was lost
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored)
	g.send <- newToken("op-2", "same")
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored); got.GetOperation() != "op-2" {
		t.Errorf("the answer is %v", got)
	}
	if n := len(g.attempts); n != 0 {
		t.Errorf("%d more connections were made, want none", n)
	}
}

// covers: C7
func TestRefusedNewTokenFallsBackToTheOld(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "old")
	start(t, address, "old", nil)
	ctx := testContext(t)
	g.attempt(ctx, t, "old")
	g.send <- newToken("op-1", "never-valid")
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored)
	g.attempt(ctx, t, "never-valid")
	g.attempt(ctx, t, "old")
	// The next rotation succeeds.
	g.set("newer", true)
	g.send <- newToken("op-2", "newer")
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored)
	g.attempt(ctx, t, "newer")
}

// Replicas share the store of their token. When another replica has replaced the token, the server may have revoked a new
// token that it has just sent to this one. Storing it would lock out both replicas at their next start.
//
// covers: C7
func TestTokenStoredByAnotherReplicaIsNotOverwritten(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "old")
	file := write(t, "token", "old")
	start(t, address, "", func(c *link.Config) { c.Tokens = link.TokenFile(file) })
	ctx := testContext(t)
	g.attempt(ctx, t, "old")
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
	g.set("newer", true)
	if err := link.TokenFile(file).Store(ctx, "old", "newer"); err != nil { // by the other replica
		t.Fatal(err)
	}
	g.send <- newToken("op-1", "revoked")
	g.attempt(ctx, t, "newer")
	if content, err := os.ReadFile(file); err != nil || string(content) != "newer\n" {
		t.Errorf("the file contains %q, %v", content, err)
	}
	// The next rotation works as usual.
	g.set("newest", true)
	g.send <- newToken("op-1", "newest")
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored); got.GetProblem() != "" {
		t.Errorf("the answer is %v, want no problem", got)
	}
	g.attempt(ctx, t, "newest")
}

// readOnlyTokens fails to store.
type readOnlyTokens struct{ link.Tokens }

func (readOnlyTokens) Store(context.Context, string, string) error {
	return errors.New("the Secret is read-only")
}

// covers: C7
func TestTokenThatCannotBeStoredChangesNothing(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "old", "new")
	r := start(t, address, "old", func(c *link.Config) { c.Tokens = readOnlyTokens{c.Tokens} })
	ctx := testContext(t)
	g.attempt(ctx, t, "old")
	for _, operation := range []string{"op-1", "op-2"} {
		g.send <- newToken(operation, "new")
		if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetTokenStored); got.GetOperation() != operation || got.GetProblem() != "the Secret is read-only" {
			t.Errorf("the answer is %v, want the reason", got)
		}
	}
	r.Status(synced()) // the connection stays open
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus)
	if n := len(g.attempts); n != 0 {
		t.Errorf("%d more connections were made, want none", n)
	}
}

// covers: C8
func TestDeletedAgentReportsItAndChangesNothing(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "token")
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
	ctx := testContext(t)
	g.attempt(ctx, t, "token")
	r.Status(synced())
	for range 3 {
		problems.await(t, ctx)
		g.attempt(ctx, t, "token") // it continues to retry
	}
	assertProblem(t, r, link.KindToken, "this agent was deleted on the server; deployed objects stay")
	if got := r.engine.received(); len(got) != 0 {
		t.Errorf("the engine received %v", got)
	}
}

// covers: C12 (the agent's side)
func TestThrottledStatusIsSentAgain(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "token")
	var once sync.Once
	g.end = func(f *agentv1.ConnectRequest) (err error) {
		if f.GetStatus() != nil {
			once.Do(func() { err = status.Error(codes.ResourceExhausted, "too many frames") })
		}
		return err
	}
	r := start(t, address, "token", nil)
	ctx := testContext(t)
	g.attempt(ctx, t, "token")
	r.Status(synced())
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus)
	refused := time.Now()
	g.attempt(ctx, t, "token")
	if pause := time.Since(refused); pause < time.Second {
		t.Errorf("the agent reconnected after %v, want a delay", pause)
	}
	if got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus); !got.GetFull() {
		t.Errorf("the repeated status is %v, want it complete", got)
	}
}

// The client forgets a detached target when the server has stored its last status.
func TestDetachedTargetIsForgotten(t *testing.T) {
	t.Parallel()
	g, address := newTokenServer(t, "token")
	r := start(t, address, "token", nil)
	ctx := testContext(t)
	g.attempt(ctx, t, "token")
	frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
	desired := wire.Desired{Target: "tgt-1", Deployment: "shop", State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Detached: true}}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Desired{Desired: desired.Proto()}}
	got := frame(ctx, t, g, (*agentv1.ConnectRequest).GetStatus)
	if got.GetSync() != string(fleet.SyncDetached) || got.GetGeneration() != 2 {
		t.Errorf("status = %v, want Detached", got)
	}
	if sets := r.engine.received(); len(sets) != 1 || !sets[0].State.Detached || sets[0].Objects != nil {
		t.Errorf("the engine received %v", sets)
	}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_StatusStored{StatusStored: &agentv1.StatusStored{Count: 1}}}
	g.send <- &agentv1.ConnectResponse{Frame: &agentv1.ConnectResponse_Goodbye{Goodbye: &agentv1.Goodbye{Reason: "test"}}}
	g.attempt(ctx, t, "token")
	hello := frame(ctx, t, g, (*agentv1.ConnectRequest).GetHello)
	if len(hello.GetStateHash()) != 0 || len(hello.GetStatusHash()) != 0 {
		t.Errorf("hello = %v, want no target", hello)
	}
}
