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
	// OneGitLabProject is the input of requests about one project.
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
		After string `query:"after" maxLength:"255" doc:"'next' of the previous page."`
		Limit int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"Maximum number of items."`
	}
	answered[T any] struct{ Body T }
)

func (in *OneGitLabProject) at() (string, string) { return in.Tenant, in.Project }

func (a *api) registerAgentConfigs() {
	one := agentConfigs.path + "/{name}/config"
	register(a, operation("get-agent-config", http.MethodGet, one,
		"Read the configuration of an agent in Git: location, declared deployments, and errors", http.StatusOK), agentConfigs, a.getAgentConfig)
	register(a, operation("set-agent-config", http.MethodPut, one,
		"Set the repository of the configuration of an agent; deployments of the previous one stay until the new one is read", http.StatusOK),
		agentConfigs, a.setAgentConfig)
	register(a, operation("unset-agent-config", http.MethodDelete, one,
		"End the configuration of an agent in Git: its deployments are released, and every object stays", http.StatusNoContent),
		agentConfigs, a.unsetAgentConfig)

	project := gitLabProjects.path + "/{project}"
	register(a, operation("list-gitlab-projects", http.MethodGet, gitLabProjects.path,
		"List the URLs of GitLab projects", http.StatusOK), gitLabProjects, a.listGitLabProjects)
	register(a, operation("set-gitlab-project", http.MethodPut, project,
		"Set the URL of a GitLab project", http.StatusOK), gitLabProjects, a.setGitLabProject)
	register(a, operation("unset-gitlab-project", http.MethodDelete, project,
		"Delete the URL of a GitLab project; running deployments are not affected", http.StatusNoContent), gitLabProjects, a.unsetGitLabProject)
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
	state, reason := cmp.Or(string(v.State), "Pending"), v.State.Reason()
	if v.RepositoryError != "" {
		state, reason = "Unreadable", fleet.ReasonRepositoryUnreadable
	}
	out := apiv1.AgentConfig{
		Agent: v.AgentName, RepoURL: v.RepoURL, State: state, Reason: string(reason), Message: v.RepositoryError, File: v.File, Commit: v.Commit, LiveCommit: v.Live,
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
	// A path contains slashes, so it is one escaped key.
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
