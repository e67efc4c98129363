package link

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
)

func objectOf(name string, health fleet.Health) fleet.ObjectStatus {
	return fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "Pod", Namespace: "d", Name: name}, Sync: fleet.SyncSynced, Health: health}
}

func statusOf(sync fleet.SyncState, objects ...fleet.ObjectStatus) engine.Status {
	return engine.Status{Target: "tgt-1", Observed: fleet.Observed{Version: fleet.Version{Generation: 1}, Sync: sync, Health: fleet.HealthCurrent}, Objects: objects}
}

func TestStatusesAreSentAsDeltas(t *testing.T) {
	t.Parallel()
	s := newStatuses()
	s.startConnection(false)
	a, b, c := objectOf("a", fleet.HealthCurrent), objectOf("b", fleet.HealthCurrent), objectOf("c", fleet.HealthInProgress)
	failing := objectOf("a", fleet.HealthFailed)

	s.put(statusOf(fleet.SyncSyncing, a, b))
	s.put(statusOf(fleet.SyncSynced, a, b))
	first := s.next()
	if len(first) != 1 || !first[0].Full || len(first[0].Objects) != 2 || first[0].Observed.Sync != fleet.SyncSynced {
		t.Fatalf("first = %+v, want the newest, complete, once", first)
	}
	if again := s.next(); again != nil {
		t.Fatalf("then %+v, want nothing", again)
	}
	s.put(statusOf(fleet.SyncSynced, failing, c))
	second := s.next()
	want := []wire.Status{{
		Target: "tgt-1", Observed: statusOf(fleet.SyncSynced).Observed,
		Objects: []fleet.ObjectStatus{failing, c}, Gone: []fleet.ObjectRef{b.ObjectRef},
	}}
	if diff := cmp.Diff(want, second); diff != "" {
		t.Errorf("second is not the difference (-want +got):\n%s", diff)
	}
	s.startConnection(false)
	third := s.next()
	if len(third) != 1 || !third[0].Full || len(third[0].Objects) != 2 {
		t.Errorf("on a new connection %+v, want the unconfirmed status, complete", third)
	}
	s.confirm(1)
	s.startConnection(false)
	if again := s.next(); again != nil {
		t.Errorf("after a confirmation %+v, want nothing", again)
	}
	s.startConnection(true)
	if all := s.next(); len(all) != 1 {
		t.Errorf("after a request for everything %+v, want the status", all)
	}
}

func TestConfirmationCoversOnlyItsFrames(t *testing.T) {
	t.Parallel()
	s := newStatuses()
	s.startConnection(false)
	s.put(statusOf(fleet.SyncSyncing))
	s.next()
	s.put(statusOf(fleet.SyncSynced))
	s.next()
	s.confirm(1)
	want := wire.StatusHash([]wire.Confirmed{wire.ConfirmedOf("tgt-1", statusOf(fleet.SyncSyncing).Observed)})
	if diff := cmp.Diff(want, s.hash()); diff != "" {
		t.Error("the hash does not match the confirmed statuses")
	}
	s.startConnection(false)
	if again := s.next(); len(again) != 1 {
		t.Errorf("%+v is sent on the next connection, want the unconfirmed status", again)
	}
}

// A server that is slow to confirm gets the newest status when it has caught up, and no intermediate ones.
func TestFullWindowKeepsTheNewestStatus(t *testing.T) {
	t.Parallel()
	s := newStatuses()
	s.startConnection(false)
	sent := 0
	for range 10_000 {
		s.put(statusOf(fleet.SyncSynced))
		sent += len(s.next())
	}
	if sent != wire.StatusWindow || len(s.inFlight) != wire.StatusWindow {
		t.Errorf("%d frames were sent and %d are in flight, want %d", sent, len(s.inFlight), wire.StatusWindow)
	}
	s.put(statusOf(fleet.SyncFailed))
	s.confirm(1)
	if next := s.next(); len(next) != 1 || next[0].Observed.Sync != fleet.SyncFailed {
		t.Errorf("after a confirmation %+v is sent, want the newest", next)
	}
	s.confirm(wire.StatusWindow + 1)
	s.startConnection(false)
	if again := s.next(); again != nil {
		t.Errorf("after all was confirmed %+v is sent, want nothing", again)
	}
}

func TestLongListsAreSplit(t *testing.T) {
	t.Parallel()
	var objects []fleet.ObjectStatus
	for i := range 5_000 {
		o := objectOf(fmt.Sprintf("pod-%05d", i), fleet.HealthCurrent)
		o.Message = strings.Repeat("x", 500)
		objects = append(objects, o)
	}
	s := newStatuses()
	s.startConnection(false)
	s.put(statusOf(fleet.SyncSynced, objects...))
	frames := s.next()
	var got []fleet.ObjectStatus
	for i, f := range frames {
		if f.Full != (i == 0) {
			t.Errorf("frame %d has full = %v", i, f.Full)
		}
		if _, err := wire.ParseStatus(f.Proto()); err != nil {
			t.Errorf("frame %d is beyond the limits: %v", i, err)
		}
		got = append(got, f.Objects...)
	}
	if diff := cmp.Diff(objects, got); diff != "" || len(frames) < 3 {
		t.Errorf("%d frames contain %d objects, want all 5000 in several", len(frames), len(got))
	}
	s.confirm(int64(len(frames)) - 1)
	if s.hash() != nil {
		t.Error("a status is confirmed before its last frame")
	}
	s.confirm(int64(len(frames)))
	if s.hash() == nil {
		t.Error("a status is not confirmed after its last frame")
	}
}

func TestOldestEventsAreDropped(t *testing.T) {
	t.Parallel()
	var e events
	dropped := 0
	for i := range maxEvents + 10 {
		if e.put(wire.Event{Event: fleet.Event{Seq: int64(i)}}) {
			dropped++
		}
	}
	if dropped != 10 {
		t.Errorf("%d events counted as dropped, want 10", dropped)
	}
	var got []wire.Event
	for batch := e.next(); len(batch) > 0; batch = e.next() {
		if len(batch) > wire.MaxEvents {
			t.Fatalf("%d events in one frame", len(batch))
		}
		got = append(got, batch...)
	}
	if len(got) != maxEvents || got[0].Event.Seq != 10 {
		t.Errorf("%d events left from %d on, want the newest %d", len(got), got[0].Event.Seq, maxEvents)
	}
}
