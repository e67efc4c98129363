package control

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// EnrollAgent asks for a new agent.
type EnrollAgent struct {
	Name       string
	Labels     map[string]string
	Namespaces []string // not empty: scope namespaced
}

// Enrollment is a new agent with its token, which is shown this once.
type Enrollment struct {
	Agent fleet.Agent
	Token string
}

// AgentView is an agent as users see it.
type AgentView struct {
	fleet.Agent
	Connected   bool
	LastSeenAt  time.Time          // zero when it never connected; now-ish while connected
	Connections []fleet.Connection // one per replica, newest state of each
	Warnings    []string           // version skew, several clusters under one name, …
	Targets     int
}

// CreateEnvironment asks for a new environment.
type CreateEnvironment struct {
	Name        string
	Agents      []string
	MatchLabels map[string]string
}

// CreateDeployment asks for a new deployment. Nil policies mean the default.
type CreateDeployment struct {
	Name        string
	Source      fleet.Source
	Environment string // "" means fleet.DefaultEnvironment
	Namespace   string // "" means "default"
	Prune       *bool  // default true
	Adopt       bool
	AllowEmpty  bool
}

// DeploymentView is a deployment as users see it, summed up over its targets.
type DeploymentView struct {
	fleet.Deployment
	Sync    fleet.SyncState
	Health  fleet.Health
	Message string // the first thing a user should know: source error, failing object, …
	Targets []TargetView
}

// TargetView is a target as users see it.
type TargetView struct {
	fleet.Target
	fleet.View
	Objects []fleet.ObjectStatus // only where asked for
}

// Webhook is what a Git host has to be told to announce pushes.
type Webhook struct {
	Repository fleet.RepositoryID
	Secret     string
}

// AgentReports is what one agent reported, for one batched write.
type AgentReports struct {
	Agent   fleet.Agent
	Reports []store.Report
	Events  []AgentEvent
}

// AgentEvent is an event as an agent tells it; Target is "" when it is about the agent itself.
type AgentEvent struct {
	Target fleet.TargetID
	Event  fleet.Event
}
