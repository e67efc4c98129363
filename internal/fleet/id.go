package fleet

import (
	"crypto/rand"
	"strings"
)

// Identifiers are opaque, unique over the whole fleet, at most 24 characters of [a-z0-9-], and so
// valid as Kubernetes label values and as parts of object names.
type (
	// TenantID names a tenant.
	TenantID string
	// AgentID names an agent.
	AgentID string
	// TokenID names a token.
	TokenID string
	// EnvironmentID names an environment.
	EnvironmentID string
	// RepositoryID names a repository.
	RepositoryID string
	// DeploymentID names a deployment.
	DeploymentID string
	// TargetID names a target.
	TargetID string
	// SessionID names a session.
	SessionID string
	// GrantID names a grant.
	GrantID string
	// CredentialID names a credential.
	CredentialID string
	// RunID names a sync run.
	RunID string
	// OperationID names an operation.
	OperationID string
)

func newID(prefix string) string {
	// 20 characters of base32 are 100 random bits.
	return prefix + "-" + strings.ToLower(rand.Text()[:20])
}

// NewTenantID makes a fresh one.
func NewTenantID() TenantID { return TenantID(newID("ten")) }

// NewAgentID makes a fresh one.
func NewAgentID() AgentID { return AgentID(newID("agt")) }

// NewTokenID makes a fresh one.
func NewTokenID() TokenID { return TokenID(newID("tok")) }

// NewEnvironmentID makes a fresh one.
func NewEnvironmentID() EnvironmentID { return EnvironmentID(newID("env")) }

// NewRepositoryID makes a fresh one.
func NewRepositoryID() RepositoryID { return RepositoryID(newID("rep")) }

// NewDeploymentID makes a fresh one.
func NewDeploymentID() DeploymentID { return DeploymentID(newID("dep")) }

// NewTargetID makes a fresh one.
func NewTargetID() TargetID { return TargetID(newID("tgt")) }

// NewSessionID makes a fresh one.
func NewSessionID() SessionID { return SessionID(newID("ses")) }

// NewGrantID returns a new id.
func NewGrantID() GrantID { return GrantID(newID("grt")) }

// NewCredentialID returns a new id.
func NewCredentialID() CredentialID { return CredentialID(newID("crd")) }

// NewRunID returns a new id.
func NewRunID() RunID { return RunID(newID("run")) }

// NewOperationID returns a new id.
func NewOperationID() OperationID { return OperationID(newID("opn")) }
