package fleet

import (
	"crypto/rand"
	"strings"
)

// Identifiers are opaque, unique in the whole fleet, and at most 24 characters of [a-z0-9-], so they are valid
// as Kubernetes label values and as parts of object names.
type (
	// TenantID identifies a tenant.
	TenantID string
	// AgentID identifies an agent.
	AgentID string
	// TokenID identifies a token.
	TokenID string
	// EnvironmentID identifies an environment.
	EnvironmentID string
	// RepositoryID identifies a repository.
	RepositoryID string
	// DeploymentID identifies a deployment.
	DeploymentID string
	// TargetID identifies a target.
	TargetID string
	// SessionID identifies a session.
	SessionID string
	// GrantID identifies a grant.
	GrantID string
	// CredentialID identifies a credential.
	CredentialID string
	// RunID identifies a sync run.
	RunID string
	// OperationID identifies an operation.
	OperationID string
	// AccessRuleID identifies an access rule.
	AccessRuleID string
	// EngineUpgradeID identifies an upgrade of Argo CD.
	EngineUpgradeID string
)

func newID(prefix string) string {
	// 20 characters of base32 are 100 random bits.
	return prefix + "-" + strings.ToLower(rand.Text()[:20])
}

// NewTenantID returns a new id.
func NewTenantID() TenantID { return TenantID(newID("ten")) }

// NewAgentID returns a new id.
func NewAgentID() AgentID { return AgentID(newID("agt")) }

// NewTokenID returns a new id.
func NewTokenID() TokenID { return TokenID(newID("tok")) }

// NewEnvironmentID returns a new id.
func NewEnvironmentID() EnvironmentID { return EnvironmentID(newID("env")) }

// NewRepositoryID returns a new id.
func NewRepositoryID() RepositoryID { return RepositoryID(newID("rep")) }

// NewDeploymentID returns a new id.
func NewDeploymentID() DeploymentID { return DeploymentID(newID("dep")) }

// NewTargetID returns a new id.
func NewTargetID() TargetID { return TargetID(newID("tgt")) }

// NewSessionID returns a new id.
func NewSessionID() SessionID { return SessionID(newID("ses")) }

// NewGrantID returns a new id.
func NewGrantID() GrantID { return GrantID(newID("grt")) }

// NewCredentialID returns a new id.
func NewCredentialID() CredentialID { return CredentialID(newID("crd")) }

// NewRunID returns a new id.
func NewRunID() RunID { return RunID(newID("run")) }

// NewOperationID returns a new id.
func NewOperationID() OperationID { return OperationID(newID("opn")) }

// NewAccessRuleID returns a new id.
func NewAccessRuleID() AccessRuleID { return AccessRuleID(newID("acr")) }

// NewEngineUpgradeID returns a new id.
func NewEngineUpgradeID() EngineUpgradeID { return EngineUpgradeID(newID("upg")) }
