package rollout

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Resync gives a target a new version of its desired state, so that its agent applies the same bundle again. It needs no
// Git and changes no other target. It returns false, and changes nothing, while the deployment is suspended, while the
// agent has not acknowledged the current version, and for a dry run.
func (s *Planner) Resync(ctx context.Context, tx store.Tx, d fleet.Deployment, t fleet.Target) (bool, error) {
	st := s.NewReconciler(tx)
	held, err := st.holds.Of(ctx, d)
	if err != nil || !held.IsZero() || !Attached(t) || t.Observed.Version != t.Desired.Version {
		return false, err
	}
	st.repair = true
	targets := []fleet.Target{t}
	if err := st.writeDesired(ctx, &d, targets); err != nil {
		return false, err
	}
	return targets[0].Desired.Version != t.Desired.Version, nil
}
