package placement

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// KnownCluster is what an agent has reported about its cluster.
type KnownCluster struct {
	connected bool   // it has connected before
	Cluster   string // "" if unknown, or if its replicas report different clusters
}

// ClusterOf evaluates every replica that was ever connected: a replica that may not read the UID of its cluster
// does not contradict the others.
func ClusterOf(ctx context.Context, tx store.Tx, id fleet.AgentID) (KnownCluster, error) {
	rows, err := tx.Connections().OfAgentsAllTenants(ctx, []fleet.AgentID{id})
	if err != nil {
		return KnownCluster{}, err
	}
	out := KnownCluster{connected: len(rows) > 0}
	for _, row := range rows {
		switch {
		case row.ClusterUID == "" || row.ClusterUID == out.Cluster:
		case out.Cluster != "":
			return KnownCluster{connected: true}, nil
		default:
			out.Cluster = row.ClusterUID
		}
	}
	return out, nil
}

// mayContinue reports whether an agent may continue with a target that a deleted agent of its name left behind.
// An agent in another cluster would report other objects, and then the objects of the first cluster would be
// listed nowhere. Therefore an agent that has not connected yet gets the target provisionally, until
// VerifyCluster; and if the cluster is unknown, the target stays unchanged and the agent gets another one.
func (w KnownCluster) mayContinue(t fleet.Target) bool {
	switch {
	case t.LeftIn == "":
		return t.Observed.Version == fleet.Version{} // no listed object could be lost
	case !w.connected:
		return true
	}
	return t.LeftIn == w.Cluster
}

// newestLeft returns the target of one deployment that an agent continues with: the one that was left last,
// preferably in a known cluster; the zero value if there is none.
func (w KnownCluster) newestLeft(behind []fleet.Target) fleet.Target {
	var out fleet.Target
	for _, t := range behind {
		known, before := t.LeftIn != "", out.LeftIn != ""
		if w.mayContinue(t) && (known && !before || known == before && !t.DetachedAt.Before(out.DetachedAt)) {
			out = t
		}
	}
	if w.connected {
		out.LeftIn = "" // it has already reported that cluster
	}
	return out
}

// leftForAgent finds the targets that an agent continues with, of all deployments.
func leftForAgent(ctx context.Context, tx store.Tx, a fleet.Agent) (map[fleet.DeploymentID]fleet.Target, error) {
	out := map[fleet.DeploymentID]fleet.Target{}
	behind, err := tx.Targets().LeftBehindAllTenants(ctx, a)
	if err != nil || len(behind) == 0 {
		return out, err
	}
	where, err := ClusterOf(ctx, tx, a.ID)
	if err != nil {
		return nil, err
	}
	byDeployment := map[fleet.DeploymentID][]fleet.Target{}
	for _, t := range behind {
		byDeployment[t.DeploymentID] = append(byDeployment[t.DeploymentID], t)
	}
	for id, left := range byDeployment {
		if t := where.newestLeft(left); t.ID != "" {
			out[id] = t
		}
	}
	return out, nil
}

// VerifyCluster compares the targets that an agent got provisionally, because of its name, with the cluster
// that it reports, before anything is sent. Targets of another or unknown cluster are left behind again, listed
// as before, and the agent gets its own targets instead. No quota applies, because no user acts here.
func (p *Placer) VerifyCluster(ctx context.Context, tx store.Tx, a fleet.Agent, cluster string) error {
	unproven, err := tx.Targets().UnprovenAllTenants(ctx, a.ID)
	if err != nil || len(unproven) == 0 {
		return err
	}
	foreign := false
	for _, t := range unproven {
		if t.LeftIn != cluster {
			foreign = true
			err = p.leaveInCluster(ctx, tx, a, t)
		} else {
			t.LeftIn = ""
			err = tx.Targets().SetPlace(ctx, t)
		}
		if err != nil {
			return fmt.Errorf("deployment %q on agent %q: %w", t.DeploymentName, a.Name, err)
		}
	}
	if !foreign {
		return nil
	}
	_, err = p.assignAgent(ctx, tx, a)
	return err
}

// leaveInCluster removes a target from an agent that is not in its cluster.
func (p *Placer) leaveInCluster(ctx context.Context, tx store.Tx, a fleet.Agent, t fleet.Target) error {
	t.AgentID = ""
	return p.Orphan(ctx, tx, a, t, fmt.Sprintf("agent %q was enrolled again and is not known to be in the same cluster", a.Name))
}
