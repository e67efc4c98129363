package control

import (
	"context"
	"errors"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// environmentOf finds the environment of a deployment of tenant t: "name" for its own, "owner/name" for a
// granted one. One that is not granted does not exist for it; both are an InvalidError.
func (s *Service) environmentOf(
	ctx context.Context, tx store.Tx, t fleet.Tenant, name string,
) (fleet.Environment, fleet.GrantID, fleet.Limits, error) {
	unknown := fleet.Invalid("environment", "there is no environment %q in tenant %q, and none was granted to it by that name", name, t.Name)
	owner, short := t, name
	if before, after, ok := strings.Cut(name, "/"); ok {
		var err error
		if owner, err = tx.Tenants().ByName(ctx, before); err != nil {
			return fleet.Environment{}, "", fleet.Limits{}, replaced(err, unknown)
		}
		short = after
	}
	env, err := tx.Environments().ByName(ctx, owner.ID, short)
	if err != nil {
		return fleet.Environment{}, "", fleet.Limits{}, replaced(err, unknown)
	}
	if owner.ID == t.ID {
		return env, "", fleet.Limits{}, nil
	}
	grant, err := tx.Grants().OfEnvironment(ctx, t.ID, env.ID)
	if err != nil {
		return fleet.Environment{}, "", fleet.Limits{}, replaced(err, unknown)
	}
	return env, grant.ID, grant.Limits, nil
}

// replaced replaces ErrNotFound by another error.
func replaced(err, instead error) error {
	if errors.Is(err, store.ErrNotFound) {
		return instead
	}
	return err
}
