package gateway_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
	"github.com/kedge-dev/kedge/server/gatewaytest"
	"github.com/kedge-dev/kedge/server/internal/control"
)

func object(name string, health fleet.Health) fleet.ObjectStatus {
	return fleet.ObjectStatus{
		ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: name},
		Sync:      fleet.SyncSynced, Health: health,
	}
}

func observed(t fleet.Target, message string) fleet.Observed {
	return fleet.Observed{
		Version: t.Desired.Version, Digest: t.Desired.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, Message: message, AsOf: time.Now(),
	}
}

// While a write is in progress statuses are coalesced. Deltas are merged as if each had been written, and every
// status is confirmed.
func TestStatusesAreCoalescedAndNoneIsLost(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	release := make(chan struct{})
	m.FailReport = func([]control.AgentReports) error {
		<-release
		return nil
	}
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMap(t, "v"))
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	p.held(heldOf(target))
	p.snapshot()

	a, b, c := object("a", fleet.HealthInProgress), object("b", fleet.HealthCurrent), object("c", fleet.HealthCurrent)
	p.status(wire.Status{Target: target.ID, Observed: observed(target, "0"), Full: true, Objects: []fleet.ObjectStatus{a, b}})
	const more = 1000
	for i := 1; i <= more; i++ {
		s := wire.Status{Target: target.ID, Observed: observed(target, fmt.Sprint(i))}
		switch i {
		case 10:
			s.Objects = []fleet.ObjectStatus{c, object("a", fleet.HealthCurrent)}
		case 20:
			s.Gone = []fleet.ObjectRef{b.ObjectRef}
		}
		p.status(s)
	}
	close(release)
	for {
		if stored := p.recv().GetStatusStored(); stored.GetCount() == more+1 {
			break
		}
	}
	if got := m.Target(target.ID).Observed.Message; got != fmt.Sprint(more) {
		t.Errorf("the stored status is number %s, want the newest, %d", got, more)
	}
	want := []fleet.ObjectStatus{object("a", fleet.HealthCurrent), c}
	if diff := cmp.Diff(want, m.Objects(target.ID)); diff != "" {
		t.Errorf("objects after all deltas (-want +got):\n%s", diff)
	}
	if n := m.Counts().Statuses; n > more/2 {
		t.Errorf("%d of %d statuses were written, want most of them coalesced", n, more)
	}
}

// A status that cannot be written delays only the agent that sent it.
func TestFailingReportDelaysNoOtherAgent(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	first, firstToken := m.Enroll("first")
	bad, badToken := m.Enroll("bad")
	good, goodToken := m.Enroll("good")
	firstTarget := m.Deploy(first, "a", configMap(t, "a"))
	badTarget, goodTarget := m.Deploy(bad, "a", configMap(t, "a")), m.Deploy(good, "b", configMap(t, "b"))
	var cured atomic.Bool
	both := make(chan struct{})
	m.FailReport = func(batch []control.AgentReports) error {
		<-both // the first write waits until the other two are in one batch
		for _, r := range batch {
			if r.Agent.ID == bad.ID && !cured.Load() {
				return errors.New("constraint failed")
			}
		}
		return nil
	}
	srv := serve(t, m, gatewaytest.Options{})
	report := func(token string, target fleet.Target) {
		p, _ := connect(t, srv, token, nil)
		p.status(wire.Status{Target: target.ID, Observed: observed(target, "x"), Full: true})
		p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Heartbeat{Heartbeat: &agentv1.Heartbeat{}}})
	}
	report(firstToken, firstTarget)
	report(badToken, badTarget)
	report(goodToken, goodTarget)
	awaitFrames(t, srv, "heartbeat", 3) // the server has received the frames before them too
	close(both)
	if err := m.AwaitObserved(within(t), goodTarget.ID, fleet.SyncSynced); err != nil {
		t.Fatalf("the good agent's status was never written: %v", err)
	}
	cured.Store(true)
	if err := m.AwaitObserved(within(t), badTarget.ID, fleet.SyncSynced); err != nil {
		t.Fatalf("the status that had failed was lost: %v", err)
	}
}

func TestEventsReachControl(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	_, token := m.Enroll("edge-1")
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	p.send(&agentv1.ConnectRequest{Frame: &agentv1.ConnectRequest_Events{Events: wire.EventsProto([]wire.Event{
		{Event: fleet.Event{At: at, Type: fleet.EventNormal, Reason: "DriftHealed", Message: "replicas"}},
		{Event: fleet.Event{At: time.Now().Add(time.Hour), Type: fleet.EventWarning, Reason: "FromTheFuture"}},
	})}})
	if err := m.AwaitEvents(within(t), 2); err != nil {
		t.Fatal(err)
	}
	got := m.Events()
	if !got[0].Event.At.Equal(at) || got[0].Event.Reason != "DriftHealed" {
		t.Errorf("first event = %+v, want it unchanged", got[0])
	}
	if got[1].Event.At.After(time.Now()) {
		t.Errorf("the time of an event is in the future: %s", got[1].Event.At)
	}
}

// The server asks only for statuses that it has not confirmed.
func TestServerAsksForStatusesWhenHashesDiffer(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	agent, token := m.Enroll("edge-1")
	target := m.Deploy(agent, "shop", configMap(t, "v"))
	srv := serve(t, m, gatewaytest.Options{})
	p, _ := connect(t, srv, token, nil)
	s := wire.Status{Target: target.ID, Observed: observed(target, ""), Full: true}
	p.status(s)
	if err := m.AwaitObserved(within(t), target.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	_, same := connect(t, srv, token, func(h *wire.Hello) { h.StatusHash = wire.StatusHash([]wire.Confirmed{s.Confirmed()}) })
	if same.SendStatuses {
		t.Error("the server asks for statuses that it has")
	}
	_, other := connect(t, srv, token, nil)
	if !other.SendStatuses {
		t.Error("the server does not ask for statuses, although none of the agent is confirmed")
	}
}
