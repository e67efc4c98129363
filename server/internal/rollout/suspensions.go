package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// Suspensions finds out why nothing new may be sent, for many deployments in one transaction.
type Suspensions struct {
	tx           store.Tx
	settings     *fleet.Settings
	tenants      map[fleet.TenantID]fleet.Tenant
	environments map[fleet.EnvironmentID]fleet.Environment
}

// NewSuspensions makes the suspensions of one transaction.
func NewSuspensions(tx store.Tx) *Suspensions {
	return &Suspensions{tx: tx, tenants: map[fleet.TenantID]fleet.Tenant{}, environments: map[fleet.EnvironmentID]fleet.Environment{}}
}

// SuspendedBy says why nothing new may be sent to the targets of d: its suspension, or that of its
// environment, of a tenant or of the fleet. It is "" when nothing holds it.
func SuspendedBy(ctx context.Context, tx store.Tx, d fleet.Deployment) (string, error) {
	return NewSuspensions(tx).Of(ctx, d)
}

// Of says which suspension keeps anything new from the targets of d; "" when none does.
func (h *Suspensions) Of(ctx context.Context, d fleet.Deployment) (string, error) {
	if around, err := h.Around(ctx, d); around != "" || err != nil {
		return around, err
	}
	return DescribeSuspension("it", d.Suspension), nil
}

// Around is of without the suspension of d itself.
func (h *Suspensions) Around(ctx context.Context, d fleet.Deployment) (string, error) {
	if h.settings == nil {
		settings, err := h.tx.Settings().Get(ctx)
		if err != nil {
			return "", err
		}
		h.settings = &settings
	}
	if h.settings.Suspension.Active() {
		return DescribeSuspension("the whole fleet", h.settings.Suspension), nil
	}
	for _, id := range []fleet.TenantID{d.TenantID, d.EnvironmentTenant} {
		t, err := h.tenant(ctx, id)
		if err != nil {
			return "", err
		}
		if t.Suspension.Active() {
			return DescribeSuspension(fmt.Sprintf("tenant %q", t.Name), t.Suspension), nil
		}
	}
	env, err := h.environment(ctx, d)
	if err != nil {
		return "", err
	}
	return DescribeSuspension(fmt.Sprintf("environment %q", d.Environment), env.Suspension), nil
}

func (h *Suspensions) tenant(ctx context.Context, id fleet.TenantID) (fleet.Tenant, error) {
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

func (h *Suspensions) environment(ctx context.Context, d fleet.Deployment) (fleet.Environment, error) {
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

// DescribeSuspension is a suspension in words; "" when it does not hold.
func DescribeSuspension(what string, s fleet.Suspension) string {
	if !s.Active() {
		return ""
	}
	return fmt.Sprintf("%s is suspended by %s since %s%s", what, s.By, s.At.UTC().Format(time.RFC3339), wording.Suffix(s.Reason))
}
