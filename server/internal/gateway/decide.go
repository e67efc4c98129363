package gateway

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// possession is what an agent has of a target.
type possession struct {
	version fleet.Version
	digest  string
	atHand  bool // it can go on with that without being sent anything
}

func possessions(held map[fleet.TargetID]wire.TargetState) map[fleet.TargetID]possession {
	out := make(map[fleet.TargetID]possession, len(held))
	for id, h := range held {
		out[id] = possession{version: h.Version, digest: h.Digest, atHand: h.Digest != ""}
	}
	return out
}

// possessed is what an agent has of a target after it was sent to it.
func possessed(t control.AgentTarget) possession {
	held := wire.StateOf(t.ID, t.Desired)
	return possession{version: held.Version, digest: held.Digest, atHand: true}
}

// sendable reports whether there is anything to say about a target: not before it was rendered, and
// not after the agent has let go of it.
func sendable(t control.AgentTarget) bool {
	return (t.Desired.Digest != "" || t.Desired.Tombstone || t.Desired.Detached) && !t.Released()
}

type action int

const (
	doNothing action = iota
	doSend
	// tellAhead sends nothing: the agent knows more than the server, or means something else by the
	// same version, so it has a history that the server does not know (invariant 4). Control decides.
	tellAhead
)

func decide(t control.AgentTarget, had possession, known bool) action {
	if !sendable(t) {
		return doNothing
	}
	if !known {
		return doSend
	}
	order := had.version.Compare(t.Desired.Version)
	switch {
	case order > 0:
		return tellAhead
	case order < 0 || !had.atHand:
		return doSend
	case had.digest != wire.StateOf(t.ID, t.Desired).Digest:
		return tellAhead
	default:
		return doNothing
	}
}

// hashes are over what the server would expect of an agent that has everything.
func hashes(targets []control.AgentTarget) (state, statuses []byte) {
	var held []wire.TargetState
	var confirmed []wire.Confirmed
	for _, t := range targets {
		if !sendable(t) {
			continue
		}
		held = append(held, wire.StateOf(t.ID, t.Desired))
		if !t.Observed.AsOf.IsZero() {
			confirmed = append(confirmed, wire.ConfirmedOf(t.ID, t.Observed))
		}
	}
	return wire.StateHash(held), wire.StatusHash(confirmed)
}

// The calls to control below take one of the places for asking it.

func (g *Gateway) connected(ctx context.Context, c fleet.Connection) error {
	release, err := g.load(ctx)
	if err != nil {
		return err
	}
	defer release()
	return g.control.AgentConnected(ctx, c)
}

func (g *Gateway) capable(ctx context.Context, agent fleet.Agent, c fleet.Capabilities) error {
	release, err := g.load(ctx)
	if err != nil {
		return err
	}
	defer release()
	return g.control.AgentCapable(ctx, agent, c)
}

func (g *Gateway) targetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error) {
	release, err := g.load(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return g.control.TargetsOf(ctx, agent, ids)
}

func (g *Gateway) ahead(ctx context.Context, agent fleet.Agent, target fleet.TargetID, has fleet.Version) error {
	release, err := g.load(ctx)
	if err != nil {
		return err
	}
	defer release()
	return g.control.AgentAhead(ctx, agent, target, has)
}
