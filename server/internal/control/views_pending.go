package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// pending reads the pending specs of those deployments that have one.
func (v *viewer) pending(ctx context.Context, deployments []fleet.Deployment) (map[fleet.DeploymentID]*fleet.PendingSpec, error) {
	var ids []fleet.DeploymentID
	for _, d := range deployments {
		if d.PendingSpec != 0 {
			ids = append(ids, d.ID)
		}
	}
	found, err := v.tx.PendingSpecs().Of(ctx, v.tenant, ids)
	out := make(map[fleet.DeploymentID]*fleet.PendingSpec, len(found))
	for _, p := range found {
		out[p.DeploymentID] = &p
	}
	return out, err
}

// addPending shows the spec that was asked for last, and that it is not in force. What was summed up is of what runs.
func (v *DeploymentView) addPending(p *fleet.PendingSpec) {
	if p == nil {
		return
	}
	inForce := v.Deployment
	v.Deployment, v.Pending, v.InForce = inForce.With(*p), p, &inForce
	switch {
	case p.Problem != "":
		v.Sync, v.Reason, v.Message = fleet.SyncFailed, fleet.Reason(p.Reason), p.String()
		if inForce.Rendered.Commit != "" {
			v.Message += fmt.Sprintf(" (what commit %.12s holds goes on running)", inForce.Rendered.Commit)
		}
	case v.Sync == fleet.SyncSynced:
		v.Sync, v.Reason, v.Message = fleet.SyncPending, fleet.Reason(p.Reason), p.String()
	case v.Message == "":
		v.Message = p.String()
	}
}
