package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// objectKey is what an object is: its reference without the version.
type objectKey struct{ group, kind, namespace, name string }

func keyOf(r fleet.ObjectRef) objectKey { return objectKey{r.Group, r.Kind, r.Namespace, r.Name} }

func (s targets) SetObserved(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, r store.Report) error {
	if !s.writable {
		return store.ErrReadOnly
	}
	if err := s.setObserved(ctx, tenant, agent, r); err != nil {
		return fmt.Errorf("recording a report on target %q: %w", r.Target, err)
	}
	return nil
}

func (s targets) setObserved(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID, r store.Report) error {
	var old fleet.Observed
	var deployment fleet.DeploymentID
	err := s.get(ctx, []any{&deployment, &old.Epoch, &old.Generation, &old.Digest, &old.Sync, &old.Health,
		timeInto(&old.AsOf), &old.Message},
		`SELECT deployment_id, observed_epoch, observed_generation, observed_digest, observed_sync, observed_health,
			observed_as_of, observed_message
		FROM targets WHERE tenant_id = $1 AND id = $2 AND agent_id = $3`, string(tenant), string(r.Target), string(agent))
	if err != nil {
		return err
	}
	if r.Observed.Compare(old.Version) < 0 {
		return nil
	}
	touched, err := s.setObjects(ctx, tenant, r)
	if err != nil {
		return err
	}
	if !touched && sameObserved(old, r.Observed) {
		return nil
	}
	o := r.Observed
	_, err = s.exec(ctx, `UPDATE targets SET observed_epoch = $3, observed_generation = $4, observed_digest = $5,
			observed_sync = $6, observed_health = $7, observed_as_of = $8, observed_message = $9
		WHERE tenant_id = $1 AND id = $2`, string(tenant), string(r.Target), o.Epoch, o.Generation, o.Digest,
		string(o.Sync), string(o.Health), micros(o.AsOf), o.Message)
	if err != nil {
		return err
	}
	return s.recordTarget(ctx, store.ChangeStatus, tenant, r.Target, agent, deployment)
}

// sameObserved reports whether b tells nothing new but the time. The first report always does.
func sameObserved(a, b fleet.Observed) bool {
	if a.AsOf.IsZero() && !b.AsOf.IsZero() {
		return false
	}
	a.AsOf = b.AsOf
	return a == b
}

// setObjects writes what the report says of objects and reports whether anything was different.
func (s targets) setObjects(ctx context.Context, tenant fleet.TenantID, r store.Report) (touched bool, err error) {
	put, gone := r.Objects, r.Gone
	if r.Full {
		stored, err := s.Objects(ctx, tenant, r.Target)
		if err != nil {
			return false, err
		}
		put, gone = diffObjects(stored, r.Objects)
	}
	for _, ref := range gone {
		n, err := s.exec(ctx, `DELETE FROM target_objects WHERE tenant_id = $1 AND target_id = $2
			AND api_group = $3 AND kind = $4 AND namespace = $5 AND name = $6`,
			string(tenant), string(r.Target), ref.Group, ref.Kind, ref.Namespace, ref.Name)
		if err != nil {
			return false, fmt.Errorf("object %s: %w", ref, err)
		}
		touched = touched || n > 0
	}
	for _, o := range put {
		n, err := s.putObject(ctx, tenant, r.Target, o)
		if err != nil {
			return false, fmt.Errorf("object %s: %w", o.ObjectRef, err)
		}
		touched = touched || n > 0
	}
	return touched, nil
}

// putObject leaves a row alone that says the same already.
func (s targets) putObject(ctx context.Context, tenant fleet.TenantID, target fleet.TargetID, o fleet.ObjectStatus) (int64, error) {
	return s.exec(ctx, `INSERT INTO target_objects AS o
			(tenant_id, target_id, api_group, kind, namespace, name, api_version, sync, health, message)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (tenant_id, target_id, api_group, kind, namespace, name) DO UPDATE SET
			api_version = excluded.api_version, sync = excluded.sync, health = excluded.health, message = excluded.message
		WHERE o.api_version <> excluded.api_version OR o.sync <> excluded.sync
			OR o.health <> excluded.health OR o.message <> excluded.message`,
		string(tenant), string(target), o.Group, o.Kind, o.Namespace, o.Name, o.Version,
		string(o.Sync), string(o.Health), o.Message)
}

// diffObjects says what has to be written and deleted for stored to become want.
func diffObjects(stored, want []fleet.ObjectStatus) (put []fleet.ObjectStatus, gone []fleet.ObjectRef) {
	left := make(map[objectKey]fleet.ObjectStatus, len(stored))
	for _, o := range stored {
		left[keyOf(o.ObjectRef)] = o
	}
	for _, o := range want {
		key := keyOf(o.ObjectRef)
		if old, ok := left[key]; !ok || old != o {
			put = append(put, o)
		}
		delete(left, key)
	}
	for _, o := range left {
		gone = append(gone, o.ObjectRef)
	}
	return put, gone
}

func (s targets) Objects(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) ([]fleet.ObjectStatus, error) {
	var out []fleet.ObjectStatus
	err := s.each(ctx, func(rows *sql.Rows) error {
		var o fleet.ObjectStatus
		err := rows.Scan(&o.Group, &o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Sync, &o.Health, &o.Message)
		out = append(out, o)
		return err
	}, `SELECT api_group, kind, namespace, name, api_version, sync, health, message FROM target_objects
		WHERE tenant_id = $1 AND target_id = $2 ORDER BY api_group, kind, namespace, name`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing objects of target %q: %w", id, err)
	}
	return out, nil
}
