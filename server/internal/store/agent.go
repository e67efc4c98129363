package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Agents stores the identities of agents.
type Agents interface {
	Create(ctx context.Context, a fleet.Agent) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (fleet.Agent, error)
	// SpecRevision returns only that field of an agent.
	SpecRevision(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (int64, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Agent, error)
	// Brief is ByName without labels and namespaces. It is one query.
	Brief(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Agent, error)
	// Of returns those of these agents that exist, sorted by name.
	Of(ctx context.Context, tenant fleet.TenantID, ids []fleet.AgentID) ([]fleet.Agent, error)
	// List returns agents, sorted by name.
	List(ctx context.Context, tenant fleet.TenantID, f AgentFilter) ([]fleet.Agent, error)
	// Update writes labels, namespaces (with the scope that follows), the kind filter, the engine and the tunnel, and raises Spec.
	Update(ctx context.Context, a fleet.Agent) error
	// SetUninstalling marks an agent whose objects are being deleted, and raises Spec.
	SetUninstalling(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error
	// Delete removes an agent with its tokens and connections, and from access rules. Its targets stay, without AgentID.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
	// SetCapabilities stores the capabilities of the cluster of an agent, once for all agents of the tenant
	// with equal ones. It is not an edit, and writes nothing if they are stored already.
	SetCapabilities(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID, c fleet.Capabilities) error
	// SetApplications stores the Applications that the agent does not manage. It is not an edit, records no change, and
	// writes only rows that differ.
	SetApplications(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID, l fleet.ForeignApplications) error
	// Applications returns what SetApplications has stored, sorted by name.
	Applications(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (fleet.ForeignApplications, error)
	// Capabilities returns the capabilities with the hash Agent.Capabilities.
	Capabilities(ctx context.Context, tenant fleet.TenantID, hash string) (fleet.Capabilities, error)
}

// AgentFilter limits a listing of agents; zero fields match everything.
type AgentFilter struct {
	Page
	Labels    map[string]string // has all of these
	Selector  fleet.LabelSelector
	Text      string       // part of the name
	Connected *bool        // true if any replica is connected, false if none is
	Reason    fleet.Reason // AgentConnected, AgentDisconnected or AgentNeverConnected
}

// Connections stores the newest connection of each replica of each agent.
type Connections interface {
	// Put inserts or replaces the row of c's (agent, replica).
	Put(ctx context.Context, c fleet.Connection) error
	// Close marks the row of that session as ended. If a newer session has replaced the row, closed is false.
	Close(ctx context.Context, tenant fleet.TenantID, session fleet.SessionID, lastSeen, at time.Time) (closed bool, err error)
	// CloseOfServerAllTenants ends every open row of a server replica that ended; "" means every row of a
	// server that is not alive. It uses lastSeen if the time in the row is older.
	CloseOfServerAllTenants(ctx context.Context, server string, lastSeen time.Time) (int, error)
	// Trim removes rows that ended before a time, except the newest of each agent, which has the time when it
	// was last seen.
	Trim(ctx context.Context, tenant fleet.TenantID, before time.Time) (int, error)
	// OfAgentsAllTenants returns the rows of these agents, by agent and replica.
	OfAgentsAllTenants(ctx context.Context, agents []fleet.AgentID) ([]fleet.Connection, error)
}

// Replicas stores the servers that share this database.
type Replicas interface {
	// Beat stores the heartbeat and the address of a replica. The first one inserts it.
	Beat(ctx context.Context, r fleet.ServerReplica) error
	// List returns all replicas that are not removed, by id.
	List(ctx context.Context) ([]fleet.ServerReplica, error)
	Remove(ctx context.Context, id string) error
}

// Tokens stores hashes of tokens, never tokens.
type Tokens interface {
	CreateAgentToken(ctx context.Context, t fleet.AgentToken) error
	// AgentTokenByHashAllTenants finds the token of a caller, including revoked ones.
	AgentTokenByHashAllTenants(ctx context.Context, hash []byte) (fleet.AgentToken, error)
	// AgentTokens returns the tokens of one agent, oldest first, including revoked ones. A page starts after
	// the token AfterID that was created at After, in unix microseconds.
	AgentTokens(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, page Page) ([]fleet.AgentToken, error)
	// RevokeAgentToken revokes a token. Further calls do not change the time.
	RevokeAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error
	// TouchAgentToken records the use of a token; it records no change.
	TouchAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error

	CreateAPIToken(ctx context.Context, t fleet.APIToken) error
	// APITokenByHash finds the token of a caller, including revoked and expired ones.
	APITokenByHash(ctx context.Context, hash []byte) (fleet.APIToken, error)
	// APITokens returns the tokens of a tenant, or with "" those of the fleet, without sessions, by name and
	// id.
	APITokens(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.APIToken, error)
	APIToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID) (fleet.APIToken, error)
	RevokeAPIToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error
	// RevokeSessions ends every session of a person.
	RevokeSessions(ctx context.Context, subject string, at time.Time) (int, error)
	// CountAPITokens counts tokens that are not revoked, without sessions; "" counts those of the fleet.
	CountAPITokens(ctx context.Context, tenant fleet.TenantID) (int, error)
	// TrimAPITokens removes tokens that expired or were revoked before a time.
	TrimAPITokens(ctx context.Context, before time.Time) (int, error)
}
