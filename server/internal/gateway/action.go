package gateway

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// heldTarget is what an agent has of a target.
type heldTarget struct {
	version fleet.Version
	digest  string
	usable  bool // the agent can apply it without receiving anything
	// credential was sent with its source in this session; nil if there was none.
	credential *sentCredential
}

func heldTargets(held map[fleet.TargetID]wire.TargetState) map[fleet.TargetID]heldTarget {
	out := make(map[fleet.TargetID]heldTarget, len(held))
	for id, h := range held {
		out[id] = heldTarget{version: h.Version, digest: h.Digest, usable: h.Digest != ""}
	}
	return out
}

// heldAfterSend is what an agent has of a target after the gateway sent it.
func heldAfterSend(t control.AgentTarget) heldTarget {
	held := wire.StateOf(t.ID, t.Desired)
	return heldTarget{version: held.Version, digest: held.Digest, usable: true}
}

// sendable reports whether a target has a state to send: it was rendered, the agent has not released it, and
// its source is known if the agent needs it.
func sendable(t control.AgentTarget) bool {
	return !t.SourceWaits && (t.Desired.Digest != "" || t.Desired.Tombstone || t.Desired.Detached) && !t.Released()
}

type action int

const (
	actionNone action = iota
	actionSend
	// actionReportAhead sends nothing. The agent has a newer version than the server, or a different state of the
	// same version, so it has a history that the server lost (invariant 4). Control decides what to do.
	actionReportAhead
)

func nextAction(t control.AgentTarget, held heldTarget, known bool) action {
	if !sendable(t) {
		return actionNone
	}
	if !known {
		return actionSend
	}
	order := held.version.Compare(t.Desired.Version)
	switch {
	case order > 0:
		return actionReportAhead
	case order < 0 || !held.usable:
		return actionSend
	case held.digest != wire.StateOf(t.ID, t.Desired).Digest:
		return actionReportAhead
	default:
		return actionNone
	}
}

// hashes returns the hashes of an agent that has every state and whose statuses are all confirmed.
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

// The functions below call control. Each occupies a slot during the call.

func (g *Gateway) connected(ctx context.Context, c fleet.Connection) error {
	release, err := g.acquireControl(ctx)
	if err != nil {
		return err
	}
	defer release()
	return g.control.AgentConnected(ctx, c)
}

func (g *Gateway) capable(ctx context.Context, agent fleet.Agent, c fleet.Capabilities) error {
	release, err := g.acquireControl(ctx)
	if err != nil {
		return err
	}
	defer release()
	return g.control.AgentCapable(ctx, agent, c)
}

func (g *Gateway) targetsOf(ctx context.Context, agent fleet.Agent, ids []fleet.TargetID) ([]control.AgentTarget, error) {
	release, err := g.acquireControl(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return g.control.TargetsOf(ctx, agent, ids)
}

func (g *Gateway) ahead(ctx context.Context, agent fleet.Agent, target fleet.TargetID, has fleet.Version) error {
	release, err := g.acquireControl(ctx)
	if err != nil {
		return err
	}
	defer release()
	return g.control.AgentAhead(ctx, agent, target, has)
}
