package store

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// EngineUpgrades stores upgrades of Argo CD with their instances. Writes record ChangeEngineUpgrade.
type EngineUpgrades interface {
	// Create fails with ErrExists if the name is in use.
	Create(ctx context.Context, u fleet.EngineUpgrade) error
	Get(ctx context.Context, tenant fleet.TenantID, id fleet.EngineUpgradeID) (fleet.EngineUpgrade, error)
	ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.EngineUpgrade, error)
	// List returns upgrades by name.
	List(ctx context.Context, tenant fleet.TenantID, page Page) ([]fleet.EngineUpgrade, error)
	// Open returns the unfinished upgrades of a tenant by name.
	Open(ctx context.Context, tenant fleet.TenantID) ([]fleet.EngineUpgrade, error)
	// OpenAllTenants returns every unfinished upgrade.
	OpenAllTenants(ctx context.Context) ([]fleet.EngineUpgrade, error)
	// Update writes the state of an upgrade and of its instances, and increases Step. It fails with ErrNotFound if Step is
	// not the stored one: another write came first.
	Update(ctx context.Context, u fleet.EngineUpgrade) error
	// Trim keeps the newest n finished upgrades of the tenant.
	Trim(ctx context.Context, tenant fleet.TenantID, n int) error
}
