package apiv1

import "time"

// Source says where the objects of a deployment come from.
type Source struct {
	RepoURL  string   `json:"repoURL" doc:"URL of a Git repository."`
	Path     string   `json:"path,omitempty" doc:"Folder in the repository; its root when absent."`
	Revision string   `json:"revision,omitempty" doc:"Branch, tag or commit; the default branch when absent."`
	Globs    []string `json:"globs,omitempty" nullable:"false" doc:"Which files below the path; every manifest when absent."`
}

// Policy says how a deployment is applied.
type Policy struct {
	Prune      bool `json:"prune" doc:"Delete objects that have left the source."`
	Adopt      bool `json:"adopt" doc:"Take over existing objects that nobody owns."`
	AllowEmpty bool `json:"allowEmpty" doc:"Accept a source that holds no object."`
}

// NewPolicy is a Policy as it is asked for: what is absent gets its default.
type NewPolicy struct {
	Prune      *bool `json:"prune,omitempty" doc:"Delete objects that have left the source; true when absent."`
	Adopt      bool  `json:"adopt,omitempty" doc:"Take over existing objects that nobody owns."`
	AllowEmpty bool  `json:"allowEmpty,omitempty" doc:"Accept a source that holds no object."`
}

// CreateDeployment asks for a new deployment.
type CreateDeployment struct {
	Name        string    `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Source      Source    `json:"source"`
	Environment string    `json:"environment,omitempty" doc:"Where to deploy to; the environment 'default' when absent."`
	Namespace   string    `json:"namespace,omitempty" doc:"For objects that name none; 'default' when absent."`
	Policy      NewPolicy `json:"policy,omitzero"`
}

// Deployment is a source, a destination and a policy, and how it is doing on its targets.
type Deployment struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Source      Source    `json:"source"`
	Environment string    `json:"environment"`
	Namespace   string    `json:"namespace"`
	Policy      Policy    `json:"policy"`
	Commit      string    `json:"commit,omitempty" doc:"The newest commit that was rendered whole."`
	Digest      string    `json:"digest,omitempty" doc:"Names the objects of that commit."`
	RenderedAt  time.Time `json:"renderedAt,omitzero"`
	SourceError string    `json:"sourceError,omitempty" doc:"Why the newest revision could not be used; what runs is undisturbed."`
	CreatedAt   time.Time `json:"createdAt,omitzero"`
	DeletedAt   time.Time `json:"deletedAt,omitzero" doc:"Set while its objects are being deleted."`
	Sync        string    `json:"sync" doc:"Pending, Syncing, Synced, Failed, Deleted or Rewound: the worst of its targets."`
	Health      string    `json:"health" doc:"In the words of kstatus, or Stale: the worst of its targets."`
	Message     string    `json:"message,omitempty"`
	Targets     []Target  `json:"targets" nullable:"false"`
}

// Target is one deployment on one agent.
type Target struct {
	ID                 string    `json:"id"`
	Agent              string    `json:"agent"`
	Sync               string    `json:"sync"`
	Health             string    `json:"health"`
	Message            string    `json:"message,omitempty"`
	AsOf               time.Time `json:"asOf,omitzero" doc:"When the agent last reported; absent before the first report."`
	StaleSince         time.Time `json:"staleSince,omitzero" doc:"Set while the agent is not connected: nothing newer is known."`
	Generation         int64     `json:"generation" doc:"Of what is desired."`
	ObservedGeneration int64     `json:"observedGeneration" doc:"Of what sync and health speak of."`
	Commit             string    `json:"commit,omitempty" doc:"The commit that is desired."`
	Objects            []Object  `json:"objects,omitempty" nullable:"false" doc:"Only when one deployment is read."`
}

// Object is what is known of one Kubernetes object of a target.
type Object struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Sync      string `json:"sync"`
	Health    string `json:"health"`
	Message   string `json:"message,omitempty"`
}

// Repository is a Git URL that a tenant deploys from.
type Repository struct {
	ID         string    `json:"id"`
	URL        string    `json:"url"`
	CheckedAt  time.Time `json:"checkedAt,omitzero" doc:"Since when error is what it is; absent before the first look."`
	Error      string    `json:"error,omitempty" doc:"Why it cannot be read; absent when it can."`
	WebhookURL string    `json:"webhookURL" doc:"Where its Git host sends push events; what it signs them with is asked for separately."`
}

// Webhook is what a Git host has to be told to announce pushes.
type Webhook struct {
	URL    string `json:"url"`
	Secret string `json:"secret" doc:"Signs push events: X-Hub-Signature-256, or X-Kedge-Signature."`
}

// Event is something that happened.
type Event struct {
	Seq        int64     `json:"seq"`
	At         time.Time `json:"at,omitzero"`
	Type       string    `json:"type" enum:"Normal,Warning"`
	Reason     string    `json:"reason"`
	Agent      string    `json:"agent,omitempty"`
	Deployment string    `json:"deployment,omitempty"`
	Object     string    `json:"object,omitempty"`
	Message    string    `json:"message"`
}

// Change is one record of the stream: something has changed and may be read again.
type Change struct {
	Seq          int64     `json:"seq"`
	Kind         string    `json:"kind" doc:"agent, connection, token, environment, repository, deployment, desired, status or event."`
	ID           string    `json:"id,omitempty"`
	AgentID      string    `json:"agentId,omitempty"`
	DeploymentID string    `json:"deploymentId,omitempty"`
	At           time.Time `json:"at,omitzero"`
}

// Problem is an error answer (RFC 9457).
type Problem struct {
	Title  string          `json:"title,omitempty"`
	Status int             `json:"status,omitempty"`
	Detail string          `json:"detail,omitempty"`
	Errors []ProblemDetail `json:"errors,omitempty"`
}

// ProblemDetail is one thing that is wrong with a request.
type ProblemDetail struct {
	Message  string `json:"message,omitempty"`
	Location string `json:"location,omitempty"`
}
