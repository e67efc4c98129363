package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// heldPrunes is the number of held deletions, by deployment and by target.
type heldPrunes struct {
	deployments map[fleet.DeploymentID]int
	targets     map[fleet.TargetID]int
}

// heldPrunes counts like HeldPrunes lists: an object on two agents counts twice.
func (v *viewer) heldPrunes(ctx context.Context, ids ...fleet.DeploymentID) (heldPrunes, error) {
	out := heldPrunes{map[fleet.DeploymentID]int{}, map[fleet.TargetID]int{}}
	counts, err := v.tx.Targets().CountHeld(ctx, v.tenant, ids)
	for _, n := range counts {
		out.deployments[n.Deployment] += n.Count
		out.targets[n.Target] += n.Count
	}
	return out, err
}
