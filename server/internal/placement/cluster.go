package placement

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// KnownCluster is what an agent has told of the cluster that it is in.
type KnownCluster struct {
	connected bool   // it has been here
	Cluster   string // "" when it could not tell, or when its replicas do not agree
}

// ClusterOf finds out from every replica that was ever connected: one that may not read the UID of
// its cluster says nothing against the others.
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

// mayContinue reports whether an agent may go on with a target that a deleted one of its name has left behind.
// Who takes up what is in another cluster reports what is there instead, and then the objects of the first
// cluster are listed nowhere. So one that has not been here yet is given it on trust, until recognise; and
// where nobody can tell, the target stays as it is and the agent gets another one.
func (w KnownCluster) mayContinue(t fleet.Target) bool {
	switch {
	case t.LeftIn == "":
		return t.Observed.Version == fleet.Version{} // nothing is listed that could be lost
	case !w.connected:
		return true
	}
	return t.LeftIn == w.Cluster
}

// newestLeft is the target of one deployment that an agent goes on with, of those that are left behind: the one
// that was left last, in a cluster that is known if there is such a one; the zero value when there is none.
func (w KnownCluster) newestLeft(behind []fleet.Target) fleet.Target {
	var out fleet.Target
	for _, t := range behind {
		known, before := t.LeftIn != "", out.LeftIn != ""
		if w.mayContinue(t) && (known && !before || known == before && !t.DetachedAt.Before(out.DetachedAt)) {
			out = t
		}
	}
	if w.connected {
		out.LeftIn = "" // it has told already that it is there
	}
	return out
}

// leftForAgent finds what an agent goes on with, of all deployments.
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

// VerifyCluster compares what an agent was given on trust, because of its name, with the cluster that it says
// it is in, before anything is sent. What is of another cluster, or of one that it cannot tell, is left
// behind again, listed as before, and the agent gets a target of its own instead. Nobody acts here who
// could be held to a quota.
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

// leaveInCluster takes a target from an agent that turned out not to be where it was left.
func (p *Placer) leaveInCluster(ctx context.Context, tx store.Tx, a fleet.Agent, t fleet.Target) error {
	t.AgentID = ""
	return p.Orphan(ctx, tx, a, t, fmt.Sprintf("agent %q was enrolled again and is not known to be in the same cluster", a.Name))
}
