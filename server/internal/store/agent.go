package store

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Agents is the aggregate of agent identities.
type Agents interface {
	Create(ctx context.Context, a fleet.Agent) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) (fleet.Agent, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Agent, error)
	// Of returns those of these agents that are there, in the order of their names.
	Of(ctx context.Context, tenant fleet.TenantID, ids []fleet.AgentID) ([]fleet.Agent, error)
	// List returns agents in the order of their names.
	List(ctx context.Context, tenant fleet.TenantID, f AgentFilter) ([]fleet.Agent, error)
	// Update writes labels and namespaces (with the scope that follows) and raises Spec.
	Update(ctx context.Context, a fleet.Agent) error
	// SetUninstalling marks an agent whose objects are being deleted, and raises Spec.
	SetUninstalling(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error
	// Delete removes an agent with its tokens and connections. Its targets stay, with no AgentID.
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) error
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
	// SetCapabilities records what the cluster of an agent offers, once for all agents of the tenant that
	// tell the same. It is no edit, and writes nothing when that is known already.
	SetCapabilities(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID, c fleet.Capabilities) error
	// Capabilities returns what Agent.Capabilities names.
	Capabilities(ctx context.Context, tenant fleet.TenantID, hash string) (fleet.Capabilities, error)
}

// AgentFilter narrows a listing of agents; zero fields match everything.
type AgentFilter struct {
	Page
	Labels    map[string]string // has all of these
	Selector  fleet.LabelSelector
	Text      string // part of the name
	Connected *bool  // any replica is, or none
}

// Connections holds the newest connection of each replica of each agent.
type Connections interface {
	// Put inserts or replaces the row of c's (agent, replica).
	Put(ctx context.Context, c fleet.Connection) error
	// Close marks the row of that session as ended. A row that a newer session has replaced is
	// left alone, and closed is false.
	Close(ctx context.Context, tenant fleet.TenantID, session fleet.SessionID, lastSeen, at time.Time) (closed bool, err error)
	// CloseOfServerAllTenants ends every open row of a server replica that is gone; "" means every
	// row of a server that is not alive. lastSeen is taken when the row's own is older.
	CloseOfServerAllTenants(ctx context.Context, server string, lastSeen time.Time) (int, error)
	// Trim removes rows that ended before a time, except the newest of each agent, which says when it was last seen.
	Trim(ctx context.Context, tenant fleet.TenantID, before time.Time) (int, error)
	// OfAgentsAllTenants returns the rows of these agents, by agent and replica.
	OfAgentsAllTenants(ctx context.Context, agents []fleet.AgentID) ([]fleet.Connection, error)
}

// Replicas holds the servers that share this database.
type Replicas interface {
	// Beat records that a replica is alive, and what it is. The first one inserts it.
	Beat(ctx context.Context, r fleet.ServerReplica) error
	// List returns all that have not been removed, by id.
	List(ctx context.Context) ([]fleet.ServerReplica, error)
	Remove(ctx context.Context, id string) error
}

// Tokens holds hashes of tokens, never tokens.
type Tokens interface {
	CreateAgentToken(ctx context.Context, t fleet.AgentToken) error
	// AgentTokenByHashAllTenants finds the token that a caller presented; revoked ones too.
	AgentTokenByHashAllTenants(ctx context.Context, hash []byte) (fleet.AgentToken, error)
	// AgentTokens returns the tokens of one agent, oldest first; revoked ones too. A page begins after
	// the token AfterID that was made at After, in unix microseconds.
	AgentTokens(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, page Page) ([]fleet.AgentToken, error)
	// RevokeAgentToken ends a token. The first time stands.
	RevokeAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error
	// TouchAgentToken records that a token was used; it records no change.
	TouchAgentToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error

	CreateAPIToken(ctx context.Context, t fleet.APIToken) error
	// APITokenByHash finds the token that a caller presented; revoked and expired ones too.
	APITokenByHash(ctx context.Context, hash []byte) (fleet.APIToken, error)
	// APITokens returns the tokens of a tenant, or with "" those of the fleet, without sessions, by name
	// and id.
	APITokens(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.APIToken, error)
	APIToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID) (fleet.APIToken, error)
	RevokeAPIToken(ctx context.Context, tenant fleet.TenantID, id fleet.TokenID, at time.Time) error
	// RevokeSessions ends every session of a person.
	RevokeSessions(ctx context.Context, subject string, at time.Time) (int, error)
	// CountAPITokens counts those that are not revoked, sessions left out; "" counts the fleet's.
	CountAPITokens(ctx context.Context, tenant fleet.TenantID) (int, error)
	// TrimAPITokens removes those that expired or were revoked before a time.
	TrimAPITokens(ctx context.Context, before time.Time) (int, error)
}
