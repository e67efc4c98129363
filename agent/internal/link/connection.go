package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// connection is one stream to the server, with the state that ends with it.
type connection struct {
	*Client
	log    *slog.Logger // names tenant and agent after Welcome
	rpc    agentv1.AgentServiceClient
	stream grpc.BidiStreamingClient[agentv1.ConnectRequest, agentv1.ConnectResponse]
	tunnel secondConnection
	// sendStates makes the writer list the states of all targets.
	sendStates chan struct{}
	sentLists
	environments []fleet.PushEnvironment // of a list that is not complete; only the reader uses it
	// lease starts the writer.
	lease chan time.Duration
	// fetchSlots bounds the number of concurrent downloads.
	fetchSlots chan struct{}
	fetches    *fetchSet
	// unavailable has the bundles that are not worth another attempt, and the reason.
	unavailable map[string]error
	// timeout ends the connection when the server does not send Welcome, or does not close the stream, in time.
	timeout *time.Timer
	// welcomed is set by the reader when the server has accepted the agent.
	welcomed bool
	// token is the token of this connection, and storedToken the one that was read from the store.
	token       string
	storedToken string
	rotating    atomic.Bool // a new token is being stored
	rotated     chan rotation
	// closing is set when the agent has closed its side of the stream, to reconnect with a new token.
	closing atomic.Bool
}

// sentLists is what was sent of the lists that the agent reports.
type sentLists struct {
	capabilities sentCapabilities
	applications sentApplications
	checks       sentChecks
}

const (
	concurrentFetches = 2
	// defaultWelcomeTimeout is how long the server may take to send Welcome.
	defaultWelcomeTimeout = 30 * time.Second
)

// connect makes one connection and serves it until it ends.
func (c *Client) connect(ctx context.Context) error {
	token, err := c.tokens.next(ctx)
	if err != nil {
		return err
	}
	welcomed, err := c.connectWith(ctx, token)
	c.tokens.used(token, welcomed, err)
	return err
}

// connectWith makes one connection with a token. It reports whether the server accepted the agent.
func (c *Client) connectWith(ctx context.Context, token string) (welcomed bool, err error) {
	hello := c.cfg.Hello(ctx)
	d, err := newDialer(c.cfg, c.addr, hello.AgentVersion)
	if err != nil {
		return false, err
	}
	cc, err := d.client()
	if err != nil {
		return false, &configError{kind: KindProtocol, err: fmt.Errorf("creating the gRPC client: %w", err)}
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithCancelCause(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	defer cancel(nil)

	conn := &connection{
		Client: c, log: c.log, tunnel: secondConnection{agentVersion: hello.AgentVersion}, rpc: agentv1.NewAgentServiceClient(cc), token: token, storedToken: c.tokens.newest,
		rotated: make(chan rotation, 1), sendStates: make(chan struct{}, 1), lease: make(chan time.Duration, 1),
		fetchSlots: make(chan struct{}, concurrentFetches), fetches: newFetchSet(), unavailable: map[string]error{},
		timeout: time.AfterFunc(c.welcomeTimeout, func() { cancel(errNoWelcome) }),
	}
	defer conn.timeout.Stop()
	if conn.stream, err = conn.rpc.Connect(ctx); err != nil {
		return false, d.explain(ctx, err)
	}
	err = conn.serve(ctx, hello)
	switch {
	case conn.closing.Load():
		err = &goodbye{reason: "reconnecting with a new token"}
	case !conn.welcomed:
		err = d.explain(ctx, err)
	}
	cancel(nil)
	conn.fetches.wait()
	conn.tunnel.conn.retire()
	return conn.welcomed, err
}

// explain returns why a connection ended before Welcome. An error of the transport says more than the one of gRPC.
func (d *dialer) explain(ctx context.Context, err error) error {
	if dialed := d.lastError(); err != nil && dialed != nil {
		return &dialError{dialed}
	}
	if errors.Is(context.Cause(ctx), errNoWelcome) {
		err = errNoWelcome
	}
	if errors.Is(err, io.EOF) {
		err = errEndedBeforeWelcome
	}
	return &beforeWelcomeError{err}
}

// serve runs the writer beside the reader and stops both.
func (n *connection) serve(ctx context.Context, hello wire.Hello) error {
	hello.Clock, hello.Standby, hello.Tunnel = time.Now(), n.cfg.Standby, n.cfg.Tunnels != nil
	n.capabilities = sentCapabilities{inHello: hello.Capabilities, hash: hello.Capabilities.Hash()}
	if !n.cfg.Standby {
		states, hash, known := n.states()
		hello.StateHash, hello.StatusHash = hash, n.statuses.hash()
		if known && len(states) <= wire.MaxStatesInHello {
			hello.TargetStates = make(map[fleet.TargetID]wire.TargetState, len(states))
			for _, s := range states {
				hello.TargetStates[s.Target] = s
			}
		}
	}
	if err := n.send("hello", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Hello{Hello: hello.Proto()}}); err != nil {
		return n.streamError(err)
	}
	defer n.setConnected(false)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		n.write(ctx)
	}()
	err := n.read(ctx)
	cancel()
	<-writer
	return err
}
