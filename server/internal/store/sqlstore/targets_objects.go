package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// objectKey is the identity of an object: its reference without the version.
type objectKey struct{ group, kind, namespace, name string }

func keyOf(r fleet.ObjectRef) objectKey { return objectKey{r.Group, r.Kind, r.Namespace, r.Name} }

func (s targets) Objects(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) ([]fleet.ObjectStatus, error) {
	var out []fleet.ObjectStatus
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var o fleet.ObjectStatus
		err := row.Scan(&o.Group, &o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Sync, &o.Health, &o.Message, &o.Reason)
		out = append(out, o)
		return err
	}, `SELECT api_group, kind, namespace, name, api_version, sync, health, message, reason FROM target_objects
		WHERE tenant_id = $1 AND target_id = $2 ORDER BY api_group, kind, namespace, name`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing objects of target %q: %w", id, err)
	}
	return out, nil
}

// setObjects writes the reported objects and notes which targets changed. Most reports are about existing
// objects, so updates come first: only the remaining ones may exceed the limit and are counted.
func (s targets) setObjects(ctx context.Context, tenant fleet.TenantID, news []*observation) error {
	stored, err := s.storedObjects(ctx, tenant, wholeLists(news))
	if err != nil {
		return err
	}
	var gone, known, added []objectRow
	for _, x := range news {
		p := plan(x.Report, stored[x.Target])
		for _, r := range p.gone {
			gone = append(gone, objectRow{x, fleet.ObjectStatus{ObjectRef: r}})
		}
		known, added = rowsOf(known, x, p.known), rowsOf(added, x, p.added)
	}
	if _, err := s.writeObjects(ctx, tenant, removeObject, gone, keyValues); err != nil {
		return fmt.Errorf("removing %d objects: %w", len(gone), err)
	}
	rest, err := s.writeObjects(ctx, tenant, replaceObject, known, allValues)
	if err != nil {
		return fmt.Errorf("replacing %d objects: %w", len(known), err)
	}
	if rest, err = s.fitting(ctx, tenant, rest); err != nil {
		return err
	}
	added = append(added, rest...)
	if _, err := s.writeObjects(ctx, tenant, addObject, added, allValues); err != nil {
		return fmt.Errorf("adding %d objects: %w", len(added), err)
	}
	return nil
}

func wholeLists(news []*observation) []fleet.TargetID {
	var out []fleet.TargetID
	for _, x := range news {
		if x.Full {
			out = append(out, x.Target)
		}
	}
	return out
}

// storedObjects reads the stored objects of targets.
func (s targets) storedObjects(ctx context.Context, tenant fleet.TenantID, ids []fleet.TargetID) (map[fleet.TargetID][]fleet.ObjectStatus, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out := make(map[fleet.TargetID][]fleet.ObjectStatus, len(ids))
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.TargetID
		var o fleet.ObjectStatus
		err := row.Scan(&id, &o.Group, &o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Sync, &o.Health, &o.Message, &o.Reason)
		out[id] = append(out[id], o)
		return err
	}, `SELECT target_id, api_group, kind, namespace, name, api_version, sync, health, message, reason FROM target_objects
		WHERE tenant_id = $1 AND target_id IN (SELECT value FROM json_each($2))`, string(tenant), idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading objects of %d targets: %w", len(ids), err)
	}
	return out, nil
}

// fitting returns those of the new rows that fit: at most [store.MaxObjects] per target. For a target that is
// not nearly full, it may also return stored ones.
func (s targets) fitting(ctx context.Context, tenant fleet.TenantID, rows []objectRow) ([]objectRow, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	full, err := s.nearlyFull(ctx, tenant, rows)
	if err != nil || len(full) == 0 {
		return rows, err
	}
	stored, err := s.storedObjects(ctx, tenant, full)
	if err != nil {
		return nil, err
	}
	known := make(map[fleet.TargetID]map[objectKey]bool, len(full))
	for _, id := range full {
		known[id] = make(map[objectKey]bool, len(stored[id]))
		for _, o := range stored[id] {
			known[id][keyOf(o.ObjectRef)] = true
		}
	}
	var out []objectRow
	for _, row := range rows {
		there, counted := known[row.of.Target]
		key := keyOf(row.object.ObjectRef)
		switch {
		case !counted:
			out = append(out, row)
		case !there[key] && len(there) < store.MaxObjects:
			there[key] = true
			out = append(out, row)
		}
	}
	return out, nil
}

// nearlyFull returns the targets that may not have enough space for all rows.
func (s targets) nearlyFull(ctx context.Context, tenant fleet.TenantID, rows []objectRow) (full []fleet.TargetID, err error) {
	adds, most := map[fleet.TargetID]int{}, 0
	var ids []fleet.TargetID
	for _, row := range rows {
		id := row.of.Target
		if adds[id] == 0 {
			ids = append(ids, id)
		}
		adds[id]++
		most = max(most, adds[id])
	}
	err = s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.TargetID
		err := row.Scan(&id)
		full = append(full, id)
		return err
	}, `SELECT target_id FROM target_objects
		WHERE tenant_id = $1 AND target_id IN (SELECT value FROM json_each($2)) GROUP BY target_id HAVING COUNT(*) > $3`,
		string(tenant), idList(ids), int64(store.MaxObjects-most))
	if err != nil {
		return nil, fmt.Errorf("counting objects of %d targets: %w", len(ids), err)
	}
	return full, nil
}
