package replicaapi

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// connectTimeout limits how long a server may take to accept a connection.
const connectTimeout = 3 * time.Second

// Client opens connections to agents at other servers. It has one connection to each server, made on first use.
type Client struct {
	id *Identity

	mu    sync.Mutex
	peers map[string]*peer // by ID of the server
}

// peer is another server. Client.mu protects its fields.
type peer struct {
	conn    *grpc.ClientConn
	streams int
	dropped bool // not in Client.peers any more; closed with the last stream
}

// NewClient returns a client; it does no I/O.
func NewClient(id *Identity) *Client { return &Client{id: id, peers: map[string]*peer{}} }

// Close ends all connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.peers {
		delete(c.peers, id)
		_ = p.conn.Close()
	}
}

// Dial opens a connection to an agent at the server that the agent is connected to. ctx limits only the opening. It fails
// with a gRPC status: NotFound means that the agent is not connected there, and Unavailable that the server is not.
func (c *Client) Dial(ctx context.Context, to fleet.ServerReplica, agent fleet.Agent, caller wire.TunnelCaller) (net.Conn, error) {
	p, err := c.use(to)
	if err != nil {
		return nil, err
	}
	conn, err := p.open(ctx, agent, caller)
	if err != nil {
		c.release(to.ID, p, status.Code(err) == codes.Unavailable)
		return nil, err
	}
	go func() {
		<-conn.Done()
		c.release(to.ID, p, false)
	}()
	return conn, nil
}

// OfferStream is a tunnel that is given to another server.
type OfferStream = grpc.BidiStreamingClient[agentv1.TunnelRequest, agentv1.TunnelResponse]

// Offer gives a server a tunnel of an agent, until ctx ends. The caller copies its frames, and calls release at the end.
func (c *Client) Offer(ctx context.Context, to fleet.ServerReplica, agent fleet.Agent) (stream OfferStream, release func(), err error) {
	p, err := c.use(to)
	if err != nil {
		return nil, nil, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, agentKey, string(agent.ID), tenantKey, string(agent.TenantID), offerKey, "true")
	stream, err = agentv1.NewTunnelServiceClient(p.conn).Tunnel(ctx)
	if err == nil {
		err = stream.Send(&agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Ready{Ready: &agentv1.Ready{}}})
	}
	if err != nil {
		c.release(to.ID, p, status.Code(err) == codes.Unavailable)
		return nil, nil, err
	}
	return stream, func() { c.release(to.ID, p, false) }, nil
}

// use returns the connection to a server, for one more stream.
func (c *Client) use(to fleet.ServerReplica) (*peer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[to.ID]
	if p == nil {
		conn, err := grpc.NewClient("passthrough:///"+to.Address,
			grpc.WithTransportCredentials(credentials.NewTLS(c.id.clientTLS(to.ID))), grpc.WithNoProxy(),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxFrame), grpc.MaxCallSendMsgSize(maxFrame)),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		)
		if err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		c.sweepLocked()
		p = &peer{conn: conn}
		c.peers[to.ID] = p
	}
	p.streams++
	return p, nil
}

// sweepLocked drops the connections to servers that have gone. A server has a new ID after each start.
func (c *Client) sweepLocked() {
	for id, p := range c.peers {
		if p.streams == 0 && p.conn.GetState() != connectivity.Ready {
			delete(c.peers, id)
			_ = p.conn.Close()
		}
	}
}

// release ends the use of a connection by a stream. If the connection failed, the next stream gets a new one.
func (c *Client) release(id string, p *peer, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.streams--; failed && !p.dropped {
		p.dropped = true
		if c.peers[id] == p {
			delete(c.peers, id)
		}
	}
	if p.dropped && p.streams == 0 {
		_ = p.conn.Close()
	}
}

// open opens one stream, and waits until the agent has opened a tunnel.
func (p *peer) open(ctx context.Context, agent fleet.Agent, caller wire.TunnelCaller) (*tunnel.Conn, error) {
	open, err := proto.Marshal(caller.Proto())
	if err != nil {
		return nil, fmt.Errorf("encoding the caller: %w", err)
	}
	// The stream outlives ctx.
	own, abort := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, abort)
	defer stop()
	own = metadata.AppendToOutgoingContext(own, agentKey, string(agent.ID), tenantKey, string(agent.TenantID), callerKey, string(open))
	stream, err := agentv1.NewTunnelServiceClient(p.conn).Tunnel(own)
	if err == nil {
		err = awaitOpened(stream)
	}
	if err == nil && !stop() {
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		abort()
		return nil, err
	}
	return tunnel.Agent(stream, abort, tunnel.Addr("agent "+agent.Name)), nil
}

func awaitOpened(stream grpc.BidiStreamingClient[agentv1.TunnelRequest, agentv1.TunnelResponse]) error {
	header, err := stream.Header()
	if err != nil || len(header.Get(openedKey)) > 0 {
		return err
	}
	if _, err = stream.Recv(); err == nil { // the reason
		err = status.Error(codes.Internal, "the server has not opened a tunnel")
	}
	return err
}
