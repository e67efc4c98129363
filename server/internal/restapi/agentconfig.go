package restapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type agentConfigControl interface {
	AgentConfig(ctx context.Context, p auth.Principal, tenant, agent string) (control.AgentConfigView, error)
	SetAgentConfig(ctx context.Context, p auth.Principal, tenant, agent, repoURL string) (control.AgentConfigView, error)
	UnsetAgentConfig(ctx context.Context, p auth.Principal, tenant, agent string) error
}

type gitLabProjectControl interface {
	GitLabProjects(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.GitLabProject, error)
	SetGitLabProject(ctx context.Context, p auth.Principal, tenant, project, repoURL string) (fleet.GitLabProject, error)
	UnsetGitLabProject(ctx context.Context, p auth.Principal, tenant, project string) error
}

var (
	agentConfigs   = resource{"configuration in Git of agent", tenant + "/agents"}
	gitLabProjects = resource{"GitLab project", tenant + "/gitlab-projects"}
)

type (
	setAgentConfigInput struct {
		Named
		Body apiv1.SetAgentConfig
	}
	// OneGitLabProject is what every request about one project takes.
	OneGitLabProject struct {
		InTenant
		Project string `path:"project" maxLength:"255" doc:"A number, or a path with its slashes escaped."`
	}
	setGitLabProjectInput struct {
		OneGitLabProject
		Body apiv1.SetGitLabProject
	}
	listGitLabProjectsInput struct {
		InTenant
		After string `query:"after" maxLength:"255" doc:"Read on after this: 'next' of the page before."`
		Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"At most this many items."`
	}
	answered[T any] struct{ Body T }
)

func (in *OneGitLabProject) at() (string, string) { return in.Tenant, in.Project }

func (a *api) registerAgentConfigs() {
	one := agentConfigs.path + "/{name}/config"
	register(a, operation("get-agent-config", http.MethodGet, one,
		"Read where the configuration of an agent is in Git, what it declares, and what is wrong with it", http.StatusOK), agentConfigs, a.getAgentConfig)
	register(a, operation("set-agent-config", http.MethodPut, one,
		"Say in which repository the configuration of an agent is; what another one declared stays until this one was read", http.StatusOK),
		agentConfigs, a.setAgentConfig)
	register(a, operation("unset-agent-config", http.MethodDelete, one,
		"End the configuration of an agent in Git: what it declared is let go, and every object stays", http.StatusNoContent),
		agentConfigs, a.unsetAgentConfig)

	project := gitLabProjects.path + "/{project}"
	register(a, operation("list-gitlab-projects", http.MethodGet, gitLabProjects.path,
		"List where projects are that files of GitLab's name", http.StatusOK), gitLabProjects, a.listGitLabProjects)
	register(a, operation("set-gitlab-project", http.MethodPut, project,
		"Say where a project is that files of GitLab's name by its number", http.StatusOK), gitLabProjects, a.setGitLabProject)
	register(a, operation("unset-gitlab-project", http.MethodDelete, project,
		"Forget where a project is; what runs of it goes on", http.StatusNoContent), gitLabProjects, a.unsetGitLabProject)
}

func (a *api) getAgentConfig(ctx context.Context, p auth.Principal, in *Named) (*answered[apiv1.AgentConfig], error) {
	return agentConfigAnswer(a.control.AgentConfig(ctx, p, in.Tenant, in.Name))
}

func (a *api) setAgentConfig(ctx context.Context, p auth.Principal, in *setAgentConfigInput) (*answered[apiv1.AgentConfig], error) {
	return agentConfigAnswer(a.control.SetAgentConfig(ctx, p, in.Tenant, in.Name, in.Body.RepoURL))
}

func (a *api) unsetAgentConfig(ctx context.Context, p auth.Principal, in *Named) (*struct{}, error) {
	return nil, a.control.UnsetAgentConfig(ctx, p, in.Tenant, in.Name)
}

func agentConfigAnswer(v control.AgentConfigView, err error) (*answered[apiv1.AgentConfig], error) {
	if err != nil {
		return nil, err
	}
	state := cmp.Or(string(v.State), "Pending")
	if v.RepositoryError != "" {
		state = "Unreadable"
	}
	out := apiv1.AgentConfig{
		Agent: v.AgentName, RepoURL: v.RepoURL, State: state, Message: v.RepositoryError, File: v.File, Commit: v.Commit, LiveCommit: v.Live,
		ReadAt: utc(v.ReadAt), Errors: findingsJSON(v.Errors), MoreErrors: v.More, Notices: findingsJSON(v.Notices),
		Deployments: []apiv1.ConfigDeployment{},
	}
	for _, d := range v.Declarations {
		onRemove := "keep"
		if d.Prune {
			onRemove = "prune"
		}
		out.Deployments = append(out.Deployments, apiv1.ConfigDeployment{
			Name: d.Name, Deployment: d.AgentName + "." + d.Name, OnRemove: onRemove, ReleasedAt: utc(d.ReleasedAt),
		})
	}
	return &answered[apiv1.AgentConfig]{out}, nil
}

func findingsJSON(findings []fleet.ConfigFinding) []apiv1.ConfigFinding {
	var out []apiv1.ConfigFinding
	for _, f := range findings {
		out = append(out, apiv1.ConfigFinding(f))
	}
	return out
}

func declaredJSON(d *fleet.Declaration) *apiv1.DeclaredBy {
	if d == nil {
		return nil
	}
	return &apiv1.DeclaredBy{Agent: d.AgentName, RepoURL: d.RepoURL, File: d.File, ReleasedAt: utc(d.ReleasedAt)}
}

func (a *api) listGitLabProjects(ctx context.Context, p auth.Principal, in *listGitLabProjectsInput) (*listOutput[apiv1.GitLabProject], error) {
	// A path has slashes in it, so it is a key whole.
	list, err := a.control.GitLabProjects(ctx, p, in.Tenant, store.Page{After: in.After, Limit: in.Limit + 1})
	if err != nil {
		return nil, err
	}
	return paged(list, in.Limit, gitLabProjectJSON, func(v fleet.GitLabProject) string { return v.Project }), nil
}

func (a *api) setGitLabProject(ctx context.Context, p auth.Principal, in *setGitLabProjectInput) (*answered[apiv1.GitLabProject], error) {
	v, err := a.control.SetGitLabProject(ctx, p, in.Tenant, in.Project, in.Body.RepoURL)
	if err != nil {
		return nil, err
	}
	return &answered[apiv1.GitLabProject]{gitLabProjectJSON(v)}, nil
}

func (a *api) unsetGitLabProject(ctx context.Context, p auth.Principal, in *OneGitLabProject) (*struct{}, error) {
	return nil, a.control.UnsetGitLabProject(ctx, p, in.Tenant, in.Project)
}

func gitLabProjectJSON(p fleet.GitLabProject) apiv1.GitLabProject {
	return apiv1.GitLabProject{Project: p.Project, RepoURL: p.URL}
}
