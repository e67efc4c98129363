package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

var agentConfigTests = map[string]func(*testing.T, store.Store){
	"are kept with what is wrong with them":   agentConfigsAreKept,
	"begin again with another repository":     agentConfigsMove,
	"hold their repositories":                 agentConfigsHold,
	"fall with their agents":                  agentConfigsFall,
	"declare deployments, which outlive them": declarationsAreKept,
	"find projects of GitLab's":               projectsAreKept,
}

// withConfig gives the agent of a world a configuration in Git, and its deployment a pending spec.
func withConfig(t *testing.T, s store.Store, w *world) *world {
	t.Helper()
	w.config = fleet.AgentConfig{
		TenantID: w.tenant.ID, AgentID: w.agent.ID, AgentName: w.agent.Name, RepositoryID: w.repo.ID, RepoURL: w.repo.URL, SpecRevision: 1, CreatedAt: at(10),
		State: fleet.ConfigInvalid, File: "config.yaml", Commit: "c2", Live: "c1", ReadAt: at(11), More: 4, Declares: 1,
		Errors:  []fleet.ConfigFinding{{Field: "b", Line: 2, Message: "is wrong"}, {Field: "a", Message: "too"}},
		Notices: []fleet.ConfigFinding{{Field: "c", Line: 9, Message: "is not used"}},
	}
	w.declares = fleet.Declaration{
		TenantID: w.tenant.ID, DeploymentID: w.deployment.ID, AgentName: w.agent.Name, Name: "shop", RepoURL: w.repo.URL, File: "config.yaml",
		Prune: true, ReleasedAt: at(12),
	}
	w.owned = fleet.Owned{
		TenantID: w.tenant.ID, Kind: fleet.OwnedDeployment, ID: string(w.deployment.ID), MissingSince: at(13),
		Owner: fleet.Owner{Kind: "GitOpsDeployment", Namespace: "team-" + w.tenant.Name, Name: "shop", UID: "uid-" + w.tenant.Name, Generation: 3, Created: 1_700_000_000},
	}
	w.project = fleet.GitLabProject{TenantID: w.tenant.ID, Project: "42", URL: "https://git.example/app.git"}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(
			tx.AgentConfigs().Put(ctx, w.config), tx.AgentConfigs().SetRead(ctx, w.config),
			tx.Declarations().Put(ctx, w.declares), tx.Owners().Put(ctx, w.owned), tx.Owners().Put(ctx, ownedTenant(w)), tx.GitLabProjects().Put(ctx, w.project),
			tx.PendingSpecs().Put(ctx, newPending(w, w.deployment)),
		)
	})
	w.deployment.SpecRevision, w.deployment.PendingSpecRevision = 2, 2
	return w
}

func getConfig(t *testing.T, s store.Store, c fleet.AgentConfig) fleet.AgentConfig {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) (fleet.AgentConfig, error) {
		return tx.AgentConfigs().Get(ctx, c.TenantID, c.AgentID)
	})
}

func agentConfigsAreKept(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	same(t, "by agent", getConfig(t, s, w.config), w.config)
	for name, list := range map[string]func(ctx context.Context, tx store.Tx) ([]fleet.AgentConfig, error){
		"of agents": func(ctx context.Context, tx store.Tx) ([]fleet.AgentConfig, error) {
			return tx.AgentConfigs().OfAgents(ctx, w.tenant.ID, []fleet.AgentID{w.agent.ID, "other"})
		},
		"of a repository": func(ctx context.Context, tx store.Tx) ([]fleet.AgentConfig, error) {
			return tx.AgentConfigs().OfRepository(ctx, w.tenant.ID, w.repo.ID)
		},
		"all": func(ctx context.Context, tx store.Tx) ([]fleet.AgentConfig, error) {
			return tx.AgentConfigs().All(ctx, w.tenant.ID)
		},
	} {
		same(t, name, read(t, s, list), []fleet.AgentConfig{w.config})
	}
	before := last(t, s)
	read := w.config
	read.State, read.Errors, read.More, read.ReadAt = fleet.ConfigApplied, nil, 0, at(20)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.AgentConfigs().SetRead(ctx, read) })
	same(t, "after it was mended", getConfig(t, s, w.config), read)
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeAgent, ID: string(w.agent.ID), AgentID: w.agent.ID}})
}

func agentConfigsMove(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	other := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: w.tenant.ID, URL: "https://git.example/other.git", SpecRevision: 1, CreatedAt: at(5)}
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Repositories().Create(ctx, other) })
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.AgentConfigs().Put(ctx, fleet.AgentConfig{TenantID: w.tenant.ID, AgentID: w.agent.ID, RepositoryID: other.ID, CreatedAt: at(30)})
	})
	same(t, "configuration", getConfig(t, s, w.config), fleet.AgentConfig{
		TenantID: w.tenant.ID, AgentID: w.agent.ID, AgentName: w.agent.Name, RepositoryID: other.ID, RepoURL: other.URL, SpecRevision: 2, CreatedAt: at(10),
	})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeAgentConfig, ID: string(w.agent.ID), AgentID: w.agent.ID},
		{TenantID: w.tenant.ID, Kind: store.ChangeAgent, ID: string(w.agent.ID), AgentID: w.agent.ID},
	})
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.AgentConfigs().Put(ctx, fleet.AgentConfig{TenantID: w.tenant.ID, AgentID: w.agent.ID, RepositoryID: "nowhere", CreatedAt: at(30)})
	})
}

func agentConfigsHold(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	other := fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: w.tenant.ID, URL: "https://git.example/other.git", SpecRevision: 1, CreatedAt: at(5)}
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Repositories().Create(ctx, other); err != nil {
			return err
		}
		return tx.AgentConfigs().Put(ctx, fleet.AgentConfig{TenantID: w.tenant.ID, AgentID: w.agent.ID, RepositoryID: other.ID, CreatedAt: at(30)})
	})
	inUse := read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Repository, error) {
		return tx.Repositories().ListAllTenants(ctx)
	})
	same(t, "repositories in use", inUse, []fleet.Repository{w.repo, other})
	refuse(t, s, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.Repositories().Delete(ctx, w.tenant.ID, other.ID)
	})
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.AgentConfigs().Delete(ctx, w.tenant.ID, w.agent.ID); err != nil {
			return err
		}
		return tx.Repositories().Delete(ctx, w.tenant.ID, other.ID)
	})
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.AgentConfig, error) {
		return tx.AgentConfigs().Get(ctx, w.tenant.ID, w.agent.ID)
	})
}

func agentConfigsFall(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Agents().Delete(ctx, w.tenant.ID, w.agent.ID) })
	missing(t, s, func(ctx context.Context, tx store.Tx) (fleet.AgentConfig, error) {
		return tx.AgentConfigs().Get(ctx, w.tenant.ID, w.agent.ID)
	})
	same(t, "declarations", declaredBy(t, s, w), []fleet.Declaration{w.declares})
}

func declaredBy(t *testing.T, s store.Store, w *world) []fleet.Declaration {
	t.Helper()
	return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Declaration, error) {
		return tx.Declarations().OfAgent(ctx, w.tenant.ID, w.agent.Name)
	})
}

func declarationsAreKept(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	same(t, "of deployments", read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.Declaration, error) {
		return tx.Declarations().Of(ctx, w.tenant.ID, []fleet.DeploymentID{w.deployment.ID})
	}), []fleet.Declaration{w.declares})
	again := w.declares
	again.ReleasedAt, again.Prune, again.File = time.Time{}, false, "other.yaml"
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error { return tx.Declarations().Put(ctx, again) })
	same(t, "after it was declared again", declaredBy(t, s, w), []fleet.Declaration{again})
	same(t, "changes", since(t, s, before), []store.Change{
		{TenantID: w.tenant.ID, Kind: store.ChangeDeployment, ID: string(w.deployment.ID), DeploymentID: w.deployment.ID}})
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.Declarations().Remove(ctx, w.tenant.ID, w.deployment.ID); err != nil {
			return err
		}
		return tx.Declarations().Remove(ctx, w.tenant.ID, w.deployment.ID) // once more is no mistake
	})
	same(t, "after it was removed", declaredBy(t, s, w), nil)
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.Declarations().Put(ctx, fleet.Declaration{TenantID: w.tenant.ID, DeploymentID: "none", AgentName: "a", Name: "b"})
	})
}

func projectsAreKept(t *testing.T, s store.Store) {
	w := withConfig(t, s, newWorld(t, s, "a"))
	list := func() []fleet.GitLabProject {
		return read(t, s, func(ctx context.Context, tx store.Tx) ([]fleet.GitLabProject, error) {
			return tx.GitLabProjects().List(ctx, w.tenant.ID, store.Page{})
		})
	}
	moved := w.project
	moved.URL = "https://git.example/moved.git"
	before := last(t, s)
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		if err := tx.GitLabProjects().Put(ctx, moved); err != nil {
			return err
		}
		return tx.GitLabProjects().Put(ctx, moved) // the same once more records nothing
	})
	same(t, "projects", list(), []fleet.GitLabProject{moved})
	same(t, "changes", since(t, s, before), []store.Change{{TenantID: w.tenant.ID, Kind: store.ChangeAgentConfig}})
	update(t, s, func(ctx context.Context, tx store.Tx) error {
		return tx.GitLabProjects().Delete(ctx, w.tenant.ID, "42")
	})
	same(t, "projects", list(), nil)
	refuse(t, s, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.GitLabProjects().Delete(ctx, w.tenant.ID, "42")
	})
}
