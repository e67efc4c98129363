package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Deletion is what deleting a deployment would do, as far as its agents have told what they hold.
type Deletion struct {
	Clusters int // with a target that would be told to delete
	Away     int // of these, how many agents are not connected: they delete when they are back
	Objects  int // that would be deleted
	Kept     int // of kinds that are protected: they stay
}

// DeploymentDeletion says what deleting a deployment would delete, and changes nothing.
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
