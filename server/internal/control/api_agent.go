package control

import (
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// EnrollAgent asks for a new agent.
type EnrollAgent struct {
	Name       string
	Labels     map[string]string
	Namespaces []string // not empty: scope namespaced
	Token      string   // chosen by the user; "" means that one is made
	// ConfigRepoURL is the repository of its configuration; "" means that there is none.
	ConfigRepoURL string
}

// Enrollment is a new agent with its token, which is shown this once.
type Enrollment struct {
	Agent fleet.Agent
	Token string
}

// UpdateAgent changes an agent; nil fields stay as they are.
type UpdateAgent struct {
	Labels     *map[string]string
	Namespaces *[]string // empty: scope cluster
}

// AgentView is an agent as users see it.
type AgentView struct {
	fleet.Agent
	Connected   bool
	LastSeenAt  time.Time          // zero when it never connected; now-ish while connected
	Connections []fleet.Connection // one per replica, newest state of each
	Warnings    []string           // version skew, several clusters under one name, a rotation that failed, …
	// ConfigWarning is why the newest configuration file is not live, the last of Warnings then; "" when it is.
	ConfigWarning string
	Targets       int
}
