package apiv1

import "time"

// List is one page of a listing.
type List[T any] struct {
	Items []T `json:"items" nullable:"false"`
	// Next is what to pass as "after" to read on; empty on the last page.
	Next string `json:"next" doc:"Pass it as 'after' to read on; empty on the last page."`
	// Previous is what to pass as "before", in a listing that goes both ways.
	Previous string `json:"previous,omitempty" doc:"Of events: pass it as 'before' to read what was before; absent when that was all."`
}

// Whoami says how the server knows the caller.
type Whoami struct {
	Name          string       `json:"name" doc:"Name of the token, or of the person who logged in."`
	Role          string       `json:"role" doc:"fleet-admin, or the highest role in any tenant; empty when there is none."`
	Session       bool         `json:"session" doc:"A person who logged in, not a token of its own."`
	Tenants       []Membership `json:"tenants" nullable:"false" doc:"What the caller is where; empty for a fleet admin, who may do everything."`
	ServerVersion string       `json:"serverVersion"`
}

// Membership is a role in a tenant.
type Membership struct {
	Tenant string `json:"tenant" doc:"Name of the tenant."`
	Role   string `json:"role"`
}

// Agent is an identity that connects from a cluster, and how it is doing.
type Agent struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Scope       string            `json:"scope" enum:"cluster,namespaced"`
	Namespaces  []string          `json:"namespaces,omitempty" nullable:"false" doc:"Where it may work, when its scope is namespaced."`
	Connected   bool              `json:"connected"`
	LastSeenAt  time.Time         `json:"lastSeenAt,omitzero" doc:"Absent when it never connected."`
	Spec        int64             `json:"spec" doc:"Rises with every edit; the number in the ETag."`
	CreatedAt   time.Time         `json:"createdAt,omitzero"`
	Targets     int               `json:"targets" doc:"How many deployments it carries."`
	Warnings    []string          `json:"warnings,omitempty" nullable:"false"`
	Connections []Connection      `json:"connections,omitempty" nullable:"false" doc:"One per replica."`
}

// Connection is one replica of an agent, as it last introduced itself.
type Connection struct {
	Replica     string    `json:"replica"`
	Role        string    `json:"role" enum:"leader,standby" doc:"Which replica speaks for the agent: an agent without a leader is not connected."`
	Version     string    `json:"version"`
	KubeVersion string    `json:"kubeVersion,omitempty"`
	ClusterUID  string    `json:"clusterUID,omitempty" doc:"UID of the namespace kube-system, where the agent may read it."`
	RemoteAddr  string    `json:"remoteAddr,omitempty"`
	ConnectedAt time.Time `json:"connectedAt,omitzero"`
	LastSeenAt  time.Time `json:"lastSeenAt,omitzero"`
	Connected   bool      `json:"connected"`
}

// EnrollAgent asks for a new agent.
type EnrollAgent struct {
	Name              string            `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Labels            map[string]string `json:"labels,omitempty"`
	Namespaces        []string          `json:"namespaces,omitempty" nullable:"false" doc:"Limits the agent to these; none means the whole cluster."`
	Image             string            `json:"image,omitempty" doc:"Image of the agent; needed unless the server has a default (--agent-image) or withoutDeployment is set."`
	Replicas          int               `json:"replicas,omitempty" minimum:"0" maximum:"9" doc:"How many pods; one leads and the others wait to take over. 1 when absent."`
	Token             string            `json:"token,omitempty" plain:"-" minLength:"1" maxLength:"512" doc:"A token of your own choice, to be put into the agent's Secret; weak ones are refused. The server makes one when absent."`
	ConfigRepoURL     string            `json:"configRepoURL,omitempty" maxLength:"2048" doc:"Git repository that the configuration of the agent is in; none when absent."`
	ServerAddress     string            `json:"serverAddress,omitempty" doc:"How the agent reaches the server, such as grpcs://host:port; the server knows a default."`
	WithoutDeployment bool              `json:"withoutDeployment,omitempty" doc:"Leave the Deployment out of the manifest: the agent runs outside of its cluster."`
}

// Enrollment is a new agent with its token and what to apply to its cluster. Token and manifest
// are shown this once.
type Enrollment struct {
	Agent    Agent  `json:"agent"`
	Token    string `json:"token"`
	Manifest string `json:"manifest" doc:"YAML for kubectl apply -f -; holds the token."`
}

// UpdateAgent changes an agent; what is absent stays as it is.
type UpdateAgent struct {
	Labels     map[string]string `json:"labels,omitzero" doc:"All labels from now on; {} removes them."`
	Namespaces []string          `json:"namespaces,omitzero" nullable:"false" doc:"All namespaces from now on; [] lets the agent work in the whole cluster."`
}

// AgentToken is a token of an agent, without the token itself.
type AgentToken struct {
	ID         string    `json:"id"`
	Valid      bool      `json:"valid"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	CreatedBy  string    `json:"createdBy,omitempty"`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero" doc:"To within minutes; absent when it never was used."`
	RevokedAt  time.Time `json:"revokedAt,omitzero"`
}

// CreateAgentToken asks for another token of an agent.
type CreateAgentToken struct {
	Token string `json:"token,omitempty" plain:"-" minLength:"1" maxLength:"512" doc:"A token of your own choice; weak ones are refused. The server makes one when absent."`
}

// NewAgentToken is an AgentToken with the token, which is shown this once.
type NewAgentToken struct {
	AgentToken
	Token string `json:"token"`
}

// Environment is a named place to deploy to.
type Environment struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Agents      []string          `json:"agents,omitempty" nullable:"false" doc:"Named as belonging to it."`
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	Selected    []string          `json:"selected,omitempty" nullable:"false" doc:"The agents that belong to it now, by name or by labels."`
	Deployments int               `json:"deployments" doc:"How many deployments use it."`
	Suspension  *Suspension       `json:"suspension,omitempty" doc:"Set while it is suspended."`
	Spec        int64             `json:"spec" doc:"Rises with every edit; the number in the ETag."`
	CreatedAt   time.Time         `json:"createdAt,omitzero"`
}

// UpdateEnvironment changes an environment; what is absent stays as it is.
type UpdateEnvironment struct {
	Agents      []string          `json:"agents,omitzero" nullable:"false" doc:"All names from now on; [] names none."`
	MatchLabels map[string]string `json:"matchLabels,omitzero" doc:"All labels from now on; {} asks for none."`
}

// CreateEnvironment asks for a new environment. It names agents or gives labels, or both: every agent
// of the tenant is in the environment "default" already.
type CreateEnvironment struct {
	Name        string            `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Agents      []string          `json:"agents,omitempty" nullable:"false" doc:"Names of agents that belong to it."`
	MatchLabels map[string]string `json:"matchLabels,omitempty" doc:"Agents that have all of these labels belong to it."`
}
