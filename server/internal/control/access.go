package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Access is what a caller may do in the cluster of an agent.
type Access struct {
	Agent    fleet.Agent
	Tenant   fleet.Tenant
	User     string
	Groups   []string
	Extra    map[string][]string
	ReadOnly bool
}

// AccessError refuses access.
type AccessError struct {
	Reason  fleet.Reason
	Message string
}

func (e *AccessError) Error() string { return e.Message }

// Access is a placeholder until the access rules arrive.
func (s *Service) Access(ctx context.Context, p auth.Principal, tenant, agent string) (a Access, err error) {
	err = s.store.View(ctx, func(tx store.Tx) error {
		if a.Tenant, err = administrable(ctx, tx, p, tenant); err != nil {
			return err
		}
		a.Agent, err = tx.Agents().ByName(ctx, a.Tenant.ID, agent)
		return err
	})
	a.User = "kedge:token:" + p.Name
	a.Groups = []string{"kedge:tenant:" + tenant, "kedge:tenant:" + tenant + ":admin"}
	a.Extra = map[string][]string{"kedge.dev/tenant-id": {string(a.Tenant.ID)}, "kedge.dev/agent-id": {string(a.Agent.ID)}, "kedge.dev/token-id": {string(p.TokenID)}}
	return a, err
}

// RecordAccess appends audit events.
func (s *Service) RecordAccess(ctx context.Context, events []fleet.AuditEvent) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		for _, e := range events {
			if err := tx.Audit().Append(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
}
