package link

import (
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
)

func TestTargetsCountWhatIsAwaited(t *testing.T) {
	t.Parallel()
	desired := func(id string, generation int64, digest string) wire.Desired {
		return wire.Desired{Target: fleet.TargetID(id), State: fleet.Desired{Version: fleet.Version{Generation: generation}, Digest: digest}}
	}
	known := newTargets()
	expect := func(step string, awaited, states int) {
		t.Helper()
		waiting := 0
		for _, k := range known.byID {
			if k.awaited != nil {
				waiting++
			}
		}
		if known.awaited != awaited || waiting != awaited || len(known.states()) != states {
			t.Errorf("%s: %d counted and %d targets wait for a bundle, %d have a state; want %d, %d and %d",
				step, known.awaited, waiting, len(known.states()), awaited, awaited, states)
		}
	}
	known.await(desired("a", 1, "x"))
	known.await(desired("b", 1, "x"))
	known.await(desired("a", 2, "y"))
	expect("a newer state replaces an awaited one", 2, 0)
	known.delivered("a", desired("a", 2, "y").State)
	expect("a delivered state is not awaited", 1, 1)
	known.received("b", desired("b", 0, "w").State)
	expect("a deferred state does not replace an awaited one", 1, 2)
	known.forget("b", fleet.Version{})
	expect("a deleted target may be awaited again", 1, 1)
	known.dropAwaited()
	expect("a new snapshot starts with nothing", 0, 1)
	known.forget("a", fleet.Version{Generation: 1})
	expect("an older version is not forgotten", 0, 1)
	known.forget("a", fleet.Version{Generation: 2})
	expect("a deleted target is forgotten", 0, 0)
	if _, ok := known.byID["a"]; ok {
		t.Error("a target of which nothing is known is still in the map")
	}
}

func TestStateHashNeedsEveryStateSent(t *testing.T) {
	t.Parallel()
	known := newTargets()
	known.recovered(engine.Held{Target: "a", Digest: "x", AtHand: true})
	if known.hash() == nil {
		t.Error("no hash, although the engine has everything")
	}
	known.recovered(engine.Held{Target: "b", Digest: "x"})
	if known.hash() != nil {
		t.Error("a hash over a state that the server has to send again")
	}
	known.delivered("b", fleet.Desired{Tombstone: true})
	if known.hash() == nil {
		t.Error("no hash after the state was sent")
	}
}
