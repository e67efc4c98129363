package restapi_test

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func anAgentConfig() control.AgentConfigView {
	return control.AgentConfigView{
		AgentConfig: fleet.AgentConfig{
			AgentName: "prod", RepoURL: "https://git.example/config.git", State: fleet.ConfigInvalid, File: ".kedge/agents/prod/config.yaml",
			Commit: "c2", Live: "c1", ReadAt: later, More: 3,
			Errors:  []fleet.ConfigFinding{{Field: "deployments[0].policy.drift", Line: 7, Message: `"fix" is none of correct, report, ignore`}},
			Notices: []fleet.ConfigFinding{{Field: "ci_access", Line: 20, Message: "is not used"}},
		},
		Declarations: []fleet.Declaration{{AgentName: "prod", Name: "web", Prune: true}, {AgentName: "prod", Name: "old", ReleasedAt: later}},
	}
}

func (s *standin) AgentConfig(context.Context, auth.Principal, string, string) (control.AgentConfigView, error) {
	s.called("AgentConfig")
	return anAgentConfig(), nil
}

func (s *standin) SetAgentConfig(context.Context, auth.Principal, string, string, string) (control.AgentConfigView, error) {
	s.called("SetAgentConfig")
	return anAgentConfig(), nil
}

func (s *standin) UnsetAgentConfig(context.Context, auth.Principal, string, string) error {
	s.called("UnsetAgentConfig")
	return nil
}

func (s *standin) GitLabProjects(context.Context, auth.Principal, string, store.Page) ([]fleet.GitLabProject, error) {
	s.called("GitLabProjects")
	return []fleet.GitLabProject{{Project: "42", URL: "https://git.example/app.git"}}, nil
}

func (s *standin) SetGitLabProject(_ context.Context, _ auth.Principal, _, project, url string) (fleet.GitLabProject, error) {
	s.called("SetGitLabProject")
	return fleet.GitLabProject{Project: project, URL: url}, nil
}

func (s *standin) UnsetGitLabProject(context.Context, auth.Principal, string, string) error {
	s.called("UnsetGitLabProject")
	return nil
}
