package tunnel

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// ErrFrame means that the other end does not keep to the protocol.
var ErrFrame = errors.New("unexpected frame in a tunnel")

// frame is one message of a stream, in either direction. Exactly one field is set.
type frame struct {
	data   []byte
	credit int64
	end    bool
}

// stream is one end of a Tunnel stream. send is not safe for concurrent use.
type stream interface {
	send(f frame) error
	receive() (frame, error)
	// closeSend ends the stream in the direction to the other end, where gRPC allows it.
	closeSend()
}

// agentEnd is the end of the agent.
type agentEnd struct {
	grpc.BidiStreamingClient[agentv1.TunnelRequest, agentv1.TunnelResponse]
}

func (e agentEnd) send(f frame) error {
	m := &agentv1.TunnelRequest{}
	switch {
	case f.end:
		m.Frame = &agentv1.TunnelRequest_End{End: &agentv1.End{}}
	case f.credit > 0:
		m.Frame = &agentv1.TunnelRequest_Credit{Credit: &agentv1.Credit{Bytes: f.credit}}
	default:
		m.Frame = &agentv1.TunnelRequest_Data{Data: &agentv1.Data{Bytes: f.data}}
	}
	return e.Send(m)
}

func (e agentEnd) receive() (frame, error) {
	m, err := e.Recv()
	if err != nil {
		return frame{}, err
	}
	switch f := m.GetFrame().(type) {
	case *agentv1.TunnelResponse_Data:
		return frame{data: f.Data.GetBytes()}, nil
	case *agentv1.TunnelResponse_Credit:
		return frame{credit: f.Credit.GetBytes()}, nil
	case *agentv1.TunnelResponse_End:
		return frame{end: true}, nil
	default:
		return frame{}, fmt.Errorf("%w: %T", ErrFrame, f)
	}
}

func (e agentEnd) closeSend() { _ = e.CloseSend() }

// serverEnd is the end of the server.
type serverEnd struct {
	grpc.BidiStreamingServer[agentv1.TunnelRequest, agentv1.TunnelResponse]
}

func (e serverEnd) send(f frame) error {
	m := &agentv1.TunnelResponse{}
	switch {
	case f.end:
		m.Frame = &agentv1.TunnelResponse_End{End: &agentv1.End{}}
	case f.credit > 0:
		m.Frame = &agentv1.TunnelResponse_Credit{Credit: &agentv1.Credit{Bytes: f.credit}}
	default:
		m.Frame = &agentv1.TunnelResponse_Data{Data: &agentv1.Data{Bytes: f.data}}
	}
	return e.Send(m)
}

func (e serverEnd) receive() (frame, error) {
	m, err := e.Recv()
	if err != nil {
		return frame{}, err
	}
	switch f := m.GetFrame().(type) {
	case *agentv1.TunnelRequest_Data:
		return frame{data: f.Data.GetBytes()}, nil
	case *agentv1.TunnelRequest_Credit:
		return frame{credit: f.Credit.GetBytes()}, nil
	case *agentv1.TunnelRequest_End:
		return frame{end: true}, nil
	default:
		return frame{}, fmt.Errorf("%w: %T", ErrFrame, f)
	}
}

// closeSend does nothing: the stream ends when the handler of the server returns.
func (e serverEnd) closeSend() {}
