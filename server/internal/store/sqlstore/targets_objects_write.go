package sqlstore

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// objectRow is an object to write, with its report.
type objectRow struct {
	of     *observation
	object fleet.ObjectStatus
}

func rowsOf(to []objectRow, x *observation, objects []fleet.ObjectStatus) []objectRow {
	for _, o := range objects {
		to = append(to, objectRow{x, o})
	}
	return to
}

func keyValues(r objectRow) []any {
	o := &r.object
	return []any{string(r.of.Target), o.Group, o.Kind, o.Namespace, o.Name}
}

func allValues(r objectRow) []any {
	o := &r.object
	return []any{string(r.of.Target), o.Group, o.Kind, o.Namespace, o.Name, o.Version, string(o.Sync), string(o.Health), o.Message, string(o.Reason)}
}

// writeObjects runs a statement for rows, notes which targets it changed, and returns the other rows.
func (s targets) writeObjects(
	ctx context.Context, tenant fleet.TenantID, b Bulk, rows []objectRow, values func(objectRow) []any,
) (rest []objectRow, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	args, wrote := make([][]any, len(rows)), make([]bool, len(rows))
	for i, row := range rows {
		args[i] = values(row)
	}
	err = s.tx.of(tenant).bulk(ctx, b, args, func(i int) { wrote[i], rows[i].of.touched = true, true })
	for i, row := range rows {
		if !wrote[i] {
			rest = append(rest, row)
		}
	}
	return rest, err
}

// The statements on objects. replaceObject does not write an equal row, and addObject does not write an
// existing one: the writer of the objects of a target holds the lock of its row.
var (
	removeObject = Bulk{
		One: `DELETE FROM target_objects WHERE tenant_id = $1 AND target_id = $2
			AND api_group = $3 AND kind = $4 AND namespace = $5 AND name = $6`,
		Many: `DELETE FROM target_objects AS o
			USING unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) WITH ORDINALITY
				AS r (target_id, api_group, kind, namespace, name, position)
			WHERE ` + sameObject + ` RETURNING r.position`,
	}
	replaceObject = Bulk{
		One: `UPDATE target_objects SET api_version = $7, sync = $8, health = $9, message = $10, reason = $11
			WHERE tenant_id = $1 AND target_id = $2 AND api_group = $3 AND kind = $4 AND namespace = $5 AND name = $6
				AND (api_version <> $7 OR sync <> $8 OR health <> $9 OR message <> $10 OR reason <> $11)`,
		Many: `UPDATE target_objects AS o SET api_version = r.api_version, sync = r.sync, health = r.health, message = r.message, reason = r.reason
			FROM ` + givenObjects + `
			WHERE ` + sameObject + ` AND (o.api_version <> r.api_version OR o.sync <> r.sync OR o.health <> r.health OR o.message <> r.message OR o.reason <> r.reason)
			RETURNING r.position`,
	}
	addObject = Bulk{
		One: `INSERT INTO target_objects (` + objectColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`,
		Many: `WITH r AS (SELECT * FROM ` + givenObjects + `), o AS (
				INSERT INTO target_objects (` + objectColumns + `)
				SELECT $1, r.target_id, r.api_group, r.kind, r.namespace, r.name, r.api_version, r.sync, r.health, r.message, r.reason FROM r
				ON CONFLICT DO NOTHING RETURNING *
			)
			SELECT r.position FROM r JOIN o ON ` + sameObject,
	}
)

const (
	objectColumns = `tenant_id, target_id, api_group, kind, namespace, name, api_version, sync, health, message, reason`
	givenObjects  = `unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[])
				WITH ORDINALITY AS r (target_id, api_group, kind, namespace, name, api_version, sync, health, message, reason, position)`
	sameObject = `o.tenant_id = $1 AND o.target_id = r.target_id AND o.api_group = r.api_group AND o.kind = r.kind
				AND o.namespace = r.namespace AND o.name = r.name`
)

// objectPlan is the result of a report: known objects may exist, and added ones do not.
type objectPlan struct {
	known, added []fleet.ObjectStatus
	gone         []fleet.ObjectRef
}

// plan evaluates a report; before has the stored objects if the report is a complete list.
func plan(r store.Report, before []fleet.ObjectStatus) objectPlan {
	objects := lastOfEach(r.Objects[:min(len(r.Objects), store.MaxObjects)])
	if r.Full {
		return diffObjects(before, objects)
	}
	return objectPlan{known: objects, gone: r.Gone}
}

// lastOfEach removes duplicates: one statement cannot write a row twice.
func lastOfEach(objects []fleet.ObjectStatus) []fleet.ObjectStatus {
	if len(objects) < 2 {
		return objects
	}
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

// diffObjects returns the objects to write and to delete so that stored becomes want.
func diffObjects(stored, want []fleet.ObjectStatus) (p objectPlan) {
	left := make(map[objectKey]fleet.ObjectStatus, len(stored))
	for _, o := range stored {
		left[keyOf(o.ObjectRef)] = o
	}
	for _, o := range want {
		key := keyOf(o.ObjectRef)
		switch old, ok := left[key]; {
		case !ok:
			p.added = append(p.added, o)
		case old != o:
			p.known = append(p.known, o)
		}
		delete(left, key)
	}
	for _, o := range left {
		p.gone = append(p.gone, o.ObjectRef)
	}
	return p
}
