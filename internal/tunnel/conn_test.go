package tunnel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/nettest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// transports serve gRPC in the two ways of the server.
var transports = map[string]func(t testing.TB, srv *grpc.Server, l net.Listener){
	"native": func(t testing.TB, srv *grpc.Server, l net.Listener) {
		t.Cleanup(srv.Stop)
		go func() { _ = srv.Serve(l) }()
	},
	"behind net/http": func(t testing.TB, srv *grpc.Server, l net.Listener) {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		web := &http.Server{Handler: srv, Protocols: protocols, ReadHeaderTimeout: time.Minute}
		t.Cleanup(func() { _ = web.Close() })
		go func() { _ = web.Serve(l) }()
	},
}

// exchange is a server of tunnels and a client for it.
type exchange struct {
	agentv1.UnimplementedTunnelServiceServer
	client  agentv1.TunnelServiceClient
	conn    *grpc.ClientConn
	servers chan *tunnel.Conn
}

func newExchange(t testing.TB, transport string) *exchange {
	t.Helper()
	e := &exchange{servers: make(chan *tunnel.Conn)}
	srv := grpc.NewServer()
	agentv1.RegisterTunnelServiceServer(srv, e)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transports[transport](t, srv, l)
	if e.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.conn.Close() })
	e.client = agentv1.NewTunnelServiceClient(e.conn)
	return e
}

// Tunnel implements agentv1.TunnelServiceServer.
func (e *exchange) Tunnel(s grpc.BidiStreamingServer[agentv1.TunnelRequest, agentv1.TunnelResponse]) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&agentv1.TunnelResponse{Frame: &agentv1.TunnelResponse_Open{Open: &agentv1.Open{User: "test"}}}); err != nil {
		return err
	}
	ctx, abort := context.WithCancel(s.Context())
	defer abort()
	c := tunnel.Server(s, abort, tunnel.Addr("agent"))
	select {
	case e.servers <- c:
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

// open opens one tunnel and returns the ends of the agent and of the server.
func (e *exchange) open() (agent, server *tunnel.Conn, err error) {
	ctx, abort := context.WithCancel(context.Background())
	s, err := e.client.Tunnel(ctx)
	if err == nil {
		err = s.Send(&agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Ready{Ready: &agentv1.Ready{}}})
	}
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		abort()
		return nil, nil, err
	}
	return tunnel.Agent(s, abort, tunnel.Addr("server")), <-e.servers, nil
}

func (e *exchange) mustOpen(t testing.TB) (agent, server *tunnel.Conn) {
	t.Helper()
	agent, server, err := e.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Close()
		_ = server.Close()
		<-agent.Done()
		<-server.Done()
	})
	return agent, server
}

func forEachTransport(t *testing.T, test func(t *testing.T, e *exchange)) {
	for name := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newExchange(t, name))
		})
	}
}

func TestConnIsANetConn(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, e *exchange) {
		for name, swap := range map[string]bool{"from the agent": false, "from the server": true} {
			t.Run(name, func(t *testing.T) {
				nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
					agent, server, err := e.open()
					if err != nil {
						return nil, nil, nil, err
					}
					c1, c2 = agent, server
					if swap {
						c1, c2 = server, agent
					}
					return c1, c2, func() { _, _ = agent.Close(), server.Close() }, nil
				})
			})
		}
	})
}

func TestEndOfOneDirectionLeavesTheOtherOpen(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, e *exchange) {
		agent, server := e.mustOpen(t)
		for _, ends := range [][2]*tunnel.Conn{{agent, server}, {server, agent}} {
			from, to := ends[0], ends[1]
			if _, err := from.Write([]byte("last")); err != nil {
				t.Fatal(err)
			}
			if err := from.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(to); err != nil || string(got) != "last" {
				t.Fatalf("got %q, %v", got, err)
			}
		}
	})
}

func TestEverythingArrivesAlthoughTheWriterHasClosed(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, e *exchange) {
		sent := make([]byte, 700<<10)
		_, _ = rand.Read(sent)
		for _, fromAgent := range []bool{true, false} {
			agent, server := e.mustOpen(t)
			from, to := server, agent
			if fromAgent {
				from, to = agent, server
			}
			if _, err := from.Write(sent); err != nil {
				t.Fatal(err)
			}
			_ = from.Close()
			if got, err := io.ReadAll(to); err != nil || string(got) != string(sent) {
				t.Fatalf("from the agent: %v: got %d of %d bytes, %v", fromAgent, len(got), len(sent), err)
			}
		}
	})
}

func TestLostStreamIsNotTheEndOfTheData(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, e *exchange) {
		_, server := e.mustOpen(t)
		_ = e.conn.Close() // the agent is gone
		if _, err := server.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("got %v", err)
		}
		if _, err := server.Write([]byte("x")); err == nil {
			t.Fatal("a write into a lost stream succeeded")
		}
	})
}

// TestUnreadDataIsBounded: a writer waits for a reader, even where gRPC has no flow control of its own, and other
// connections continue.
func TestUnreadDataIsBounded(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, e *exchange) {
		agent, server := e.mustOpen(t)
		var written int
		var all sync.WaitGroup
		all.Go(func() {
			chunk := make([]byte, 64<<10)
			for range 100 << 20 / len(chunk) {
				n, err := agent.Write(chunk)
				if written += n; err != nil {
					return
				}
			}
		})
		other, otherServer := e.mustOpen(t)
		all.Go(func() { _, _ = io.Copy(otherServer, otherServer) })
		for range 50 {
			if _, err := other.Write([]byte("ping")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(other, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
		}
		_ = other.Close()
		_, _ = server.Read(make([]byte, 1)) // something has arrived
		_ = agent.SetWriteDeadline(time.Now())
		_ = agent.Close()
		all.Wait()
		if written > 1<<20 {
			t.Errorf("%d bytes were written although nobody read", written)
		}
	})
}

func TestDeadlineInterruptsARead(t *testing.T) {
	t.Parallel()
	e := newExchange(t, "native")
	_, server := e.mustOpen(t)
	read := make(chan error)
	go func() {
		_, err := server.Read(make([]byte, 1))
		read <- err
	}()
	_ = server.SetReadDeadline(time.Unix(1, 0)) // as net/http does before it hands a connection over
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func TestClosedConnsLeaveNoGoroutine(t *testing.T) {
	e := newExchange(t, "native")
	e.mustOpen(t) // the connection itself has goroutines
	before := runtime.NumGoroutine()
	for i := range 50 {
		a, s, err := e.open()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = a.Write([]byte("x"))
		if i%2 == 0 {
			_ = a.Close()
		}
		_ = s.Close()
		_ = a.Close()
		<-a.Done()
		<-s.Done()
	}
	testkit.Eventually(t, 10*time.Second, func(context.Context) error {
		if n := runtime.NumGoroutine(); n > before {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}

// TestInvalidFramesEndTheConnection: neither end trusts the other.
func TestInvalidFramesEndTheConnection(t *testing.T) {
	t.Parallel()
	credit := func(n int64) *agentv1.TunnelRequest {
		return &agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Credit{Credit: &agentv1.Credit{Bytes: n}}}
	}
	data := func(n int) *agentv1.TunnelRequest {
		return &agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Data{Data: &agentv1.Data{Bytes: make([]byte, n)}}}
	}
	for name, frames := range map[string][]*agentv1.TunnelRequest{
		"a credit that overflows":   {credit(1<<63 - 1)},
		"a credit for nothing":      {credit(1)},
		"a negative credit":         {credit(-1)},
		"a frame that is too large": {data(32<<10 + 1)},
		"no data":                   {data(0)},
		"no frame":                  {{}},
		"Ready again":               {{Frame: &agentv1.TunnelRequest_Ready{Ready: &agentv1.Ready{}}}},
		"more than the window":      slices.Repeat([]*agentv1.TunnelRequest{data(32 << 10)}, 33),
		"data after the end":        {{Frame: &agentv1.TunnelRequest_End{End: &agentv1.End{}}}, data(1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newExchange(t, "native")
			s, err := e.client.Tunnel(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = s.Send(&agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Ready{Ready: &agentv1.Ready{}}})
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
			server := <-e.servers
			for _, f := range frames {
				_ = s.Send(f)
			}
			<-server.Done()
			if _, err := server.Write(make([]byte, 100)); err == nil {
				t.Error("the connection is still open")
			}
		})
	}
}

func TestSmallFramesArriveWhole(t *testing.T) {
	t.Parallel()
	agent, server := newExchange(t, "native").mustOpen(t)
	var sent bytes.Buffer
	for i := range 20_000 {
		part := bytes.Repeat([]byte{byte(i)}, i%7+1)
		sent.Write(part)
		if _, err := agent.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := agent.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, sent.Bytes()) {
		t.Errorf("%v: got %d of %d bytes", err, len(got), sent.Len())
	}
}
