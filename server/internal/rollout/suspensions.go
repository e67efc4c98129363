package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// Suspensions determines why no new state may be sent, for many deployments in one transaction.
type Suspensions struct {
	tx           store.Tx
	settings     *fleet.Settings
	tenants      map[fleet.TenantID]fleet.Tenant
	environments map[fleet.EnvironmentID]fleet.Environment
}

// NewSuspensions returns the suspensions of one transaction.
func NewSuspensions(tx store.Tx) *Suspensions {
	return &Suspensions{tx: tx, tenants: map[fleet.TenantID]fleet.Tenant{}, environments: map[fleet.EnvironmentID]fleet.Environment{}}
}

// SuspendedBy returns why no new state may be sent to the targets of d: its suspension, or that of its
// environment, of a tenant, or of the fleet; zero if there is none.
func SuspendedBy(ctx context.Context, tx store.Tx, d fleet.Deployment) (fleet.Cause, error) {
	return NewSuspensions(tx).Of(ctx, d)
}

// Of returns the suspension that keeps new revisions from the targets of d; zero when there is none.
func (h *Suspensions) Of(ctx context.Context, d fleet.Deployment) (fleet.Cause, error) {
	if around, err := h.Around(ctx, d); !around.IsZero() || err != nil {
		return around, err
	}
	return SuspensionCause(fleet.ReasonSuspended, "it", d.Suspension), nil
}

// Around is Of without the suspension of d itself.
func (h *Suspensions) Around(ctx context.Context, d fleet.Deployment) (fleet.Cause, error) {
	if h.settings == nil {
		settings, err := h.tx.Settings().Get(ctx)
		if err != nil {
			return fleet.Cause{}, err
		}
		h.settings = &settings
	}
	if frozen := SuspensionCause(fleet.ReasonFleetFrozen, "the whole fleet", h.settings.Suspension); !frozen.IsZero() {
		return frozen, nil
	}
	for _, id := range []fleet.TenantID{d.TenantID, d.EnvironmentTenant} {
		t, err := h.tenant(ctx, id)
		if err != nil {
			return fleet.Cause{}, err
		}
		if suspended := SuspensionCause(fleet.ReasonTenantSuspended, fmt.Sprintf("tenant %q", t.Name), t.Suspension); !suspended.IsZero() {
			return suspended, nil
		}
	}
	env, err := h.environment(ctx, d)
	if err != nil {
		return fleet.Cause{}, err
	}
	return SuspensionCause(fleet.ReasonEnvironmentSuspended, fmt.Sprintf("environment %q", d.Environment), env.Suspension), nil
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

// SuspensionCause returns the cause of the suspension of a thing, such as `tenant "a"`; zero if it is not active.
func SuspensionCause(reason fleet.Reason, what string, s fleet.Suspension) fleet.Cause {
	if !s.Active() {
		return fleet.Cause{}
	}
	return fleet.Cause{Reason: reason, Message: fmt.Sprintf("%s is suspended by %s since %s%s", what, s.By, s.At.UTC().Format(time.RFC3339), wording.Suffix(s.Reason))}
}
