package wire

import (
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Bounds of what a target hands over.
const (
	// MaxHandOvers bounds how many deployments one target hands objects over to.
	MaxHandOvers = 1_000
	// MaxHandedOver bounds the objects that are named in one Desired. Where there are more, a HandOver names
	// none and so means all.
	MaxHandedOver = 10_000
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
		out = append(out, fleet.HandOver{Reason: fleet.HandOverReason(m.GetReason()), Deployment: m.GetDeployment(), Objects: objects})
	}
	return out
}

func checkHandOvers(list []fleet.HandOver) error {
	if len(list) > MaxHandOvers {
		return frameError("%d hand-overs are more than %d", len(list), MaxHandOvers)
	}
	objects := 0
	for _, h := range list {
		if err := checkWord("reason of a hand-over", string(h.Reason)); err != nil {
			return err
		}
		if err := checkWord("deployment of a hand-over", h.Deployment); err != nil {
			return err
		}
		objects += len(h.Objects)
	}
	if objects > MaxHandedOver {
		return frameError("%d objects that are handed over are more than %d", objects, MaxHandedOver)
	}
	return nil
}
