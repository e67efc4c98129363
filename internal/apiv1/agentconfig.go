package apiv1

import "time"

// AgentConfig is where the configuration of an agent is in Git, and what became of it when it was last
// read.
type AgentConfig struct {
	Agent   string `json:"agent"`
	RepoURL string `json:"repoURL" doc:"The repository that the file is in, on its default branch."`
	State   string `json:"state" enum:"Pending,Applied,Absent,Invalid,Refused,Unreadable" doc:"Applied: what was read last holds. Absent: there is no file, and nothing is declared. Invalid: the file is wrong; Refused: it cannot be applied now; Unreadable: the repository cannot be read. In these three what was applied before still holds."`
	Message string `json:"message,omitempty" doc:"Why the repository cannot be read."`
	File    string `json:"file,omitempty" doc:"Path of the file that was read; absent when there is none."`
	Commit  string `json:"commit,omitempty" doc:"The commit that was read when any of this last changed."`
	// LiveCommit is that of the configuration that holds.
	LiveCommit  string             `json:"liveCommit,omitempty" doc:"The commit whose configuration holds."`
	ReadAt      time.Time          `json:"readAt,omitzero" doc:"When any of this last changed."`
	Errors      []ConfigFinding    `json:"errors,omitempty" nullable:"false" doc:"Everything that is wrong with the file, up to a bound."`
	MoreErrors  int                `json:"moreErrors,omitempty" doc:"How many errors there are beside."`
	Notices     []ConfigFinding    `json:"notices,omitempty" nullable:"false" doc:"What of the file has no effect."`
	Deployments []ConfigDeployment `json:"deployments" nullable:"false" doc:"What is declared, and what was and was let go."`
}

// ConfigFinding is something to say about one field of a file.
type ConfigFinding struct {
	Field   string `json:"field,omitempty" doc:"Full path, such as deployments[2].policy.drift; absent for the file as a whole."`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// ConfigDeployment is a deployment that a file declares, or did.
type ConfigDeployment struct {
	Name       string    `json:"name" doc:"In the file."`
	Deployment string    `json:"deployment" doc:"Name of the deployment: AGENT.NAME."`
	OnRemove   string    `json:"onRemove" enum:"keep,prune" doc:"What becomes of its objects when the file no longer lists it."`
	ReleasedAt time.Time `json:"releasedAt,omitzero" doc:"When the file stopped declaring it: its objects stay, and nobody manages them."`
}

// SetAgentConfig says where the configuration of an agent is.
type SetAgentConfig struct {
	RepoURL string `json:"repoURL" minLength:"1" maxLength:"2048" doc:"URL of a Git repository; the file is .kedge/agents/NAME/config.yaml, or GitLab's, on its default branch."`
}

// DeclaredBy is the file in Git that declares a deployment: it is changed there and nowhere else.
type DeclaredBy struct {
	Agent      string    `json:"agent"`
	RepoURL    string    `json:"repoURL"`
	File       string    `json:"file"`
	ReleasedAt time.Time `json:"releasedAt,omitzero" doc:"When the file stopped declaring it: its objects stay, and it can be deleted."`
}

// GitLabProject says where a project is that files of GitLab's name by a number, or by a path that is not
// on the host of the file.
type GitLabProject struct {
	Project string `json:"project" doc:"As files write it: a number, or a path such as group/app."`
	RepoURL string `json:"repoURL"`
}

// SetGitLabProject says where a project of GitLab's is.
type SetGitLabProject struct {
	RepoURL string `json:"repoURL" minLength:"1" maxLength:"2048" doc:"URL of its Git repository."`
}
