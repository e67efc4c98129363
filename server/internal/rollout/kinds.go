package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// refuseKinds reports whether the kind filter of the agent of a target refuses an object of the desired state, and notes
// that at the target. Such a state is not sent, because the agent would refuse the object too: the target keeps the state that
// it has. Other targets of the deployment get theirs. Nothing is ever removed from a bundle for a filter: an object that is
// missing in a bundle is one that the agent deletes.
func (st *Reconciler) refuseKinds(ctx context.Context, t *fleet.Target, want fleet.Desired, change bool) (bool, error) {
	if !Attached(*t) || Refused(*t) || !change && t.Kinds.IsZero() && t.KindError == "" {
		return false, nil // an unchanged state has passed the built-in exclusions
	}
	why, err := st.planner.kindRefusal(ctx, st.tx, *t, want)
	if err != nil || why == t.KindError {
		return why != "", err
	}
	t.KindError = why
	if err := st.tx.Targets().SetPlace(ctx, *t); err != nil || why == "" {
		return why != "", err
	}
	return true, st.planner.tell(ctx, st.tx, fleet.Event{
		TenantID: t.TenantID, Type: fleet.EventWarning, Reason: fleet.ReasonKindNotAllowed, Agent: t.AgentName, Deployment: t.DeploymentName, Message: why,
	})
}

// kindRefusal returns which object of a state the kind filter of the agent refuses, and by which rule, or "". Of several
// objects it names the first.
func (s *Planner) kindRefusal(ctx context.Context, tx store.Tx, t fleet.Target, want fleet.Desired) (string, error) {
	if want.Digest == "" {
		return "", nil
	}
	names, err := s.objectNames(ctx, tx, t.TenantID, store.PlacedBundle{Digest: want.Digest, Namespace: want.Namespace})
	if errors.Is(err, errNoBundle) {
		return "", nil // the agent applies the filter too
	}
	if err != nil {
		return "", err
	}
	first, why := "", ""
	for name := range names {
		if first != "" && !before(name, first) {
			continue
		}
		if refusal := t.Kinds.Refusal(fleet.ParseObjectKind(name)); refusal != "" {
			first, why = name, refusal
		}
	}
	if first == "" {
		return "", nil
	}
	return fmt.Sprintf("agent %q refuses %s: %s; remove the object from the source, or change the filter", t.AgentName, first, why), nil
}

// before orders names of objects. Names with a namespace come first, because a kind that only the cluster knows has both
// forms.
func before(a, b string) bool {
	if placed := strings.Contains(a, "/"); placed != strings.Contains(b, "/") {
		return placed
	}
	return a < b
}
