package apiv1

import "time"

// List is one page of a listing.
type List[T any] struct {
	Items []T `json:"items" nullable:"false"`
	// Next is the value of "after" for the next page; empty on the last page.
	Next string `json:"next" doc:"Pass it as 'after' to read the next page; empty on the last page."`
	// Previous is the value of "before" for the previous page, in listings that can be read backwards.
	Previous string `json:"previous,omitempty" doc:"For events: pass it as 'before' to read older events; absent if there are none."`
}

// Whoami describes the caller.
type Whoami struct {
	Name          string       `json:"name" doc:"Name of the token, or of the person who logged in."`
	Role          string       `json:"role" doc:"fleet-admin, or the highest role in any tenant; empty if the caller has none."`
	Session       bool         `json:"session" doc:"True for a person who logged in, false for an API token."`
	Tenants       []Membership `json:"tenants" nullable:"false" doc:"The roles of the caller in tenants; empty for a fleet admin, who may do everything."`
	ServerVersion string       `json:"serverVersion"`
}

// Membership is a role in a tenant.
type Membership struct {
	Tenant string `json:"tenant" doc:"Name of the tenant."`
	Role   string `json:"role"`
}

// Agent is an identity that connects from a cluster, with its status. It has more than 20 fields because they are the
// columns of one flat JSON object.
type Agent struct {
	ID                    string            `json:"id"`
	Name                  string            `json:"name"`
	Labels                map[string]string `json:"labels,omitempty"`
	Scope                 string            `json:"scope" enum:"cluster,namespaced"`
	Namespaces            []string          `json:"namespaces,omitempty" nullable:"false" doc:"The namespaces that the agent may use; set if its scope is namespaced."`
	EngineNamespace       string            `json:"engineNamespace,omitempty" doc:"Namespace of the Argo CD that applies for the agent; absent if the agent applies by itself."`
	DeliverGitCredentials bool              `json:"deliverGitCredentials,omitempty" doc:"Whether the agent stores the credentials of private repositories in the namespace of Argo CD."`
	EngineInstance        bool              `json:"engineInstance,omitempty" doc:"Whether push environments are placed on the agent."`
	Draining              bool              `json:"draining,omitempty" doc:"Whether the push environments of the agent move to other engine instances."`
	Tunnel                bool              `json:"tunnel,omitempty" doc:"Whether callers with an access rule reach the API server of the cluster through the agent."`
	KindFilter            *KindFilter       `json:"kindFilter,omitempty" doc:"The kinds of objects that the agent manages; absent if it has no filter besides the built-in exclusions."`
	KindFilterFromConfig  bool              `json:"kindFilterFromConfig,omitempty" doc:"Whether the configuration file of the agent declares the kind filter, so that only the file can change it."`
	Reason                string            `json:"reason" doc:"AgentConnected, AgentDisconnected or AgentNeverConnected."`
	Conditions            []Condition       `json:"conditions" nullable:"false" doc:"Connected and, if its configuration file is not in force, ConfigReady."`
	Connected             bool              `json:"connected"`
	LastSeenAt            time.Time         `json:"lastSeenAt,omitzero" doc:"Absent if the agent never connected."`
	SpecRevision          int64             `json:"specRevision" doc:"Rises with each edit; the number in the ETag."`
	CreatedAt             time.Time         `json:"createdAt,omitzero"`
	Targets               int               `json:"targets" doc:"Number of deployments on the agent."`
	Warnings              []Cause           `json:"warnings,omitempty" nullable:"false" doc:"VersionSkew, SeveralClusters, EngineMismatch, TokenRotationFailed, or why its configuration file is not in force."`
	Connections           []Connection      `json:"connections,omitempty" nullable:"false" doc:"One per replica."`
}

// KindFilter selects kinds of objects. Inclusions come first, then the built-in exclusions, then the exclusions. A kind that
// nothing matches is allowed.
type KindFilter struct {
	Include []string `json:"include,omitempty" nullable:"false" maxItems:"64" doc:"Kinds that are allowed, even if they are excluded: ConfigMap, Deployment.apps, Ingress.* (of every group), *.example.com (every kind of a group), or *."`
	Exclude []string `json:"exclude,omitempty" nullable:"false" maxItems:"64" doc:"Kinds that are refused, written as in include."`
}

// Connection is one replica of an agent, as it last introduced itself.
type Connection struct {
	Replica     string    `json:"replica"`
	Role        string    `json:"role" enum:"leader,standby" doc:"The leader applies and reports. An agent without a connected leader counts as not connected."`
	Version     string    `json:"version"`
	KubeVersion string    `json:"kubeVersion,omitempty"`
	ClusterUID  string    `json:"clusterUID,omitempty" doc:"UID of the namespace kube-system; absent if the agent may not read it."`
	RemoteAddr  string    `json:"remoteAddr,omitempty"`
	ConnectedAt time.Time `json:"connectedAt,omitzero"`
	LastSeenAt  time.Time `json:"lastSeenAt,omitzero"`
	Connected   bool      `json:"connected"`
}

// EnrollAgent is the request for a new agent.
type EnrollAgent struct {
	Name                  string            `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Labels                map[string]string `json:"labels,omitempty"`
	Namespaces            []string          `json:"namespaces,omitempty" nullable:"false" doc:"Limits the agent to these namespaces; the whole cluster if absent."`
	EngineNamespace       string            `json:"engineNamespace,omitempty" maxLength:"63" doc:"Namespace of an Argo CD in the cluster, which then fetches and applies the deployments of the agent. If absent, the agent applies them by itself."`
	DeliverGitCredentials bool              `json:"deliverGitCredentials,omitempty" doc:"Sends the credentials of private repositories of the tenant to the agent, which stores them as Secrets in the namespace of Argo CD. Requires engineNamespace."`
	EngineInstance        bool              `json:"engineInstance,omitempty" doc:"Lets push environments of the tenant be placed on the agent, which gets their credentials. Requires engineNamespace."`
	Tunnel                bool              `json:"tunnel,omitempty" doc:"Lets callers with an access rule reach the API server of the cluster through the agent."`
	KindFilter            *KindFilter       `json:"kindFilter,omitempty" doc:"The kinds of objects that the agent manages; all except the built-in exclusions if absent."`
	Image                 string            `json:"image,omitempty" doc:"Image of the agent; required unless the server has a default (--agent-image) or withoutDeployment is set."`
	Replicas              int               `json:"replicas,omitempty" minimum:"0" maximum:"9" doc:"Number of pods. One leads, the others are on standby. Default: 1."`
	Token                 string            `json:"token,omitempty" plain:"-" minLength:"1" maxLength:"512" doc:"The token for the agent's Secret; weak tokens are refused. If absent, the server generates one."`
	ConfigRepoURL         string            `json:"configRepoURL,omitempty" maxLength:"2048" doc:"Git repository with the configuration of the agent; none if absent."`
	ServerAddress         string            `json:"serverAddress,omitempty" doc:"Address at which the agent reaches the server, such as grpcs://host:port. The server has a default."`
	WithoutDeployment     bool              `json:"withoutDeployment,omitempty" doc:"Leave the Deployment out of the manifest, because the agent runs outside its cluster."`
}

// Enrollment is a new agent with its token and its manifest. Token and manifest are returned only once.
type Enrollment struct {
	Agent    Agent  `json:"agent"`
	Token    string `json:"token"`
	Manifest string `json:"manifest" doc:"YAML for kubectl apply -f -; contains the token."`
}

// UpdateAgent changes an agent. Absent fields do not change.
type UpdateAgent struct {
	Labels                map[string]string `json:"labels,omitzero" doc:"Replaces all labels; {} removes them."`
	Namespaces            []string          `json:"namespaces,omitzero" nullable:"false" doc:"Replaces all namespaces; [] allows the whole cluster."`
	EngineNamespace       *string           `json:"engineNamespace,omitempty" maxLength:"63" doc:"Namespace of Argo CD; empty if the agent applies by itself. It can change only while the agent has no deployments."`
	DeliverGitCredentials *bool             `json:"deliverGitCredentials,omitempty" doc:"Whether the agent gets the credentials of private repositories. After a change, apply the manifest of the agent again."`
	EngineInstance        *bool             `json:"engineInstance,omitempty" doc:"Whether push environments are placed on the agent. It cannot be cleared while the agent serves one. After a change, apply the manifest of the agent again."`
	Draining              *bool             `json:"draining,omitempty" doc:"Moves the push environments of an engine instance to another one, and places no others on it."`
	Tunnel                *bool             `json:"tunnel,omitempty" doc:"Whether callers with an access rule reach the API server of the cluster through the agent. After it is set, apply the manifest of the agent again."`
	KindFilter            *KindFilter       `json:"kindFilter,omitempty" doc:"Replaces the kind filter; {} removes it. A change deletes nothing."`
}

// AgentApplications are the Applications of Argo CD, in the namespace of the agent's engine, that the agent does not manage.
type AgentApplications struct {
	Items []AgentApplication `json:"items" nullable:"false" doc:"By name, at most 1000."`
	Total int                `json:"total" doc:"Number of Applications; items has less if there are more than 1000."`
}

// AgentApplication is an Application of Argo CD that an agent lists and never changes.
type AgentApplication struct {
	Name      string `json:"name"`
	Project   string `json:"project,omitempty"`
	RepoURL   string `json:"repoURL,omitempty"`
	Path      string `json:"path,omitempty" doc:"Folder in the repository, or the name of a chart."`
	Revision  string `json:"revision,omitempty"`
	Cluster   string `json:"cluster,omitempty" doc:"Name or URL of the destination."`
	Namespace string `json:"namespace,omitempty"`
	Sync      string `json:"sync,omitempty" doc:"In the words of Argo CD."`
	Health    string `json:"health,omitempty" doc:"In the words of Argo CD."`
}

// AgentToken is a token of an agent, without the token itself.
type AgentToken struct {
	ID         string    `json:"id"`
	Valid      bool      `json:"valid"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	CreatedBy  string    `json:"createdBy,omitempty"`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero" doc:"Accurate to minutes; absent if the token was never used."`
	RevokedAt  time.Time `json:"revokedAt,omitzero"`
}

// CreateAgentToken is the request for another token of an agent.
type CreateAgentToken struct {
	Token string `json:"token,omitempty" plain:"-" minLength:"1" maxLength:"512" doc:"The token; weak tokens are refused. If absent, the server generates one."`
}

// NewAgentToken is an AgentToken with the token itself, which is returned only once.
type NewAgentToken struct {
	AgentToken
	Token string `json:"token"`
}

// Environment is a named set of agents.
type Environment struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	Agents       []string          `json:"agents,omitempty" nullable:"false" doc:"Names of agents that belong to it."`
	MatchLabels  map[string]string `json:"matchLabels,omitempty"`
	Selected     []string          `json:"selected,omitempty" nullable:"false" doc:"The agents that currently belong to it, by name or by labels."`
	Push         *Push             `json:"push,omitempty" doc:"The cluster of a push environment."`
	Deployments  int               `json:"deployments" doc:"Number of deployments that use it."`
	Suspension   *Suspension       `json:"suspension,omitempty" doc:"Set while it is suspended."`
	SpecRevision int64             `json:"specRevision" doc:"Rises with each edit; the number in the ETag."`
	CreatedAt    time.Time         `json:"createdAt,omitzero"`
}

// UpdateEnvironment changes an environment. Absent fields do not change.
type UpdateEnvironment struct {
	Agents      []string          `json:"agents,omitzero" nullable:"false" doc:"Replaces all names; [] removes them."`
	MatchLabels map[string]string `json:"matchLabels,omitzero" doc:"Replaces all labels; {} removes them."`
	Push        *PushRequest      `json:"push,omitempty" doc:"Replaces the cluster of a push environment. Its URL can change only while no deployment uses the environment."`
}

// Push is the cluster of a push environment, to which an engine instance applies. Its credential is never returned.
type Push struct {
	APIURL           string    `json:"apiURL"`
	Namespaces       []string  `json:"namespaces,omitempty" nullable:"false" doc:"The namespaces that deployments may use; all if absent."`
	ClusterResources bool      `json:"clusterResources,omitempty" doc:"Whether cluster-scoped objects are allowed although namespaces are set."`
	EngineInstance   string    `json:"engineInstance,omitempty" doc:"The agent that serves the environment; absent while there is none."`
	Ready            Condition `json:"ready" doc:"Whether the engine instance can use the API server, and why not."`
}

// PushRequest is the request for the cluster of a push environment.
type PushRequest struct {
	APIURL           string   `json:"apiURL" minLength:"1" maxLength:"1024" doc:"URL of the API server, https://…; the engine instance connects to it."`
	Kubeconfig       string   `json:"kubeconfig,omitempty" plain:"-" maxLength:"262144" doc:"A kubeconfig with a context for the URL, with a token or a client certificate. Programs, files, and proxies are refused. It is never returned. In a change, if absent, the credential stays."`
	Context          string   `json:"context,omitempty" maxLength:"253" doc:"Name of a context of the kubeconfig. If absent, the one for the URL."`
	Namespaces       []string `json:"namespaces,omitzero" nullable:"false" doc:"Limits the environment to these namespaces; the whole cluster if absent. In a change, if absent, the limit stays, and [] removes it."`
	ClusterResources bool     `json:"clusterResources,omitempty" doc:"Allows cluster-scoped objects although namespaces are set."`
}

// CreateEnvironment is the request for a new environment. It needs agents, labels, or both: every agent of the
// tenant already belongs to the environment "default".
type CreateEnvironment struct {
	Name        string            `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Agents      []string          `json:"agents,omitempty" nullable:"false" doc:"Names of agents that belong to it."`
	MatchLabels map[string]string `json:"matchLabels,omitempty" doc:"Agents that have all of these labels belong to it."`
	Push        *PushRequest      `json:"push,omitempty" doc:"Makes a push environment, which has neither agents nor matchLabels: an engine instance of the tenant applies to this cluster."`
}
