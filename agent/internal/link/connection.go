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
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// connection is one stream to the server and what is true only as long as it lives.
type connection struct {
	*Client
	log    *slog.Logger // says whose agent this is, once the server has
	rpc    agentv1.AgentServiceClient
	stream grpc.BidiStreamingClient[agentv1.ConnectRequest, agentv1.ConnectResponse]
	// sendHeld asks the writer to answer with Held.
	sendHeld chan struct{}
	offer    offer
	// lease is told to the writer once.
	lease chan time.Duration
	// fetches bounds how many bundles are fetched at once.
	fetches chan struct{}
	fetched *fetchSet
	// hopeless are bundles that trying again does not help, and why.
	hopeless map[string]error
	// late ends the connection when there is no Welcome in time.
	late *time.Timer
	// welcomed is set by the reader when the server has let the agent in.
	welcomed bool
	// token is what the connection was made with, and kept what was found where tokens are. rotating is
	// set while a new one is being kept; stored tells the writer how that went.
	token    string
	kept     string
	rotating atomic.Bool
	stored   chan rotation
	// leaving is set when the agent has ended its side, to come back with a new token.
	leaving atomic.Bool
}

const (
	concurrentFetches = 2
	// welcomeTimeout bounds how long a server that took the connection may say nothing.
	welcomeTimeout = 30 * time.Second
)

// connect makes one connection and serves it until it ends.
func (c *Client) connect(ctx context.Context) error {
	token, err := c.wallet.next(ctx)
	if err != nil {
		return err
	}
	welcomed, err := c.connectWith(ctx, token)
	c.wallet.ended(token, welcomed, err)
	return err
}

// connectWith makes one connection with a token, and reports whether the server let the agent in.
func (c *Client) connectWith(ctx context.Context, token string) (welcomed bool, err error) {
	hello := c.cfg.Hello(ctx)
	d, err := newDialer(c.cfg, c.addr, hello.AgentVersion)
	if err != nil {
		return false, err
	}
	cc, err := d.client()
	if err != nil {
		return false, &configError{kind: KindProtocol, err: fmt.Errorf("making a client: %w", err)}
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithCancelCause(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	defer cancel(nil)

	conn := &connection{
		Client: c, log: c.log, rpc: agentv1.NewAgentServiceClient(cc), token: token, kept: c.wallet.newest, stored: make(chan rotation, 1),
		sendHeld: make(chan struct{}, 1), lease: make(chan time.Duration, 1),
		fetches: make(chan struct{}, concurrentFetches), fetched: newFetchSet(), hopeless: map[string]error{},
		late: time.AfterFunc(c.patience, func() { cancel(errNoWelcome) }),
	}
	defer conn.late.Stop()
	if conn.stream, err = conn.rpc.Connect(ctx); err != nil {
		return false, d.explain(ctx, err)
	}
	err = conn.serve(ctx, hello)
	switch {
	case conn.leaving.Load():
		err = &goodbye{reason: "coming back with a new token"}
	case !conn.welcomed:
		err = d.explain(ctx, err)
	}
	cancel(nil)
	conn.fetched.wait()
	return conn.welcomed, err
}

// explain says why a connection ended before Welcome. It prefers why there was no transport over
// what gRPC says about it.
func (d *dialer) explain(ctx context.Context, err error) error {
	if failed := d.failure(); err != nil && failed != nil {
		return &dialError{failed}
	}
	if errors.Is(context.Cause(ctx), errNoWelcome) {
		err = errNoWelcome
	}
	if errors.Is(err, io.EOF) {
		err = errEarlyEnd
	}
	return &unwelcome{err}
}

// serve runs the writer beside the reader and ends both.
func (n *connection) serve(ctx context.Context, hello wire.Hello) error {
	hello.Clock, hello.Standby = time.Now(), n.cfg.Standby
	n.offer = offer{named: hello.Capabilities, known: hello.Capabilities.Hash()}
	if !n.cfg.Standby {
		states, hash, known := n.states()
		hello.StateHash, hello.StatusHash = hash, n.statuses.hash()
		if known && len(states) <= wire.HeldInHello {
			hello.Held = make(map[fleet.TargetID]wire.Held, len(states))
			for _, s := range states {
				hello.Held[s.Target] = s
			}
		}
	}
	if err := n.send("hello", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Hello{Hello: hello.Proto()}}); err != nil {
		return n.reason(err)
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

// read takes frames until the stream ends.
func (n *connection) read(ctx context.Context) error {
	first := true
	for {
		frame, err := n.stream.Recv()
		if errors.Is(err, io.EOF) && !first {
			return &goodbye{reason: "the stream ended", within: time.Second}
		}
		if err != nil {
			return err
		}
		w, isWelcome := frame.GetFrame().(*agentv1.ConnectResponse_Welcome)
		if isWelcome != first {
			return &configError{kind: KindProtocol, err: fmt.Errorf("%w: Welcome has to be the first frame, and to come once", wire.ErrFrame)}
		}
		if first = false; isWelcome {
			n.late.Stop()
			err = n.takeWelcome(ctx, w.Welcome)
		} else {
			err = n.take(ctx, frame)
		}
		if errors.Is(err, wire.ErrFrame) {
			return &configError{kind: KindProtocol, err: err}
		}
		if err != nil {
			return err
		}
	}
}

func (n *connection) takeWelcome(ctx context.Context, m *agentv1.Welcome) error {
	n.cfg.Metrics.frames.WithLabelValues("in", "welcome").Inc()
	w, err := wire.ParseWelcome(m)
	if err != nil {
		return err
	}
	n.log = n.log.With(obs.KeyTenant, w.Tenant, obs.KeyAgent, w.AgentName)
	n.log.Info("connected", obs.KeySession, string(w.Session), "serverVersion", w.ServerVersion, "standby", n.cfg.Standby)
	n.offer.asked, n.offer.again = w.SendCapabilities, w.TakeCapabilities // before the writer begins
	if n.cfg.Standby {
		if n.cfg.Welcomed != nil {
			_, _, _ = n.cfg.Welcomed(ctx, w)
		}
		n.lease <- w.Lease
		n.arrived()
		return nil
	}
	n.mu.Lock()
	n.setAgentLocked(w.AgentID)
	n.mu.Unlock()
	// The writer begins with heartbeats: starting an engine may take longer than the lease.
	n.statuses.begin(w.SendStatuses)
	n.lease <- w.Lease
	recovered, err := n.setEngine(ctx, w)
	if err != nil {
		return err
	}
	n.beginSnapshot()
	// After a restart Hello had nothing to tell, so a server that desires nothing did not ask. It
	// has to know all the same: what it desires next may be older than what is here.
	if w.SendHeld || recovered {
		n.sendHeld <- struct{}{}
		wait.Signal(n.wake)
	}
	n.arrived()
	return nil
}

// arrived notes that the server has let the agent in.
func (n *connection) arrived() {
	n.welcomed = true
	n.setConnected(true)
	n.cfg.Metrics.connects.Inc()
}

func (n *connection) take(ctx context.Context, frame *agentv1.ConnectResponse) error {
	count := n.cfg.Metrics.frames
	if _, bye := frame.GetFrame().(*agentv1.ConnectResponse_Goodbye); n.cfg.Standby && !bye {
		count.WithLabelValues("in", "unknown").Inc() // of a server that does not know what a standby is
		return nil
	}
	switch f := frame.GetFrame().(type) {
	case *agentv1.ConnectResponse_Desired:
		count.WithLabelValues("in", "desired").Inc()
		return n.takeDesired(ctx, f.Desired)
	case *agentv1.ConnectResponse_StatusStored:
		count.WithLabelValues("in", "status_stored").Inc()
		n.forget(n.statuses.confirm(f.StatusStored.GetCount()))
		wait.Signal(n.wake) // what did not fit into the window does now
	case *agentv1.ConnectResponse_SnapshotComplete:
		count.WithLabelValues("in", "snapshot_complete").Inc()
		n.endSnapshot()
	case *agentv1.ConnectResponse_NewToken:
		count.WithLabelValues("in", "new_token").Inc()
		return n.takeToken(ctx, f.NewToken)
	case *agentv1.ConnectResponse_Goodbye:
		count.WithLabelValues("in", "goodbye").Inc()
		return &goodbye{
			reason: f.Goodbye.GetReason(),
			within: min(max(0, time.Duration(f.Goodbye.GetReconnectWithinMilliseconds())*time.Millisecond), time.Minute),
		}
	default: // a frame of a newer server
		count.WithLabelValues("in", "unknown").Inc()
	}
	return nil
}

// write sends what there is to send, and a heartbeat when there is nothing.
func (n *connection) write(ctx context.Context) {
	var lease time.Duration
	select {
	case <-ctx.Done():
		return
	case lease = <-n.lease:
	}
	beat := time.NewTimer(lease / 3)
	defer beat.Stop()
	for {
		sent, err := n.writeOnce()
		if err != nil {
			return // the reader learns the reason from the stream
		}
		if sent {
			beat.Reset(lease / 3)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-beat.C:
			if n.send("heartbeat", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Heartbeat{Heartbeat: &agentv1.Heartbeat{}}}) != nil {
				return
			}
			beat.Reset(lease / 3)
		}
	}
}

// writeOnce sends the next frame, if there is one.
func (n *connection) writeOnce() (sent bool, err error) {
	select {
	case <-n.sendHeld:
		states, _, _ := n.states()
		return true, n.send("held", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Held{Held: wire.HeldProto(states)}})
	case answer := <-n.stored:
		return true, n.sendStored(answer)
	default:
	}
	if c, ok := n.capabilities(); ok {
		return true, n.send("capabilities", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Capabilities{Capabilities: wire.CapabilitiesProto(c)}})
	}
	if batch := n.events.take(); len(batch) > 0 {
		return true, n.send("events", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Events{Events: wire.EventsProto(batch)}})
	}
	frames := n.statuses.next()
	for _, s := range frames {
		if err := n.send("status", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Status{Status: s.Proto()}}); err != nil {
			return true, err
		}
	}
	return len(frames) > 0, nil
}

func (n *connection) send(kind string, frame *agentv1.ConnectRequest) error {
	if err := n.stream.Send(frame); err != nil {
		return err
	}
	n.cfg.Metrics.frames.WithLabelValues("out", kind).Inc()
	return nil
}

// reason asks the stream why a send failed: Send itself only says io.EOF.
func (n *connection) reason(err error) error {
	if errors.Is(err, io.EOF) {
		if _, why := n.stream.Recv(); why != nil {
			return why
		}
	}
	return err
}
