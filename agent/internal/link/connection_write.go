package link

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// write sends frames until ctx ends, and a heartbeat when there is nothing else to send.
func (n *connection) write(ctx context.Context) {
	var lease time.Duration
	select {
	case <-ctx.Done():
		return
	case lease = <-n.lease:
	}
	heartbeat := time.NewTimer(lease / 3)
	defer heartbeat.Stop()
	for {
		sent, err := n.writeOnce()
		if err != nil {
			return // the reader gets the reason from the stream
		}
		if sent {
			heartbeat.Reset(lease / 3)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-heartbeat.C:
			if n.send("heartbeat", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Heartbeat{Heartbeat: &agentv1.Heartbeat{}}}) != nil {
				return
			}
			heartbeat.Reset(lease / 3)
		}
	}
}

// writeOnce sends the next frame, if there is one.
func (n *connection) writeOnce() (sent bool, err error) {
	select {
	case <-n.sendStates:
		states, _, _ := n.states()
		return true, n.send("target_states", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_TargetStates{TargetStates: wire.TargetStatesProto(states)}})
	case result := <-n.rotated:
		return true, n.sendTokenStored(result)
	default:
	}
	if c, ok := n.nextCapabilities(); ok {
		return true, n.send("capabilities", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Capabilities{Capabilities: wire.CapabilitiesProto(c)}})
	}
	if l := n.nextApplications(); l != nil {
		return true, n.send("applications", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Applications{Applications: wire.ApplicationsProto(*l)}})
	}
	if l := n.nextChecks(); l != nil {
		return true, n.send("endpoint_checks", &agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_EndpointChecks{EndpointChecks: wire.EndpointChecksProto(*l)}})
	}
	if batch := n.events.next(); len(batch) > 0 {
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

// streamError returns why a send failed. Send itself returns only io.EOF.
func (n *connection) streamError(err error) error {
	if errors.Is(err, io.EOF) {
		if _, cause := n.stream.Recv(); cause != nil {
			return cause
		}
	}
	return err
}
