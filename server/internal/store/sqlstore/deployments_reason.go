package sqlstore

import (
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// deploymentReasons are the conditions of reasons that a deployment has whatever its targets are.
var deploymentReasons = map[fleet.Reason]string{
	fleet.ReasonFleetFrozen:          `EXISTS (SELECT 1 FROM settings WHERE suspended_at IS NOT NULL` + perRow + `)`,
	fleet.ReasonDeleting:             `d.deleted_at IS NOT NULL`,
	fleet.ReasonNoAgents:             `NOT EXISTS (SELECT 1 FROM targets t WHERE t.tenant_id = d.tenant_id AND t.deployment_id = d.id` + perRow + `)`,
	fleet.ReasonSuspended:            `d.suspended_at IS NOT NULL`,
	fleet.ReasonManual:               `d.manual`,
	fleet.ReasonPinned:               `d.pin_revision <> 0 AND NOT d.manual`,
	fleet.ReasonRunTerminated:        `d.pin_terminated_run <> 0`,
	fleet.ReasonEnvironmentSuspended: `EXISTS (SELECT 1 FROM environments e WHERE e.id = d.environment_id AND e.suspended_at IS NOT NULL` + perRow + `)`,
	fleet.ReasonTenantSuspended:      `EXISTS (SELECT 1 FROM tenants x WHERE x.id IN (d.tenant_id, d.environment_tenant) AND x.suspended_at IS NOT NULL` + perRow + `)`,
}

// targetReasons are the conditions of the reasons of targets t that are not in read_reason.
var targetReasons = map[fleet.Reason]string{
	fleet.ReasonAgentNeverConnected: `t.observed_sync = '' AND t.agent_id IS NOT NULL AND t.detached_at IS NULL AND NOT ` + agentConnected + ` AND NOT ` + everKnown,
	fleet.ReasonNewRevisionWaits:    `t.waiting`,
	fleet.ReasonLabelMissing:        `t.variant_error <> '' AND t.detached_at IS NULL AND NOT t.desired_tombstone`,
	fleet.ReasonDetached:            `t.detached_at IS NOT NULL`,
}

// commonReasons are of most targets: the index of targets by reason leaves them out.
var commonReasons = []fleet.Reason{fleet.ReasonSynced, fleet.ReasonApplying, fleet.ReasonNotReported}

// withReason matches deployments that have a reason, or a target that has it.
func (l *listing) withReason(r fleet.Reason) matcher {
	if r == fleet.ReasonAgentDisconnected {
		return l.stale()
	}
	if condition, ok := deploymentReasons[r]; ok {
		return matcher{where: func(*args) string { return `(` + condition + `)` }}
	}
	if slices.Contains(commonReasons, r) {
		return matcher{where: func(a *args) string { return l.hasTarget(`t.read_reason = ` + a.add(r) + known) }}
	}
	if r == fleet.ReasonKindNotAllowed {
		return l.withRefusedKind()
	}
	if condition, ok := targetReasons[r]; ok {
		return l.withTarget(func(*args) string { return condition })
	}
	return l.reported(r)
}

// kindRefused is the condition that the server sends a target no newer state because of the kind filter of its agent.
const kindRefused = `t.kind_error <> '' AND t.detached_at IS NULL AND NOT t.desired_tombstone`

// withRefusedKind matches deployments whose objects a kind filter refuses, at the server or at the agent.
func (l *listing) withRefusedKind() matcher {
	m := l.reported(fleet.ReasonKindNotAllowed)
	reported := m.where
	m.where = func(a *args) string { return `(` + reported(a) + ` OR ` + l.hasTarget(kindRefused) + `)` }
	m.sources[0].selects = append(m.sources[0].selects, func(a *args) string { return l.targets(a, kindRefused) })
	return m
}

// known is the condition that the reported reason is the one that users read: the target is neither stale nor detached.
const known = ` AND t.detached_at IS NULL AND (` + agentConnected + ` OR NOT ` + everKnown + `)`

// rareReasons is the condition of the index of targets by reason, see commonReasons.
const rareReasons = ` AND t.read_reason NOT IN ('Synced', 'Applying', 'NotReported')`

// reported matches a reason that an agent reported, or that was found when the source was read.
func (l *listing) reported(r fleet.Reason) matcher {
	m := l.withTarget(func(a *args) string { return `t.read_reason = ` + a.add(r) + rareReasons + known })
	hasTarget := m.where
	m.where = func(a *args) string {
		return `(d.source_error <> '' AND d.source_reason = ` + a.add(r) + ` OR ` + hasTarget(a) + `
			OR d.pending_spec <> 0 AND EXISTS (SELECT 1 FROM pending_specs p
				WHERE p.tenant_id = d.tenant_id AND p.deployment_id = d.id AND p.reason = ` + a.add(r) + perRow + `)
			OR EXISTS (SELECT 1 FROM deployment_variants v
				WHERE v.tenant_id = d.tenant_id AND v.deployment_id = d.id AND v.error <> '' AND v.error_reason = ` + a.add(r) + perRow + `)` +
			l.unreadable(r) + `)`
	}
	m.sources[0].selects = append(m.sources[0].selects, func(a *args) string {
		return `SELECT name, id FROM deployments WHERE tenant_id = ` + a.add(l.tenant) + ` AND source_error <> '' AND source_reason = ` + a.add(r) + `
			AND (name, id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
	}, func(a *args) string {
		return `SELECT deployment_name AS name, deployment_id AS id FROM pending_specs WHERE tenant_id = ` + a.add(l.tenant) + ` AND reason = ` + a.add(r) + `
			AND (deployment_name, deployment_id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
	}, func(a *args) string {
		return `SELECT o.name, o.id FROM deployment_variants v CROSS JOIN deployments o ON (o.tenant_id = v.tenant_id AND o.id = v.deployment_id)
			WHERE v.tenant_id = ` + a.add(l.tenant) + ` AND v.error <> '' AND v.error_reason = ` + a.add(r) + `
			AND (o.name, o.id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
	})
	if r == fleet.ReasonSourceUnreadable {
		m.sources[0].selects = append(m.sources[0].selects, func(a *args) string {
			return `SELECT o.name, o.id FROM repositories r CROSS JOIN deployments o ON (o.tenant_id = r.tenant_id AND o.repository_id = r.id)
				WHERE r.tenant_id = ` + a.add(l.tenant) + ` AND r.error <> '' AND (o.name, o.id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
		})
	}
	return m
}

// unreadable adds deployments whose repository cannot be read.
func (l *listing) unreadable(r fleet.Reason) string {
	if r != fleet.ReasonSourceUnreadable {
		return ``
	}
	return ` OR EXISTS (SELECT 1 FROM repositories r WHERE r.tenant_id = d.tenant_id AND r.id = d.repository_id AND r.error <> ''` + perRow + `)`
}
