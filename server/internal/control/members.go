package control

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// maxSubject limits the name of a person or group.
const maxSubject = 256

// Members lists the roles in a tenant.
func (s *Service) Members(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]fleet.Member, error) {
	var out []fleet.Member
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Members().List(ctx, t.ID, page)
		return err
	})
	return out, err
}

// PutMember assigns a role in a tenant to a person or a group, replacing their previous one. Callers cannot
// assign more than their own role, nor change members with a higher one. It also applies to open sessions.
func (s *Service) PutMember(ctx context.Context, p auth.Principal, tenant string, m fleet.Member) error {
	if err := checkMember(m); err != nil {
		return err
	}
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if err := grantable(p, t, m.Role); err != nil {
			return err
		}
		was, err := member(ctx, tx, t.ID, m.Kind, m.Subject)
		if err != nil {
			return err
		}
		if was != nil && was.Role == m.Role {
			return nil
		}
		m.TenantID, m.CreatedAt = t.ID, s.cfg.Now()
		if err := tx.Members().Put(ctx, m); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, memberEvent("member.put", m))
	})
}

// RemoveMember removes the role of a person or group.
func (s *Service) RemoveMember(ctx context.Context, p auth.Principal, tenant string, kind fleet.MemberKind, subject string) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		was, err := member(ctx, tx, t.ID, kind, subject)
		if err != nil {
			return err
		}
		if was == nil {
			return fmt.Errorf("member %s %q: %w", kind, subject, store.ErrNotFound)
		}
		if err := tx.Members().Remove(ctx, t.ID, kind, subject); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, memberEvent("member.remove", *was))
	})
}

// member finds a membership, or nil.
func member(ctx context.Context, tx store.Tx, tenant fleet.TenantID, kind fleet.MemberKind, subject string) (*fleet.Member, error) {
	m, err := tx.Members().Get(ctx, tenant, kind, subject)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	return &m, nil
}

func checkMember(m fleet.Member) error {
	if m.Kind != fleet.MemberPerson && m.Kind != fleet.MemberGroup {
		return fleet.Invalid("kind", "%q is not a kind of member: use %s or %s", m.Kind, fleet.MemberPerson, fleet.MemberGroup)
	}
	if m.Subject == "" || len(m.Subject) > maxSubject {
		return fleet.Invalid("subject", "the name of a %s has between 1 and %d characters", m.Kind, maxSubject)
	}
	return checkRole(m.Role)
}

func checkRole(role fleet.Role) error {
	if !auth.KnownRole(role) {
		return fleet.Invalid("role", "%q is not a role in a tenant: use %s, %s, or %s", role, fleet.RoleViewer, fleet.RoleDeployer, fleet.RoleAdmin)
	}
	return nil
}

// grantable refuses a role that p does not have.
func grantable(p auth.Principal, t fleet.Tenant, role fleet.Role) error {
	if !p.Has(t.ID, role) {
		return fmt.Errorf("you cannot assign a role that you do not have: %w", &auth.RoleError{Needs: role, Tenant: t.Name, Has: p.Roles[t.ID]})
	}
	return nil
}

func memberEvent(action string, m fleet.Member) fleet.AuditEvent {
	return fleet.AuditEvent{
		TenantID: m.TenantID, Action: action, Kind: "member", Name: string(m.Kind) + " " + m.Subject, Detail: "role " + string(m.Role),
	}
}
