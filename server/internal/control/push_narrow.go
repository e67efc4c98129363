package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// nothingOutside refuses to narrow a push environment while deployments have objects outside of it: Argo CD does not see
// them any more then, so that they would neither be managed, pruned, nor held.
func nothingOutside(ctx context.Context, tx store.Tx, env fleet.Environment, next fleet.Push) error {
	if !narrower(*env.Push, next) {
		return nil
	}
	targets, err := targetsOfPush(ctx, tx, env)
	if err != nil {
		return err
	}
	var outside []string
	foreign := 0
	for _, t := range targets {
		object, err := firstOutside(ctx, tx, t, next)
		switch {
		case err != nil:
			return err
		case object == "":
		case t.TenantID != env.TenantID:
			foreign++
		default:
			outside = append(outside, fmt.Sprintf("%q (%s)", t.DeploymentName, object))
		}
	}
	if foreign > 0 {
		outside = append(outside, fmt.Sprintf("%d of other tenants", foreign))
	}
	if len(outside) == 0 {
		return nil
	}
	return fleet.Conflict("environment %q cannot be narrowed while deployments have objects outside of it, which nothing would manage any more: %s; "+
		"move or delete these objects first", env.Name, some(outside))
}

// narrower reports whether an environment allows less than before.
func narrower(was, next fleet.Push) bool {
	return len(next.Namespaces) > 0 && (len(was.Namespaces) == 0 ||
		slices.ContainsFunc(was.Namespaces, func(ns string) bool { return !slices.Contains(next.Namespaces, ns) }) ||
		was.ClusterResources && !next.ClusterResources)
}

// targetsOfPush returns the targets of a push environment, with those of deployments that are being deleted.
func targetsOfPush(ctx context.Context, tx store.Tx, env fleet.Environment) (out []fleet.Target, err error) {
	for _, instance := range []fleet.AgentID{env.Push.Instance, env.Push.MovingFrom} {
		if instance == "" {
			continue
		}
		targets, err := tx.Targets().OfAgentAllTenants(ctx, instance)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			d, err := tx.Deployments().Get(ctx, t.TenantID, t.DeploymentID)
			if err != nil {
				return nil, err
			}
			if d.EnvironmentID == env.ID {
				out = append(out, t)
			}
		}
	}
	return out, nil
}

// firstOutside names an object of a target that an environment does not allow; "" if there is none. A target whose engine
// instance has not reported on its newest state may have any.
func firstOutside(ctx context.Context, tx store.Tx, t fleet.Target, next fleet.Push) (string, error) {
	if placement.HasLeft(t) && !t.Desired.Tombstone || t.Desired.Version == (fleet.Version{}) {
		return "", nil // its objects are not managed, or there are none
	}
	objects, err := tx.Targets().Objects(ctx, t.TenantID, t.ID)
	if err != nil {
		return "", err
	}
	for _, o := range objects {
		if o.Namespace == "" && !next.ClusterResources || o.Namespace != "" && !slices.Contains(next.Namespaces, o.Namespace) {
			return o.ObjectRef.String(), nil
		}
	}
	if t.Observed.Version != t.Desired.Version {
		return "its objects are not reported yet", nil
	}
	return "", nil
}
