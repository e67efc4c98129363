package control

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Deployments lists deployments in the order of their names, without objects.
func (s *Service) Deployments(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]DeploymentView, error) {
	var out []DeploymentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		deployments, err := tx.Deployments().List(ctx, t.ID, page)
		if err != nil {
			return err
		}
		out, err = viewDeployments(ctx, tx, t.ID, deployments)
		return err
	})
	return out, err
}

// Deployment returns one deployment that is not deleted, with the objects of every target.
func (s *Service) Deployment(ctx context.Context, p auth.Principal, tenant, name string) (DeploymentView, error) {
	var out DeploymentView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(ctx, t.ID, name)
		if err != nil {
			return fmt.Errorf("deployment %q: %w", name, err)
		}
		views, err := viewDeployments(ctx, tx, t.ID, []fleet.Deployment{d})
		if err != nil {
			return err
		}
		out = views[0]
		for i := range out.Targets {
			if out.Targets[i].Objects, err = tx.Targets().Objects(ctx, t.ID, out.Targets[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// viewDeployments costs the same few queries for one deployment as for a page of them.
func viewDeployments(ctx context.Context, tx store.Tx, tenant fleet.TenantID, deployments []fleet.Deployment) ([]DeploymentView, error) {
	ids := make([]fleet.DeploymentID, len(deployments))
	for i, d := range deployments {
		ids[i] = d.ID
	}
	targets, err := tx.Targets().ListByDeployments(ctx, tenant, ids)
	if err != nil {
		return nil, err
	}
	connections, err := tx.Connections().List(ctx, tenant)
	if err != nil {
		return nil, err
	}
	repositories, err := tx.Repositories().List(ctx, tenant)
	if err != nil {
		return nil, err
	}
	presence := groupConnections(connections)
	byDeployment := map[fleet.DeploymentID][]TargetView{}
	for _, t := range targets {
		byDeployment[t.DeploymentID] = append(byDeployment[t.DeploymentID], viewTarget(t, presence[t.AgentID]))
	}
	repoError := map[fleet.RepositoryID]string{}
	for _, r := range repositories {
		repoError[r.ID] = r.Error
	}
	out := make([]DeploymentView, len(deployments))
	for i, d := range deployments {
		out[i] = sumUp(d, byDeployment[d.ID], repoError[d.RepositoryID])
	}
	return out, nil
}

func viewTarget(t fleet.Target, connections []fleet.Connection) TargetView {
	lost, ever := lostSince(connections)
	v := TargetView{Target: t, View: t.ViewAt(lost)}
	if !ever && v.Message == "" {
		v.Message = fmt.Sprintf("agent %q has never connected", t.AgentName)
	}
	return v
}

// lostSince is when an agent was last heard of, or zero while any replica of it is connected. ever
// is false when it never connected at all.
func lostSince(connections []fleet.Connection) (lost time.Time, ever bool) {
	for _, c := range connections {
		if c.Connected() {
			return time.Time{}, true
		}
		if c.LastSeenAt.After(lost) {
			lost = c.LastSeenAt
		}
	}
	return lost, len(connections) > 0
}

// syncRank orders sync states from least to most worth telling.
var syncRank = map[fleet.SyncState]int{
	fleet.SyncDeleted: 0, fleet.SyncSynced: 1, fleet.SyncPending: 2, fleet.SyncSyncing: 3, fleet.SyncRewound: 4, fleet.SyncFailed: 5,
}

// sumUp is a deployment as the worst of its targets, with the first thing that a user should know.
func sumUp(d fleet.Deployment, targets []TargetView, repoError string) DeploymentView {
	v := DeploymentView{Deployment: d, Targets: targets}
	for _, t := range targets {
		if v.Sync == "" || syncRank[t.View.Sync] > syncRank[v.Sync] {
			v.Sync = t.View.Sync
			v.Message = prefixed(t.AgentName, t.View.Message)
		}
		v.Health = fleet.Worst(v.Health, t.View.Health)
	}
	if v.Sync == "" {
		v.Sync, v.Health = fleet.SyncPending, fleet.HealthUnknown
		v.Message = fmt.Sprintf("environment %q selects no agent yet", d.Environment)
	}
	problem := d.SourceError
	if repoError != "" {
		problem = fmt.Sprintf("repository %s: %s", d.Source.RepoURL, repoError)
	}
	if problem != "" {
		v.Sync, v.Message = fleet.SyncFailed, problem
		if d.Rendered.Commit != "" {
			v.Message += fmt.Sprintf(" (what commit %.12s holds goes on running)", d.Rendered.Commit)
		}
	}
	if !d.DeletedAt.IsZero() {
		v.Message = "being deleted: waiting for its agents" + suffixed(v.Message)
	}
	return v
}

func prefixed(agent, message string) string {
	if message == "" {
		return ""
	}
	return agent + ": " + message
}

func suffixed(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}
