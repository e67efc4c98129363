package wire

import (
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Bounds of hand-overs.
const (
	// MaxHandOvers bounds the hand-overs of one target.
	MaxHandOvers = 1_000
	// MaxHandedOver bounds the objects in the hand-overs of one Desired. When there are more, a HandOver has an empty
	// list, which means all objects.
	MaxHandedOver = 10_000
	// MaxHandedOverBytes bounds the total length of their names, so that they fit into a frame.
	MaxHandedOverBytes = 512 << 10
)

func handOversProto(list []fleet.HandOver) []*agentv1.HandOver {
	var out []*agentv1.HandOver
	for _, h := range list {
		out = append(out, &agentv1.HandOver{Reason: string(h.Reason), Deployment: h.Deployment, Objects: h.Objects})
	}
	return out
}

func parseHandOvers(list []*agentv1.HandOver) []fleet.HandOver {
	var out []fleet.HandOver
	for _, m := range list {
		objects := m.GetObjects()
		slices.Sort(objects)
		out = append(out, fleet.HandOver{Reason: fleet.Reason(m.GetReason()), Deployment: m.GetDeployment(), Objects: objects})
	}
	return out
}

func checkHandOvers(list []fleet.HandOver) error {
	if len(list) > MaxHandOvers {
		return frameError("%d hand-overs are more than %d", len(list), MaxHandOvers)
	}
	for _, h := range list {
		if err := checkWord("reason of a hand-over", string(h.Reason)); err != nil {
			return err
		}
		if err := checkWord("deployment of a hand-over", h.Deployment); err != nil {
			return err
		}
	}
	if TooManyHandedOver(list) {
		return frameError("the hand-overs have more than %d objects or %d bytes", MaxHandedOver, MaxHandedOverBytes)
	}
	return nil
}

// TooManyHandedOver reports whether the hand-overs exceed the bounds of one Desired.
func TooManyHandedOver(list []fleet.HandOver) bool {
	objects, bytes := 0, 0
	for _, h := range list {
		objects += len(h.Objects)
		for _, name := range h.Objects {
			bytes += len(name)
		}
	}
	return objects > MaxHandedOver || bytes > MaxHandedOverBytes
}
