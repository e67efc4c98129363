package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// What users read of a target t of an agent a, or of none.
const (
	fromTargets = ` FROM targets t LEFT JOIN agents a ON a.id = t.agent_id `

	// readSync is the sync state of a target whose deployment is not held.
	readSync = `CASE WHEN t.detached_at IS NOT NULL THEN 'Detached'
		WHEN t.desired_tombstone THEN t.read_sync
		WHEN t.variant_error <> '' OR t.kind_error <> '' THEN 'Failed'
		WHEN t.variant <> '' AND EXISTS (SELECT 1 FROM deployment_variants v WHERE v.tenant_id = t.tenant_id
			AND v.deployment_id = t.deployment_id AND v.name = t.variant AND v.error <> '') THEN 'Failed'
		ELSE t.read_sync END`

	// heldSync is the sync state of a target whose deployment is held.
	heldSync = `CASE WHEN t.waiting AND ` + readSync + ` IN ('Synced', 'Pending') THEN 'OutOfSync' ELSE ` + readSync + ` END`

	// readReason is the reason of a target that nothing holds, and heldReason that of one of a deployment that is held.
	readReason = `CASE WHEN t.detached_at IS NOT NULL THEN 'Detached'
		WHEN NOT t.desired_tombstone AND t.variant_error <> '' THEN 'LabelMissing'
		WHEN NOT t.desired_tombstone AND t.kind_error <> '' THEN 'KindNotAllowed'
		WHEN NOT t.desired_tombstone AND ` + variantReason + ` IS NOT NULL THEN ` + variantReason + `
		ELSE ` + reportedReason + ` END`
	heldReason = `CASE WHEN t.waiting AND ` + readSync + ` IN ('Synced', 'Pending') THEN 'NewRevisionWaits' ELSE ` + readReason + ` END`

	// variantReason is why the variant of the target cannot be rendered; NULL when it can.
	variantReason = `(SELECT v.error_reason FROM deployment_variants v WHERE v.tenant_id = t.tenant_id
		AND v.deployment_id = t.deployment_id AND v.name = t.variant AND t.variant <> '' AND v.error <> '')`

	// reportedReason is the reason that the agent reported, unless the agent is away.
	reportedReason = `CASE WHEN ` + lastSeen + ` IS NOT NULL THEN 'AgentDisconnected'
		WHEN t.observed_sync = '' AND t.agent_id IS NOT NULL AND NOT COALESCE(a.connected, FALSE) THEN 'AgentNeverConnected'
		ELSE t.read_reason END`

	// lastSeen is fleet.Target.LostSince but for which of the two is later: NULL while the agent of a
	// target is connected, or when it never was and nothing was ever reported.
	lastSeen = `CASE WHEN a.connected THEN NULL
		ELSE COALESCE((SELECT MAX(CASE WHEN c.standby THEN c.connected_at ELSE c.last_seen_at END) FROM connections c WHERE c.tenant_id = a.tenant_id AND c.agent_id = a.id), t.observed_as_of) END`
)

// reading binds to the targets of a tenant and the presence of their agents, which may belong to another
// tenant.
func (s targets) reading(tenant fleet.TenantID) bound {
	return s.tx.everywhere().about(Subject(tenant))
}

// PageOfDeployment compares (name, id) as a pair: an agent may have the name of a deleted one.
func (s targets) PageOfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, f store.TargetFilter) ([]fleet.Target, error) {
	if f.AfterID == "" && f.After != "" {
		f.AfterID = "~" // sorts after every id
	}
	var a args
	where := `WHERE t.tenant_id = ` + a.add(tenant) + ` AND t.deployment_id = ` + a.add(id) +
		` AND (t.agent_name, t.id) > (` + a.add(f.After) + `, ` + a.add(f.AfterID) + `)` + targetConditions(&a, f)
	db, from := s.tx.of(tenant), ``
	if f.Health != "" || f.Stale != nil || f.Reason != "" {
		db, from = s.reading(tenant), `LEFT JOIN agents a ON a.id = t.agent_id `
	}
	out, err := s.list(ctx, db, targetColumns+from+where+` ORDER BY t.agent_name, t.id LIMIT `+a.add(limitOf(f.Limit)), a...)
	if err != nil {
		return nil, fmt.Errorf("listing targets of deployment %q: %w", id, err)
	}
	return out, nil
}

func targetConditions(a *args, f store.TargetFilter) string {
	var out strings.Builder
	if f.Agent != "" {
		out.WriteString(` AND t.agent_name = ` + a.add(f.Agent))
	}
	if f.Sync != "" {
		word := readSync
		if f.Held {
			word = heldSync
		}
		out.WriteString(` AND ` + word + ` = ` + a.add(f.Sync))
	}
	if f.Reason != "" {
		word := readReason
		if f.Held {
			word = heldReason
		}
		out.WriteString(` AND ` + word + ` = ` + a.add(f.Reason))
	}
	if f.Stale != nil {
		out.WriteString(staleCondition(*f.Stale))
	}
	switch f.Health {
	case "":
	case fleet.HealthStale:
		out.WriteString(staleCondition(true))
	default:
		out.WriteString(` AND t.read_health = ` + a.add(f.Health) + staleCondition(false))
	}
	return out.String()
}

func staleCondition(stale bool) string {
	if stale {
		return ` AND ` + lastSeen + ` IS NOT NULL`
	}
	return ` AND ` + lastSeen + ` IS NULL`
}

func (s targets) Tally(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]store.TargetTally, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var out []store.TargetTally
	err := s.reading(tenant).each(ctx, func(row Row) error {
		var t store.TargetTally
		var first string
		err := row.Scan(&t.Deployment, &t.Sync, &t.Health, &t.Waiting, &t.Sent, &t.Stale, &t.Never, &t.Count, &first, timeInto(&t.StaleSince),
			timeInto(&t.SyncSince[0]), timeInto(&t.SyncSince[1]), timeInto(&t.HealthSince[0]), timeInto(&t.HealthSince[1]))
		agent, id, _ := strings.Cut(first, " ")
		t.FirstAgent, t.First = agent, fleet.TargetID(id)
		out = append(out, t)
		return err
		// MATERIALIZED: each expression is evaluated once per target, and not at each reference.
	}, `WITH words AS MATERIALIZED (SELECT t.deployment_id, t.id, t.agent_name, `+readSync+` AS sync, t.read_health, t.waiting,
				CASE WHEN t.waiting THEN t.desired_commit ELSE '' END AS sent, t.observed_as_of,
				CASE WHEN `+readSync+` = t.observed_sync THEN t.observed_sync_at END AS observed_sync_at, t.observed_health_at, `+lastSeen+` AS lost, a.id IS NOT NULL AND NOT a.connected AS away
			`+fromTargets+`WHERE t.tenant_id = $1 AND t.deployment_id IN (SELECT value FROM json_each($2)))
		SELECT deployment_id, sync, read_health, waiting, sent, lost IS NOT NULL, away AND lost IS NULL, COUNT(*), MIN(agent_name || ' ' || id),
			MIN(CASE WHEN observed_as_of > lost THEN observed_as_of ELSE lost END),
			MIN(observed_sync_at), MAX(observed_sync_at), MIN(observed_health_at), MAX(observed_health_at)
		FROM words GROUP BY deployment_id, sync, read_health, waiting, sent, lost IS NOT NULL, away AND lost IS NULL`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("counting targets of %d deployments: %w", len(ids), err)
	}
	return out, nil
}

func (s targets) Variants(ctx context.Context, tenant fleet.TenantID, ids []fleet.TargetID) (map[fleet.TargetID]fleet.Variant, error) {
	out := map[fleet.TargetID]fleet.Variant{}
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var id fleet.TargetID
		var v fleet.Variant
		err := row.Scan(&id, &v.Name, &v.Rendered.Commit, &v.Rendered.Key, &v.Rendered.Digest, timeInto(&v.Rendered.At), &v.Error, &v.Reason)
		out[id] = v
		return err
	}, `SELECT t.id, v.name, v.rendered_commit, v.rendered_key, COALESCE(v.rendered_digest, ''), v.rendered_at, v.error, v.error_reason
		FROM targets t JOIN deployment_variants v ON v.tenant_id = t.tenant_id AND v.deployment_id = t.deployment_id AND v.name = t.variant
		WHERE t.tenant_id = $1 AND t.id IN (SELECT value FROM json_each($2))`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading the variants of %d targets: %w", len(ids), err)
	}
	return out, nil
}
