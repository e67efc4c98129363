package restapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (a *api) registerWhoami() {
	op := operation("whoami", http.MethodGet, base+"/whoami", "Who the caller is", http.StatusOK)
	register(a, op, resource{}, a.whoami)
}

func (a *api) whoami(ctx context.Context, p auth.Principal, _ *struct{}) (*plain[apiv1.Whoami], error) {
	out := apiv1.Whoami{Name: p.Name, Session: p.Session, Tenants: []apiv1.Membership{}, ServerVersion: a.cfg.Version}
	if p.FleetAdmin {
		out.Role = string(fleet.RoleFleetAdmin)
		return &plain[apiv1.Whoami]{out}, nil
	}
	var best fleet.Role
	for _, role := range p.Roles {
		best = auth.Better(best, role)
	}
	out.Role = string(best)
	var err error
	out.Tenants, err = a.memberships(ctx, p)
	return &plain[apiv1.Whoami]{out}, err
}

// memberships returns the tenants in which a caller has a role.
func (a *api) memberships(ctx context.Context, p auth.Principal) ([]apiv1.Membership, error) {
	found := []apiv1.Membership{}
	page := store.Page{Limit: 500}
	for len(p.Roles) > 0 {
		tenants, err := a.control.Tenants(ctx, p, page)
		if err != nil {
			return nil, err
		}
		for _, t := range tenants {
			if role, ok := p.Roles[t.ID]; ok {
				found = append(found, apiv1.Membership{Tenant: t.Name, Role: string(role)})
			}
		}
		if len(tenants) < page.Limit {
			break
		}
		page.After = tenants[len(tenants)-1].Name
	}
	slices.SortFunc(found, func(x, y apiv1.Membership) int { return strings.Compare(x.Tenant, y.Tenant) })
	return found, nil
}
