package apiv1

import "time"

// AgentConfig is the location of the configuration of an agent in Git, and the result of the last read.
type AgentConfig struct {
	Agent   string `json:"agent"`
	RepoURL string `json:"repoURL" doc:"The repository that contains the file, on its default branch."`
	State   string `json:"state" enum:"Pending,Applied,Absent,Invalid,Refused,Unreadable" doc:"Applied: the last read is in force. Absent: there is no file, and nothing is declared. Invalid: the file has errors. Refused: it cannot be applied now. Unreadable: the repository cannot be read. In the last three states, the configuration that was applied before stays in force."`
	Reason  string `json:"reason" doc:"One word; see docs/reasons.md."`
	Message string `json:"message,omitempty" doc:"Why the repository cannot be read."`
	File    string `json:"file,omitempty" doc:"Path of the file that was read; absent if there is none."`
	Commit  string `json:"commit,omitempty" doc:"The commit that was read when any of this last changed."`
	// LiveCommit is the commit of the configuration in force.
	LiveCommit  string             `json:"liveCommit,omitempty" doc:"The commit of the configuration in force."`
	ReadAt      time.Time          `json:"readAt,omitzero" doc:"When any of this last changed."`
	Errors      []ConfigFinding    `json:"errors,omitempty" nullable:"false" doc:"The errors in the file, up to a limit."`
	MoreErrors  int                `json:"moreErrors,omitempty" doc:"Number of errors that are not listed."`
	Notices     []ConfigFinding    `json:"notices,omitempty" nullable:"false" doc:"Parts of the file that have no effect."`
	Deployments []ConfigDeployment `json:"deployments" nullable:"false" doc:"The declared deployments, and the deployments that were declared before and are released."`
}

// ConfigFinding is a finding about one field of a file.
type ConfigFinding struct {
	Field   string `json:"field,omitempty" doc:"Full path, such as deployments[2].policy.drift; absent for the file as a whole."`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// ConfigDeployment is a deployment that a file declares or declared.
type ConfigDeployment struct {
	Name       string    `json:"name" doc:"Name in the file."`
	Deployment string    `json:"deployment" doc:"Name of the deployment: AGENT.NAME."`
	OnRemove   string    `json:"onRemove" enum:"keep,prune" doc:"What happens to its objects when the file no longer lists it."`
	ReleasedAt time.Time `json:"releasedAt,omitzero" doc:"When the file stopped declaring it. Its objects stay, unmanaged."`
}

// SetAgentConfig sets the location of the configuration of an agent.
type SetAgentConfig struct {
	RepoURL string `json:"repoURL" minLength:"1" maxLength:"2048" doc:"URL of a Git repository. The file is .kedge/agents/NAME/config.yaml, or the file in GitLab's format, on its default branch."`
}

// DeclaredBy is the file in Git that declares a deployment. The deployment can only be changed in that file.
type DeclaredBy struct {
	Agent      string    `json:"agent"`
	RepoURL    string    `json:"repoURL"`
	File       string    `json:"file"`
	ReleasedAt time.Time `json:"releasedAt,omitzero" doc:"When the file stopped declaring it. Its objects stay, and you can delete it."`
}

// GitLabProject is the URL of a project that files in GitLab's format identify by a number, or by a path on
// another host.
type GitLabProject struct {
	Project string `json:"project" doc:"The name in the files: a number, or a path such as group/app."`
	RepoURL string `json:"repoURL"`
}

// SetGitLabProject sets the URL of a GitLab project.
type SetGitLabProject struct {
	RepoURL string `json:"repoURL" minLength:"1" maxLength:"2048" doc:"URL of its Git repository."`
}
