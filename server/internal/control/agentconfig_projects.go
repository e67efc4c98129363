package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/agentconfig"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// maxProjects limits the projects of a tenant: they are read with every file.
const maxProjects = 10_000

// GitLabProjects lists the URLs of the GitLab projects of a tenant.
func (s *Service) GitLabProjects(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.GitLabProject, error) {
	var out []fleet.GitLabProject
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.GitLabProjects().List(ctx, t.ID, page)
		return err
	})
	return out, err
}

// SetGitLabProject sets the URL of a project. Files that name it are read again.
func (s *Service) SetGitLabProject(ctx context.Context, p auth.Principal, tenant, project, repoURL string) (fleet.GitLabProject, error) {
	if problem := agentconfig.CheckProject(project); problem != "" {
		return fleet.GitLabProject{}, fleet.Invalid("path.project", "%q %s", project, problem)
	}
	url, err := s.git.CheckURL(repoURL)
	if err != nil {
		return fleet.GitLabProject{}, fleet.Invalid("repoURL", "%v", err)
	}
	out := fleet.GitLabProject{Project: project, URL: url}
	err = s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out.TenantID = t.ID
		known, err := tx.GitLabProjects().List(ctx, t.ID, store.Whole())
		if err != nil {
			return err
		}
		if len(known) >= maxProjects {
			return fleet.Conflict("tenant %q already has %d GitLab projects: remove some", t.Name, maxProjects)
		}
		if err := tx.GitLabProjects().Put(ctx, out); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, projectEvent("gitlab-project.set", out, "is at "+url))
	})
	return out, err
}

// UnsetGitLabProject deletes the URL of a project. Running deployments are not affected: a file that names it
// is refused from then on, and its previous state stays in force.
func (s *Service) UnsetGitLabProject(ctx context.Context, p auth.Principal, tenant, project string) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if err := tx.GitLabProjects().Delete(ctx, t.ID, project); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, projectEvent("gitlab-project.unset", fleet.GitLabProject{TenantID: t.ID, Project: project}, ""))
	})
}

func projectEvent(action string, p fleet.GitLabProject, detail string) fleet.AuditEvent {
	return fleet.AuditEvent{TenantID: p.TenantID, Action: action, Kind: "gitlab-project", Name: p.Project, Detail: detail}
}
