package rollout

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// sameCluster reports whether a deployment on the agent of t applies to the same cluster, as far as that is known. An engine
// instance applies to its own cluster and to those of its push environments: objects of equal names in two clusters have nothing
// to do with each other. Several push environments may be of one cluster.
func (h *HandOvers) sameCluster(ctx context.Context, t fleet.Target, id fleet.DeploymentID) (bool, error) {
	mine, err := h.clusterOf(ctx, t.TenantID, t.DeploymentID)
	if err != nil {
		return false, err
	}
	other, err := h.clusterOf(ctx, t.TenantID, id)
	return mine == other || mine == anyCluster || other == anyCluster, err
}

// anyCluster stands for the cluster of a deployment that is not known: then more is kept than necessary, never less.
const anyCluster = "any"

// clusterOf returns the API server of the push environment of a deployment, or "" for the cluster of its agent.
func (h *HandOvers) clusterOf(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (string, error) {
	if known, ok := h.clusters[id]; ok {
		return known, nil
	}
	d, err := h.tx.Deployments().Get(ctx, tenant, id)
	if err == nil && d.PendingSpecRevision == 0 {
		var env fleet.Environment
		if env, err = h.tx.Environments().Get(ctx, d.EnvironmentTenant, d.EnvironmentID); err == nil {
			h.clusters[id] = ""
			if env.Push != nil {
				h.clusters[id] = env.Push.APIURL
			}
			return h.clusters[id], nil
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", fmt.Errorf("reading the environment of deployment %s: %w", id, err)
	}
	return anyCluster, nil
}
