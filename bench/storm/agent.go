package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// objects is how many objects every target has.
const objects = 4

// agent is one stream.
type agent struct {
	*weather
	cc          *grpc.ClientConn
	name, token string
	probed      bool
	wants       int     // targets
	pace        float64 // statuses per second; 0: as many as possible
	stream      grpc.BidiStreamingClient[agentv1.ConnectRequest, agentv1.ConnectResponse]
	targets     []wire.Desired
	confirmed   chan int64 // the newest count that was not looked at
}

func (a *agent) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.token))
	defer cancel()
	var err error
	if a.stream, err = agentv1.NewAgentServiceClient(a.cc).Connect(ctx); err != nil {
		return fmt.Errorf("connecting %s: %w", a.name, err)
	}
	hello := wire.Hello{AgentVersion: "storm", Replica: a.name, Clock: time.Now()}
	if err := a.stream.Send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Hello{Hello: hello.Proto()}}); err != nil {
		return err
	}
	if err := a.collect(); err != nil {
		return fmt.Errorf("waiting for the targets of %s: %w", a.name, err)
	}
	a.waiting.Done()
	failed := make(chan error, 1)
	go func() { failed <- a.listen() }()
	select {
	case <-ctx.Done():
		return nil
	case <-a.begin:
	}
	if err := a.send(ctx); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	cancel()
	if err := <-failed; ctx.Err() == nil {
		return err
	}
	return nil
}

// collect reads desired states until every target has one.
func (a *agent) collect() error {
	seen := map[fleet.TargetID]bool{}
	for len(a.targets) < a.wants {
		frame, err := a.stream.Recv()
		if err != nil {
			return err
		}
		if frame.GetWelcome().GetSendTargetStates() {
			held := &agentv1.ConnectRequest_TargetStates{TargetStates: wire.TargetStatesProto(nil)}
			if err := a.stream.Send(&agentv1.ConnectRequest{Frame: held}); err != nil {
				return err
			}
		}
		if frame.GetDesired() == nil {
			continue
		}
		d, err := wire.ParseDesired(frame.GetDesired())
		if err != nil {
			return err
		}
		if !seen[d.Target] {
			seen[d.Target] = true
			a.targets = append(a.targets, d)
		}
	}
	return nil
}

// listen counts the confirmations of the server until the stream ends.
func (a *agent) listen() error {
	counted := int64(0)
	for {
		frame, err := a.stream.Recv()
		if err != nil {
			return err
		}
		if stored := frame.GetStatusStored(); stored != nil {
			a.stored.Add(stored.GetCount() - counted)
			counted = stored.GetCount()
			select {
			case <-a.confirmed: // nobody has looked
			default:
			}
			a.confirmed <- counted
		}
	}
}

// send sends statuses until ctx ends: first complete ones, then one object at a time. It respects the window,
// like the real link. A status that waits for the window has the time at which it was due: the wait is part of
// its staleness.
func (a *agent) send(ctx context.Context) error {
	began, confirmed := time.Now(), int64(0)
	for n := 0; ctx.Err() == nil; n++ {
		for int64(n)-confirmed >= wire.StatusWindow {
			select {
			case confirmed = <-a.confirmed:
			case <-ctx.Done():
				return nil
			}
		}
		made := time.Now()
		if a.pace > 0 {
			// A late one is sent immediately, so that the average pace is kept.
			made = began.Add(time.Duration(float64(n) / a.pace * float64(time.Second)))
			pause(ctx, time.Until(made))
		}
		i := n % len(a.targets)
		if a.probed && i == 0 {
			fmt.Printf("probe %d\n", made.UnixNano())
		}
		frame := &agentv1.ConnectRequest_Status{Status: a.status(a.targets[i], n, made).Proto()}
		if err := a.stream.Send(&agentv1.ConnectRequest{Frame: frame}); err != nil {
			return err
		}
	}
	return nil
}

// status returns the n-th status of the storm. Its message has its time.
func (a *agent) status(d wire.Desired, n int, made time.Time) wire.Status {
	round := n / len(a.targets)
	s := wire.Status{Target: d.Target, Full: round == 0, Observed: fleet.Observed{
		Version: d.State.Version, Digest: d.State.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent,
		Message: strconv.FormatInt(made.UnixNano(), 10), AsOf: made,
	}}
	for o := range objects {
		if s.Full || o == round%objects {
			s.Objects = append(s.Objects, fleet.ObjectStatus{
				ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: fmt.Sprintf("%s-%d", d.Deployment, o)},
				Sync:      fleet.SyncSynced, Health: fleet.HealthCurrent, Message: fmt.Sprintf("round %d", round),
			})
		}
	}
	return s
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
