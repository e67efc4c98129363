package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// objectKey is what an object is: its reference without the version.
type objectKey struct{ group, kind, namespace, name string }

func keyOf(r fleet.ObjectRef) objectKey { return objectKey{r.Group, r.Kind, r.Namespace, r.Name} }

func (s targets) Objects(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) ([]fleet.ObjectStatus, error) {
	var out []fleet.ObjectStatus
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var o fleet.ObjectStatus
		err := row.Scan(&o.Group, &o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Sync, &o.Health, &o.Message)
		out = append(out, o)
		return err
	}, `SELECT api_group, kind, namespace, name, api_version, sync, health, message FROM target_objects
		WHERE tenant_id = $1 AND target_id = $2 ORDER BY api_group, kind, namespace, name`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing objects of target %q: %w", id, err)
	}
	return out, nil
}

// setObjects writes what reports say of objects and notes where anything was different.
func (s targets) setObjects(ctx context.Context, tenant fleet.TenantID, news []*observation) error {
	stored, err := s.storedObjects(ctx, tenant, news)
	if err != nil {
		return err
	}
	at := make(map[string]*observation, len(news))
	var gone, put [][]any
	for _, x := range news {
		id := string(x.Target)
		at[id] = x
		p, g := plan(x.Report, stored[x.Target])
		for _, r := range g {
			gone = append(gone, []any{id, r.Group, r.Kind, r.Namespace, r.Name})
		}
		for _, o := range p {
			put = append(put, []any{id, o.Group, o.Kind, o.Namespace, o.Name, o.Version, string(o.Sync), string(o.Health), o.Message})
		}
	}
	touched := func(id string) { at[id].touched = true }
	if err := s.tx.of(tenant).bulk(ctx, removeObject, gone, touched); err != nil {
		return fmt.Errorf("removing %d objects: %w", len(gone), err)
	}
	if err := s.tx.of(tenant).bulk(ctx, putObject, put, touched); err != nil {
		return fmt.Errorf("writing %d objects: %w", len(put), err)
	}
	return nil
}

var removeObject = Bulk{
	One: `DELETE FROM target_objects WHERE tenant_id = $1 AND target_id = $2
		AND api_group = $3 AND kind = $4 AND namespace = $5 AND name = $6`,
	Many: `DELETE FROM target_objects AS o
		USING unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) AS r (target_id, api_group, kind, namespace, name)
		WHERE o.tenant_id = $1 AND o.target_id = r.target_id AND o.api_group = r.api_group AND o.kind = r.kind
			AND o.namespace = r.namespace AND o.name = r.name
		RETURNING o.target_id`,
}

// putObject leaves a row alone that says the same already. Where many are written at once those that
// are there are found by a join: an insertion that finds a conflict locks the row before it writes it,
// which costs twice as much.
var putObject = Bulk{
	One: `INSERT INTO target_objects AS o (` + objectColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ` + replaceObject,
	Many: `WITH r AS (
			SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])
				AS r (target_id, api_group, kind, namespace, name, api_version, sync, health, message)
		), replaced AS (
			UPDATE target_objects AS o SET api_version = r.api_version, sync = r.sync, health = r.health, message = r.message
			FROM r WHERE ` + sameObject + ` AND (o.api_version <> r.api_version OR o.sync <> r.sync OR o.health <> r.health OR o.message <> r.message)
			RETURNING o.target_id
		), added AS (
			INSERT INTO target_objects AS o (` + objectColumns + `)
			SELECT $1, r.* FROM r WHERE NOT EXISTS (SELECT FROM target_objects AS o WHERE ` + sameObject + `)
			` + replaceObject + ` RETURNING o.target_id
		)
		SELECT target_id FROM replaced UNION ALL SELECT target_id FROM added`,
}

const (
	sameObject = `o.tenant_id = $1 AND o.target_id = r.target_id AND o.api_group = r.api_group AND o.kind = r.kind
			AND o.namespace = r.namespace AND o.name = r.name`
	objectColumns = `tenant_id, target_id, api_group, kind, namespace, name, api_version, sync, health, message`
	replaceObject = `ON CONFLICT (tenant_id, target_id, api_group, kind, namespace, name) DO UPDATE SET
			api_version = excluded.api_version, sync = excluded.sync, health = excluded.health, message = excluded.message
		WHERE o.api_version <> excluded.api_version OR o.sync <> excluded.sync
			OR o.health <> excluded.health OR o.message <> excluded.message`
)

// storedObjects reads what is stored of targets whose reports are whole lists, or of changes that
// might be too many; others have nil.
func (s targets) storedObjects(ctx context.Context, tenant fleet.TenantID, news []*observation) (map[fleet.TargetID][]fleet.ObjectStatus, error) {
	var read, count []fleet.TargetID
	adds := map[fleet.TargetID]int{}
	for _, x := range news {
		switch {
		case x.Full:
			read = append(read, x.Target)
		case len(x.Objects) > 0:
			count = append(count, x.Target)
			adds[x.Target] = len(x.Objects)
		}
	}
	if len(count) > 0 {
		err := s.tx.of(tenant).each(ctx, func(row Row) error {
			var id fleet.TargetID
			var n int
			err := row.Scan(&id, &n)
			if n+adds[id] > store.MaxObjects {
				read = append(read, id)
			}
			return err
		}, `SELECT target_id, COUNT(*) FROM target_objects
			WHERE tenant_id = $1 AND target_id IN (SELECT value FROM json_each($2)) GROUP BY target_id`, string(tenant), idList(count))
		if err != nil {
			return nil, fmt.Errorf("counting objects of %d targets: %w", len(count), err)
		}
	}
	out := map[fleet.TargetID][]fleet.ObjectStatus{}
	if len(read) == 0 {
		return out, nil
	}
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.TargetID
		var o fleet.ObjectStatus
		err := row.Scan(&id, &o.Group, &o.Kind, &o.Namespace, &o.Name, &o.Version, &o.Sync, &o.Health, &o.Message)
		out[id] = append(out[id], o)
		return err
	}, `SELECT target_id, api_group, kind, namespace, name, api_version, sync, health, message FROM target_objects
		WHERE tenant_id = $1 AND target_id IN (SELECT value FROM json_each($2))`, string(tenant), idList(read))
	if err != nil {
		return nil, fmt.Errorf("reading objects of %d targets: %w", len(read), err)
	}
	return out, nil
}

// plan says which rows to write and which to delete, such that no more than [store.MaxObjects] are
// left. before is what is stored, where it matters.
func plan(r store.Report, before []fleet.ObjectStatus) (put []fleet.ObjectStatus, gone []fleet.ObjectRef) {
	if r.Full {
		put, gone = diffObjects(before, r.Objects[:min(len(r.Objects), store.MaxObjects)])
		return lastOfEach(put), gone
	}
	put = r.Objects[:min(len(r.Objects), store.MaxObjects)]
	if len(before)+len(r.Objects) > store.MaxObjects {
		put = room(before, r)
	}
	return lastOfEach(put), r.Gone
}

// lastOfEach leaves out objects that come again: one statement cannot write a row twice.
func lastOfEach(objects []fleet.ObjectStatus) []fleet.ObjectStatus {
	last := make(map[objectKey]int, len(objects))
	for i, o := range objects {
		last[keyOf(o.ObjectRef)] = i
	}
	if len(last) == len(objects) {
		return objects
	}
	out := make([]fleet.ObjectStatus, 0, len(last))
	for i, o := range objects {
		if last[keyOf(o.ObjectRef)] == i {
			out = append(out, o)
		}
	}
	return out
}

// room returns those objects of a report of changes that are known already or still fit.
func room(before []fleet.ObjectStatus, r store.Report) []fleet.ObjectStatus {
	known := make(map[objectKey]bool, len(before))
	for _, o := range before {
		known[keyOf(o.ObjectRef)] = true
	}
	for _, ref := range r.Gone {
		delete(known, keyOf(ref))
	}
	var out []fleet.ObjectStatus
	for _, o := range r.Objects {
		if key := keyOf(o.ObjectRef); known[key] || len(known) < store.MaxObjects {
			known[key] = true
			out = append(out, o)
		}
	}
	return out
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
