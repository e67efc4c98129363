package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Deletion is the effect of deleting a deployment, as far as its agents have reported.
type Deletion struct {
	Clusters int // with a target that would delete objects
	Away     int // number of these whose agent is not connected: they delete when it connects
	Objects  int // that would be deleted
	Kept     int // of protected kinds: they stay
}

// DeploymentDeletion returns the effect of deleting a deployment, and changes nothing.
func (s *Service) DeploymentDeletion(ctx context.Context, p auth.Principal, tenant, name string) (Deletion, error) {
	var out Deletion
	err := s.viewDeployment(ctx, p, tenant, name, func(tx store.Tx, _ *viewer, d fleet.Deployment) error {
		targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
		if err != nil {
			return err
		}
		connections, err := rollout.PresenceOf(ctx, tx, targets)
		if err != nil {
			return err
		}
		for _, t := range targets {
			if t.AgentID == "" || !t.DetachedAt.IsZero() {
				continue
			}
			out.Clusters++
			if !rollout.PresenceBy(connections[t.AgentID]).Connected {
				out.Away++
			}
		}
		kinds, err := tx.Targets().CountObjects(ctx, d.TenantID, d.ID)
		for _, k := range kinds {
			if manifest.IsProtected(fleet.ObjectRef{Group: k.Group, Kind: k.Kind}) {
				out.Kept += k.Objects
			} else {
				out.Objects += k.Objects
			}
		}
		return err
	})
	return out, err
}
