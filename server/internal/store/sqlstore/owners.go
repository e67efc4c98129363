package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type owners struct{ tx *Tx }

const ownerColumns = `SELECT tenant_id, resource_kind, resource_id, kind, namespace, name, uid, generation, created, missing_since FROM owners `

// Put writes the id of the resource a second time, into the column of its kind, which refers to the table of that kind:
// so the row is deleted with the resource.
func (s owners) Put(ctx context.Context, o fleet.Owned) error {
	id := func(kind fleet.OwnedKind) any {
		if o.Kind != kind {
			return nil
		}
		return o.ID
	}
	_, err := s.tx.of(o.TenantID).exec(ctx, `INSERT INTO owners (tenant_id, resource_kind, resource_id, kind, namespace, name, uid,
			generation, created, missing_since, agent_id, environment_id, credential_id, deployment_id, run_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
		ON CONFLICT (tenant_id, resource_kind, resource_id) DO UPDATE SET kind = excluded.kind, namespace = excluded.namespace,
			name = excluded.name, uid = excluded.uid, generation = excluded.generation, created = excluded.created,
			missing_since = excluded.missing_since`,
		o.TenantID, o.Kind, o.ID, o.Owner.Kind, o.Owner.Namespace, o.Owner.Name, o.Owner.UID, o.Owner.Generation, o.Owner.Created, micros(o.MissingSince),
		id(fleet.OwnedAgent), id(fleet.OwnedEnvironment), id(fleet.OwnedCredential), id(fleet.OwnedDeployment), id(fleet.OwnedRun))
	if err != nil {
		return fmt.Errorf("recording %s as the owner of %s %q: %w", o.Owner, o.Kind, o.ID, err)
	}
	return s.record(o.TenantID, o.Kind, o.ID)
}

func (s owners) Remove(ctx context.Context, tenant fleet.TenantID, kind fleet.OwnedKind, id string) error {
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM owners WHERE tenant_id = $1 AND resource_kind = $2 AND resource_id = $3`, tenant, kind, id)
	if err != nil {
		return fmt.Errorf("deleting the owner of %s %q: %w", kind, id, err)
	}
	if n == 0 {
		return nil
	}
	return s.record(tenant, kind, id)
}

func (s owners) record(tenant fleet.TenantID, kind fleet.OwnedKind, id string) error {
	if kind != fleet.OwnedDeployment {
		return nil
	}
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeDeployment, ID: id, DeploymentID: fleet.DeploymentID(id)})
}

func (s owners) Of(ctx context.Context, tenant fleet.TenantID, kind fleet.OwnedKind, ids []string) ([]fleet.Owned, error) {
	out, err := s.list(ctx, s.tx.of(tenant), ownerColumns+`WHERE tenant_id = $1 AND resource_kind = $2
		AND resource_id IN (SELECT value FROM json_each($3)) ORDER BY resource_id`, tenant, kind, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading the owners of %d resources: %w", len(ids), err)
	}
	return out, nil
}

func (s owners) ByOwner(ctx context.Context, tenant fleet.TenantID, kind, name string) ([]fleet.Owned, error) {
	out, err := s.list(ctx, s.tx.of(tenant), ownerColumns+`WHERE tenant_id = $1 AND kind = $2 AND name = $3
		ORDER BY resource_kind, resource_id`, tenant, kind, name)
	if err != nil {
		return nil, fmt.Errorf("listing the resources of %s %q: %w", kind, name, err)
	}
	return out, nil
}

func (s owners) All(ctx context.Context, tenant fleet.TenantID) ([]fleet.Owned, error) {
	out, err := s.list(ctx, s.tx.of(tenant), ownerColumns+`WHERE tenant_id = $1 ORDER BY resource_kind, resource_id`, tenant)
	if err != nil {
		return nil, fmt.Errorf("listing the owners of tenant %q: %w", tenant, err)
	}
	return out, nil
}

func (s owners) ListAllTenants(ctx context.Context, kind fleet.OwnedKind) ([]fleet.Owned, error) {
	out, err := s.list(ctx, s.tx.everywhere(), ownerColumns+`WHERE resource_kind = $1 ORDER BY tenant_id, resource_id`, kind)
	if err != nil {
		return nil, fmt.Errorf("listing the owners of kind %q: %w", kind, err)
	}
	return out, nil
}

func (s owners) NamespaceAllTenants(ctx context.Context, uid string) (fleet.Owned, error) {
	out, err := only(s.list(ctx, s.tx.everywhere(), ownerColumns+`WHERE resource_kind = 'tenant' AND uid = $1`, uid))
	if err != nil {
		return fleet.Owned{}, fmt.Errorf("reading the tenant of namespace %q: %w", uid, err)
	}
	return out, nil
}

func (s owners) list(ctx context.Context, db bound, query string, args ...any) ([]fleet.Owned, error) {
	var out []fleet.Owned
	err := db.each(ctx, func(row Row) error {
		var o fleet.Owned
		err := row.Scan(&o.TenantID, &o.Kind, &o.ID, &o.Owner.Kind, &o.Owner.Namespace, &o.Owner.Name, &o.Owner.UID, &o.Owner.Generation, &o.Owner.Created,
			timeInto(&o.MissingSince))
		out = append(out, o)
		return err
	}, query, args...)
	return out, err
}
