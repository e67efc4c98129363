package link

import (
	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
)

// target is what a client knows of one target. The zero value means that it knows nothing.
type target struct {
	// state is the newest state that the engine has received or found in the cluster; nil when there is none.
	state *wire.TargetState
	// unsent means that the engine found state in the cluster without its bundle, and has not received it since. The
	// server has to send it again, even if it is a tombstone or detached and has no bundle at all.
	unsent bool
	// deferred is for the engine if the server is unavailable; nil when there is nothing.
	deferred *engine.Desired
	// awaited is a desired state that waits for its bundle; nil when none does.
	awaited *wire.Desired
	// rejected is the digest of a bundle that was reported to be unavailable for this target.
	rejected string
}

// targets holds what a client knows of the targets of its agent. The client's lock guards it.
type targets struct {
	byID    map[fleet.TargetID]*target
	awaited int // how many targets wait for a bundle
}

func newTargets() targets { return targets{byID: map[fleet.TargetID]*target{}} }

func (t *targets) get(id fleet.TargetID) *target {
	known := t.byID[id]
	if known == nil {
		known = &target{}
		t.byID[id] = known
	}
	return known
}

// recovered adds a state that the engine found in the cluster. An inventory has the version of what was applied, but not
// the objects. Without these the server has to send the state again; it learns from the version whether the agent is ahead.
func (t *targets) recovered(found engine.Held) {
	state := wire.TargetState{Target: found.Target, Version: found.Version}
	if found.AtHand {
		state.Digest = found.Digest
	}
	known := t.get(found.Target)
	known.state, known.unsent = &state, !found.AtHand
}

// received records that the engine has received a state.
func (t *targets) received(id fleet.TargetID, d fleet.Desired) {
	state := wire.StateOf(id, d)
	known := t.get(id)
	known.state, known.unsent, known.deferred = &state, false, nil
}

// delivered records that the engine has received a desired state of the server. The target waits for nothing else then.
func (t *targets) delivered(id fleet.TargetID, d fleet.Desired) {
	t.received(id, d)
	known := t.get(id)
	if known.awaited != nil {
		t.awaited--
	}
	known.awaited, known.rejected = nil, ""
}

// await records a desired state that waits for its bundle.
func (t *targets) await(d wire.Desired) {
	known := t.get(d.Target)
	if known.awaited == nil {
		t.awaited++
	}
	known.awaited = &d
}

// awaiting returns the desired states that wait for a bundle.
func (t *targets) awaiting(digest string) []wire.Desired {
	var out []wire.Desired
	for _, known := range t.byID {
		if known.awaited != nil && known.awaited.State.Digest == digest {
			out = append(out, *known.awaited)
		}
	}
	return out
}

// awaitedDigests returns the bundles that targets wait for.
func (t *targets) awaitedDigests() map[string]bool {
	out := map[string]bool{}
	for _, known := range t.byID {
		if known.awaited != nil {
			out[known.awaited.State.Digest] = true
		}
	}
	return out
}

// isAwaited reports whether a target waits for a bundle.
func (t *targets) isAwaited(id fleet.TargetID) bool {
	known := t.byID[id]
	return known != nil && known.awaited != nil
}

// dropAwaited drops all desired states that wait for a bundle.
func (t *targets) dropAwaited() {
	for _, known := range t.byID {
		known.awaited = nil
	}
	t.awaited = 0
}

// takeDeferred returns all deferred states and drops them.
func (t *targets) takeDeferred() []engine.Desired {
	var out []engine.Desired
	for _, known := range t.byID {
		if known.deferred != nil {
			out = append(out, *known.deferred)
			known.deferred = nil
		}
	}
	return out
}

// forget drops the state of a target that is deleted or detached, unless a newer one has come since. What the target waits
// for stays.
func (t *targets) forget(id fleet.TargetID, version fleet.Version) {
	known := t.byID[id]
	if known == nil || known.state == nil || known.state.Version != version {
		return
	}
	if known.state, known.unsent = nil, false; *known == (target{}) {
		delete(t.byID, id)
	}
}

// states returns the state of every target.
func (t *targets) states() []wire.TargetState {
	var out []wire.TargetState
	for _, known := range t.byID {
		if known.state != nil {
			out = append(out, *known.state)
		}
	}
	return out
}

// hash returns the hash over the states of all targets. It returns nil, which differs from every hash of the server, when
// the server has to send one of them again.
func (t *targets) hash() []byte {
	for _, known := range t.byID {
		if known.unsent {
			return nil
		}
	}
	return wire.StateHash(t.states())
}
