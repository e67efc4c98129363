package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// CreateAccessRule is the request for a new access rule.
type CreateAccessRule struct {
	Name                 string
	Subjects             []fleet.AccessSubject
	AllAgents            bool
	Agents, Environments []string // names
	ReadOnly             bool
}

// UpdateAccessRule changes an access rule; nil fields do not change.
type UpdateAccessRule struct {
	Subjects             *[]fleet.AccessSubject
	AllAgents            *bool
	Agents, Environments *[]string
	ReadOnly             *bool
}

// Access is what a caller may do in the cluster of an agent, and as whom.
type Access struct {
	Agent  fleet.Agent // without labels and namespaces
	Tenant fleet.Tenant
	User   string
	Groups []string
	Extra  map[string][]string
	// ReadOnly is set if every rule that gives the access is read-only.
	ReadOnly bool
}

// AccessError means that a caller may not reach the cluster of an agent. It wraps auth.ErrForbidden.
type AccessError struct {
	Reason  fleet.Reason // TunnelDisabled or AccessNotAllowed
	Message string
}

func (e *AccessError) Error() string { return e.Message }

// Unwrap returns auth.ErrForbidden.
func (e *AccessError) Unwrap() error { return auth.ErrForbidden }

// Access returns the access of p to the cluster of an agent through its tunnel. It fails with an AccessError if the tunnel
// is off, or if no rule allows it, and returns the agent nevertheless; roles alone give no access. Every request through a tunnel calls it: it makes three
// queries.
func (s *Service) Access(ctx context.Context, p auth.Principal, tenant, agent string) (Access, error) {
	var out Access
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		out = Access{}
		if out.Tenant, err = readable(ctx, tx, p, tenant); err != nil {
			return err
		}
		if out.Agent, err = tx.Agents().Brief(ctx, out.Tenant.ID, agent); err != nil {
			return fmt.Errorf("agent %q: %w", agent, err)
		}
		if !out.Agent.Tunnel {
			return &AccessError{fleet.ReasonTunnelDisabled, fmt.Sprintf(
				"the tunnel of agent %q is off: open it with kedge agent set %s --tunnel, and apply the manifest of the agent again", agent, agent)}
		}
		who, groups := accessSubject(p)
		if who.Kind == "" {
			return &AccessError{fleet.ReasonAccessNotAllowed, "only people and API tokens can use the tunnel of an agent"}
		}
		rules, err := tx.AccessRules().Covering(ctx, out.Tenant.ID, out.Agent.ID, who, groups)
		if err != nil {
			return err
		}
		if len(rules) == 0 {
			return &AccessError{fleet.ReasonAccessNotAllowed, fmt.Sprintf(
				"no access rule of tenant %q lets %s %q reach agent %q: an administrator of the tenant can create one with "+
					"kedge access create NAME --%s %s --agents %s", tenant, who.Kind, who.Name, agent, who.Kind, who.Name, agent)}
		}
		out.ReadOnly = true
		for _, r := range rules {
			out.ReadOnly = out.ReadOnly && r.ReadOnly
		}
		return nil
	})
	if err != nil {
		return Access{Tenant: out.Tenant, Agent: out.Agent}, err
	}
	out.identify(p)
	return out, nil
}

// accessSubject returns what rules call p. A token of a tenant can read only that tenant, so that its name is one of
// tokens of the tenant; a token of the fleet has another name.
func accessSubject(p auth.Principal) (who fleet.AccessSubject, groups []string) {
	who = fleet.AccessSubject{Kind: p.Subject, Name: p.Name}
	switch {
	case p.Subject == fleet.AccessPerson:
		return who, p.Groups
	case p.Subject == fleet.AccessToken && p.FleetAdmin:
		who.Name = fleet.FleetTokenPrefix + p.Name
	}
	return who, nil
}

// identify sets the identity of p in the cluster.
func (a *Access) identify(p auth.Principal) {
	role := p.Roles[a.Tenant.ID]
	if p.FleetAdmin {
		role = fleet.RoleAdmin
	}
	switch {
	case p.Subject == fleet.AccessPerson:
		a.User = fleet.AccessPersonUser(p.Name)
	case p.FleetAdmin:
		a.User = fleet.AccessTokenUser("", p.Name)
	default:
		a.User = fleet.AccessTokenUser(a.Tenant.Name, p.Name)
	}
	a.Groups = []string{fleet.AccessTenantGroup(a.Tenant.Name), fleet.AccessRoleGroup(a.Tenant.Name, role)}
	a.Extra = map[string][]string{
		fleet.AccessExtraTenant: {string(a.Tenant.ID)}, fleet.AccessExtraAgent: {string(a.Agent.ID)}, fleet.AccessExtraToken: {string(p.TokenID)},
	}
}

// RecordAccess appends audit events of requests through tunnels, in one transaction. The caller sets everything; an event
// without a time gets the current one.
func (s *Service) RecordAccess(ctx context.Context, events []fleet.AuditEvent) error {
	if len(events) == 0 {
		return nil
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		for _, e := range events {
			if e.At.IsZero() {
				e.At = s.cfg.Now()
			}
			if err := tx.Audit().Append(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
}
