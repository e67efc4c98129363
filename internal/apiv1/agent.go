package apiv1

import "time"

// List is one page of a listing.
type List[T any] struct {
	Items []T `json:"items" nullable:"false"`
	// Next is what to pass as "after" to read on; empty on the last page.
	Next string `json:"next" doc:"Pass it as 'after' to read on; empty on the last page."`
}

// Whoami says how the server knows the caller.
type Whoami struct {
	Name          string `json:"name" doc:"Name of the token."`
	Role          string `json:"role"`
	ServerVersion string `json:"serverVersion"`
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
	CreatedAt   time.Time         `json:"createdAt,omitzero"`
	Targets     int               `json:"targets" doc:"How many deployments it carries."`
	Warnings    []string          `json:"warnings,omitempty" nullable:"false"`
	Connections []Connection      `json:"connections,omitempty" nullable:"false" doc:"One per replica."`
}

// Connection is one replica of an agent, as it last introduced itself.
type Connection struct {
	Replica     string    `json:"replica"`
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
	Name          string            `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Labels        map[string]string `json:"labels,omitempty"`
	Namespaces    []string          `json:"namespaces,omitempty" nullable:"false" doc:"Limits the agent to these; none means the whole cluster."`
	Image         string            `json:"image,omitempty" doc:"Image of the agent; the server knows a default."`
	ServerAddress string            `json:"serverAddress,omitempty" doc:"How the agent reaches the server, such as grpcs://host:port; the server knows a default."`
}

// Enrollment is a new agent with its token and what to apply to its cluster. Token and manifest
// are shown this once.
type Enrollment struct {
	Agent    Agent  `json:"agent"`
	Token    string `json:"token"`
	Manifest string `json:"manifest" doc:"YAML for kubectl apply -f -; holds the token."`
}

// Environment is a named place to deploy to.
type Environment struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Agents      []string          `json:"agents,omitempty" nullable:"false"`
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
	CreatedAt   time.Time         `json:"createdAt,omitzero"`
}

// CreateEnvironment asks for a new environment. With neither agents nor labels it selects every
// agent of its tenant.
type CreateEnvironment struct {
	Name        string            `json:"name" doc:"An RFC 1123 label, unique in the tenant."`
	Agents      []string          `json:"agents,omitempty" nullable:"false" doc:"Names of agents that belong to it."`
	MatchLabels map[string]string `json:"matchLabels,omitempty" doc:"Agents that have all of these labels belong to it."`
}
