package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/kedge-dev/kedge/internal/tunnel"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// pipe carries the frames of a stream in memory, until it is cut.
type pipe struct {
	requests  chan *agentv1.TunnelRequest
	responses chan *agentv1.TunnelResponse
	ended     chan struct{} // the handler has returned
	end       func()
	closed    chan struct{} // the agent has closed its direction
	closeSend func()

	mu   sync.Mutex
	left int // frames until the cut; negative for never
}

var errCut = errors.New("cut")

func newPipe(frames int) *pipe {
	p := &pipe{
		requests: make(chan *agentv1.TunnelRequest, 100), responses: make(chan *agentv1.TunnelResponse, 100), ended: make(chan struct{}), closed: make(chan struct{}), left: frames,
	}
	p.end, p.closeSend = sync.OnceFunc(func() { close(p.ended) }), sync.OnceFunc(func() { close(p.closed) })
	return p
}

// count counts a frame that is sent. The one after the last is lost, and ends the stream.
func (p *pipe) count() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		p.end()
	}
	select {
	case <-p.ended:
		return errCut
	default:
		p.left--
		return nil
	}
}

type pipeAgent struct {
	grpc.ClientStream
	*pipe
}

func (p pipeAgent) Context() context.Context { return context.Background() }
func (p pipeAgent) CloseSend() error         { p.closeSend(); return nil }

func (p pipeAgent) Send(m *agentv1.TunnelRequest) error {
	if err := p.count(); err != nil {
		return err
	}
	select {
	case p.requests <- m:
		return nil
	case <-p.ended:
		return errCut
	}
}

func (p pipeAgent) Recv() (*agentv1.TunnelResponse, error) {
	select {
	case m := <-p.responses:
		return m, nil
	default:
	}
	select {
	case m := <-p.responses:
		return m, nil
	case <-p.ended:
		return nil, errCut
	}
}

type pipeServer struct {
	grpc.ServerStream
	*pipe
}

func (p pipeServer) Context() context.Context { return context.Background() }

func (p pipeServer) Send(m *agentv1.TunnelResponse) error {
	if err := p.count(); err != nil {
		return err
	}
	select {
	case p.responses <- m:
		return nil
	case <-p.ended:
		return errCut
	}
}

func (p pipeServer) Recv() (*agentv1.TunnelRequest, error) {
	select {
	case m := <-p.requests:
		return m, nil
	default:
	}
	select {
	case m := <-p.requests:
		return m, nil
	case <-p.closed:
		select {
		case m := <-p.requests:
			return m, nil
		default:
			return nil, io.EOF
		}
	case <-p.ended:
		return nil, errCut
	}
}

// A stream is cut after each of its frames in turn. Neither end takes that for the end of the data, and no goroutine stays: the
// test would not end.
func TestCutAtEveryFrame(t *testing.T) {
	t.Parallel()
	up, down := bytes.Repeat([]byte("question "), 40_000), bytes.Repeat([]byte("answer "), 60_000)
	frames := 0
	for cut := 0; frames == 0; cut++ {
		synctest.Test(t, func(t *testing.T) {
			p := newPipe(cut)
			agent, server := tunnel.Agent(pipeAgent{pipe: p}, p.end, tunnel.Addr("server")), tunnel.Server(pipeServer{pipe: p}, p.end, tunnel.Addr("agent"))
			var work sync.WaitGroup
			var gotUp, gotDown []byte
			var upErr, downErr error
			work.Go(func() { transfer(agent, up) })
			work.Go(func() { transfer(server, down) })
			work.Go(func() { gotDown, downErr = io.ReadAll(agent) })
			work.Go(func() { gotUp, upErr = io.ReadAll(server) })
			work.Wait()
			_, _ = agent.Close(), server.Close()
			<-agent.Done()
			<-server.Done()
			for _, d := range []struct {
				name      string
				got, want []byte
				err       error
			}{{"to the server", gotUp, up, upErr}, {"to the agent", gotDown, down, downErr}} {
				if !bytes.HasPrefix(d.want, d.got) || d.err == nil && len(d.got) != len(d.want) {
					t.Errorf("cut after %d frames: %d of %d bytes arrive %s, with error %v", cut, len(d.got), len(d.want), d.name, d.err)
				}
			}
			if upErr == nil && downErr == nil && p.left > 0 {
				frames = cut
			}
		})
	}
	if frames < 20 {
		t.Errorf("an exchange has %d frames: too few for this test", frames)
	}
}

// transfer writes everything and ends its direction.
func transfer(c *tunnel.Conn, data []byte) {
	if _, err := c.Write(data); err == nil {
		_ = c.CloseWrite()
	}
}

// FuzzFrames sends any frames to the end of the server: each input byte is a frame.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255})
	f.Add(bytes.Repeat([]byte{130}, 40))
	f.Fuzz(func(t *testing.T, input []byte) {
		p := newPipe(-1)
		p.requests = make(chan *agentv1.TunnelRequest, len(input)+1)
		var sent []byte
		for i, b := range input {
			m := frameOf(b, byte(i))
			sent = append(sent, m.GetData().GetBytes()...)
			p.requests <- m
		}
		p.closeSend()
		conn := tunnel.Server(pipeServer{pipe: p}, p.end, tunnel.Addr("agent"))
		got, err := io.ReadAll(conn)
		if !bytes.HasPrefix(sent, got) {
			t.Errorf("%d bytes arrive, which are not the first of the %d that were sent", len(got), len(sent))
		}
		if err != nil && !errors.Is(err, tunnel.ErrFrame) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errCut) {
			t.Errorf("ends with %v", err)
		}
		_ = conn.Close()
		<-conn.Done()
	})
}

func frameOf(kind, fill byte) *agentv1.TunnelRequest {
	switch {
	case kind < 200: // data, also empty and too much
		return &agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Data{Data: &agentv1.Data{Bytes: bytes.Repeat([]byte{fill}, int(kind)*200)}}}
	case kind < 230:
		return &agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Credit{Credit: &agentv1.Credit{Bytes: (int64(kind) - 210) << (kind % 60)}}}
	case kind < 245:
		return &agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_End{End: &agentv1.End{}}}
	case kind < 250:
		return &agentv1.TunnelRequest{}
	}
	return &agentv1.TunnelRequest{Frame: &agentv1.TunnelRequest_Data{}}
}
