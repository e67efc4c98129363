package control

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// holds finds out why nothing new may be sent, for many deployments in one transaction.
type holds struct {
	tx           store.Tx
	settings     *fleet.Settings
	tenants      map[fleet.TenantID]fleet.Tenant
	environments map[fleet.EnvironmentID]fleet.Environment
}

func newHolds(tx store.Tx) *holds {
	return &holds{tx: tx, tenants: map[fleet.TenantID]fleet.Tenant{}, environments: map[fleet.EnvironmentID]fleet.Environment{}}
}

// heldBy says why nothing new may be sent to the targets of d: its suspension, or that of its
// environment, of a tenant or of the fleet. It is "" when nothing holds it.
func heldBy(ctx context.Context, tx store.Tx, d fleet.Deployment) (string, error) {
	return newHolds(tx).of(ctx, d)
}

func (h *holds) of(ctx context.Context, d fleet.Deployment) (string, error) {
	if around, err := h.around(ctx, d); around != "" || err != nil {
		return around, err
	}
	return holding("it", d.Suspension), nil
}

// around is of without the suspension of d itself.
func (h *holds) around(ctx context.Context, d fleet.Deployment) (string, error) {
	if h.settings == nil {
		settings, err := h.tx.Settings().Get(ctx)
		if err != nil {
			return "", err
		}
		h.settings = &settings
	}
	if h.settings.Suspension.Active() {
		return holding("the whole fleet", h.settings.Suspension), nil
	}
	for _, id := range []fleet.TenantID{d.TenantID, d.EnvironmentTenant} {
		t, err := h.tenant(ctx, id)
		if err != nil {
			return "", err
		}
		if t.Suspension.Active() {
			return holding(fmt.Sprintf("tenant %q", t.Name), t.Suspension), nil
		}
	}
	env, err := h.environment(ctx, d)
	if err != nil {
		return "", err
	}
	return holding(fmt.Sprintf("environment %q", d.Environment), env.Suspension), nil
}

func (h *holds) tenant(ctx context.Context, id fleet.TenantID) (fleet.Tenant, error) {
	if t, ok := h.tenants[id]; ok || id == "" {
		return t, nil
	}
	t, err := h.tx.Tenants().Get(ctx, id)
	if err != nil {
		return fleet.Tenant{}, fmt.Errorf("reading tenant %s: %w", id, err)
	}
	h.tenants[id] = t
	return t, nil
}

func (h *holds) environment(ctx context.Context, d fleet.Deployment) (fleet.Environment, error) {
	if env, ok := h.environments[d.EnvironmentID]; ok {
		return env, nil
	}
	env, err := h.tx.Environments().Get(ctx, d.EnvironmentTenant, d.EnvironmentID)
	if err != nil {
		return fleet.Environment{}, fmt.Errorf("reading environment %q: %w", d.Environment, err)
	}
	h.environments[d.EnvironmentID] = env
	return env, nil
}

// holding is a suspension in words; "" when it does not hold.
func holding(what string, s fleet.Suspension) string {
	if !s.Active() {
		return ""
	}
	return fmt.Sprintf("%s is suspended by %s since %s%s", what, s.By, s.At.UTC().Format(time.RFC3339), wording.Suffix(s.Reason))
}
