package store

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// AccessRules stores who may reach the API servers of clusters through the tunnels of agents. Writes record
// ChangeAccessRule. A rule loses the agents and environments that are deleted; that raises its Spec.
type AccessRules interface {
	// Create and Update take agents and environments of the tenant by ID; any other one fails the whole transaction.
	Create(ctx context.Context, r fleet.AccessRule) error
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.AccessRule, error)
	// List returns rules, sorted by name.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.AccessRule, error)
	// Update writes everything but the name, and raises Spec.
	Update(ctx context.Context, r fleet.AccessRule) error
	Delete(ctx context.Context, tenant fleet.TenantID, id fleet.AccessRuleID) error
	Count(ctx context.Context, tenant fleet.TenantID) (int, error)
	// Covering returns the rules for a caller, by name or by one of the groups, that cover an agent of the same tenant. It
	// is one query: every request through a tunnel needs it.
	Covering(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, who fleet.AccessSubject, groups []string) ([]AccessMatch, error)
	// OfPersonAllTenants returns the rules that name a person.
	OfPersonAllTenants(ctx context.Context, person string) ([]AccessMatch, error)
	// RemoveSubject removes a subject from a rule, and raises Spec.
	RemoveSubject(ctx context.Context, tenant fleet.TenantID, id fleet.AccessRuleID, subject fleet.AccessSubject) error
}

// AccessMatch is a rule without its lists.
type AccessMatch struct {
	TenantID fleet.TenantID
	ID       fleet.AccessRuleID
	Name     string
	ReadOnly bool
}
