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
		if d.PendingSpecRevision != 0 {
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

// addPending shows the newest requested spec, and that it is not in force. The summary is that of the running
// state.
func (v *DeploymentView) addPending(p *fleet.PendingSpec) {
	if p == nil {
		return
	}
	inForce := v.Deployment
	v.Deployment, v.Pending, v.InForce = inForce.With(*p), p, &inForce
	switch {
	case p.Problem != "":
		v.Sync, v.Reason, v.Message = fleet.SyncFailed, p.Reason, p.String()
		if inForce.Rendered.Commit != "" {
			v.Message += fmt.Sprintf(" (commit %.12s continues to run)", inForce.Rendered.Commit)
		}
	case v.Sync == fleet.SyncSynced:
		v.Sync, v.Reason, v.Message = fleet.SyncPending, p.Reason, p.String()
	case v.Message == "":
		v.Message = p.String()
	}
}
