package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// viewer makes views of deployments in one transaction.
type viewer struct {
	tx           store.Tx
	holds        *holds
	presence     map[fleet.AgentID][]fleet.Connection
	repositories map[fleet.RepositoryID]string // why each cannot be read
}

// outlook is what the targets of a deployment would be if nothing held them.
type outlook struct {
	held     string            // why nothing new is sent; "" when it would be
	newest   map[string]string // newest digest by variant
	problems map[string]string // why the newest cannot be used, by variant
}

func (v *viewer) view(ctx context.Context, d fleet.Deployment, targets []fleet.Target) (DeploymentView, error) {
	problem, err := v.repository(ctx, d)
	if err != nil {
		return DeploymentView{}, err
	}
	out, err := v.outlook(ctx, d)
	if err != nil {
		return DeploymentView{}, err
	}
	views := make([]TargetView, len(targets))
	for i, t := range targets {
		views[i] = viewTarget(t, v.presence[t.AgentID], out)
	}
	return sumUp(d, views, problem, out.held), nil
}

func (v *viewer) repository(ctx context.Context, d fleet.Deployment) (string, error) {
	if problem, ok := v.repositories[d.RepositoryID]; ok {
		return problem, nil
	}
	repo, err := v.tx.Repositories().Get(ctx, d.TenantID, d.RepositoryID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	v.repositories[d.RepositoryID] = repo.Error
	return repo.Error, nil
}

func (v *viewer) outlook(ctx context.Context, d fleet.Deployment) (outlook, error) {
	out := outlook{newest: map[string]string{"": d.Rendered.Digest}, problems: map[string]string{}}
	if !d.DeletedAt.IsZero() {
		return out, nil
	}
	if d.Source.Templated() {
		variants, err := v.tx.Deployments().Variants(ctx, d.TenantID, d.ID)
		if err != nil {
			return out, err
		}
		for _, variant := range variants {
			out.newest[variant.Name], out.problems[variant.Name] = variant.Rendered.Digest, variant.Error
		}
	}
	var err error
	if out.held, err = v.holds.of(ctx, d); err != nil || out.held != "" {
		return out, err
	}
	switch {
	case d.Policy.Manual:
		out.held = "it is manual and waits for a sync run"
	case d.Pin.Active():
		out.held = fmt.Sprintf("it is pinned to revision %d (commit %.12s) by %s since %s", d.Pin.Revision, d.Pin.Commit, d.Pin.By, d.Pin.At.UTC().Format(time.RFC3339))
	}
	return out, nil
}

// viewTarget is a target as users see it. What is ahead of everything else is what they can do
// something about.
func viewTarget(t fleet.Target, connections []fleet.Connection, out outlook) TargetView {
	lost, ever := lostSince(connections)
	v := TargetView{Target: t, View: t.ViewAt(lost)}
	switch {
	case !t.DetachedAt.IsZero():
		v.View.Sync, v.View.Message = fleet.SyncDetached, "detached since "+t.DetachedAt.UTC().Format(time.RFC3339)+suffixed(t.DetachedWhy)
	case t.Desired.Tombstone:
	case refused(t):
		v.View.Sync, v.View.Message = fleet.SyncFailed, strings.TrimPrefix(t.Variant, "!")
	case out.problems[t.Variant] != "":
		v.View.Sync, v.View.Message = fleet.SyncFailed, out.problems[t.Variant]
	case out.held != "" && behind(t, out) && calm(v.View.Sync):
		v.View.Sync, v.View.Message = fleet.SyncOutOfSync, "a newer revision is there: "+out.held
	}
	if !ever && t.AgentID != "" && v.View.Message == "" {
		v.View.Message = fmt.Sprintf("agent %q has never connected", t.AgentName)
	}
	return v
}

// behind reports whether something newer than what a target has was rendered for it.
func behind(t fleet.Target, out outlook) bool {
	digest := out.newest[t.Variant]
	return digest != "" && digest != t.Desired.Digest
}

// calm reports whether a sync state has nothing more urgent to say.
func calm(s fleet.SyncState) bool { return s == fleet.SyncSynced || s == fleet.SyncPending }

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
	fleet.SyncDeleted: 0, fleet.SyncDetached: 1, fleet.SyncSynced: 2, fleet.SyncPending: 3, fleet.SyncOutOfSync: 4,
	fleet.SyncSyncing: 5, fleet.SyncRewound: 6, fleet.SyncFailed: 7,
}

// sumUp is a deployment as the worst of its targets, with the first thing that a user should know.
func sumUp(d fleet.Deployment, targets []TargetView, repoError, held string) DeploymentView {
	v := DeploymentView{Deployment: d, Targets: targets, Held: held}
	for _, t := range targets {
		if v.Sync == "" || syncRank[t.View.Sync] > syncRank[v.Sync] {
			v.Sync = t.View.Sync
			v.Message = prefixed(t.AgentName, t.View.Message)
		}
		if t.View.Sync != fleet.SyncDetached { // nobody manages what was let go
			v.Health = fleet.Worst(v.Health, t.View.Health)
		}
	}
	if v.Sync == "" {
		v.Sync, v.Health = fleet.SyncPending, fleet.HealthUnknown
		v.Message = fmt.Sprintf("environment %q selects no agent yet", d.Environment)
	}
	if v.Health == "" {
		v.Health = fleet.HealthUnknown
	}
	if held != "" && v.Message == "" && (!d.Policy.Manual || v.Sync != fleet.SyncSynced) {
		v.Message = held
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
