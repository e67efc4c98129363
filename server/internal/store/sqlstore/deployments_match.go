package sqlstore

import (
	"maps"
	"slices"
	"strconv"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// matchersOf returns the most selective matchers first: the first ordered source is followed.
func (l *listing) matchersOf(f store.DeploymentFilter) []matcher {
	var out []matcher
	if f.Agent != "" {
		out = append(out, l.onAgent(f.Agent))
	}
	if f.Sync != "" {
		out = append(out, l.inSync(f.Sync))
	}
	if f.Health != "" {
		out = append(out, l.inHealth(f.Health))
	}
	if f.Reason != "" {
		out = append(out, l.withReason(f.Reason))
	}
	if len(f.Labels) > 0 {
		out = append(out, l.labelled(f.Labels))
	}
	if len(f.Selector) > 0 {
		out = append(out, matcher{where: func(a *args) string {
			return selected(a, f.Selector, `deployment_labels l WHERE l.tenant_id = d.tenant_id AND l.deployment_id = d.id`)
		}})
	}
	if f.Repository != "" {
		out = append(out, l.having(`repository_id`, f.Repository))
	}
	if f.Environment != "" {
		out = append(out, l.having(`environment_id`, f.Environment))
	}
	if f.Text != "" {
		out = append(out, l.containing(f.Text))
	}
	return out
}

// exactly returns a source that finds only matches, in the order of names.
func exactly(sel func(a *args) string) []source {
	return []source{{selects: []func(a *args) string{sel}, exact: true, ordered: true, few: fewMatches}}
}

// once is exactly without duplicates.
func once(sel func(a *args) string) []source {
	out := exactly(sel)
	out[0].once = true
	return out
}

// having matches a column of the deployment that is the first of an index.
func (l *listing) having(column string, value any) matcher {
	return matcher{
		where: func(a *args) string { return `d.` + column + ` = ` + a.add(value) },
		// It has no duplicates, but is not marked as once: PostgreSQL might use the index of names then.
		sources: exactly(func(a *args) string {
			return `SELECT name, id FROM deployments WHERE tenant_id = ` + a.add(l.tenant) + ` AND ` + column + ` = ` + a.add(value) +
				` AND (name, id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
		}),
	}
}

// withTarget matches deployments that have a target t with a condition.
func (l *listing) withTarget(condition func(a *args) string) matcher {
	return matcher{
		where:   func(a *args) string { return l.hasTarget(condition(a)) },
		sources: exactly(func(a *args) string { return l.targets(a, condition(a)) }),
	}
}

// perRow ends a condition on other tables that is evaluated for each deployment. Without it, PostgreSQL may use
// a join and read all rows of the tenant to find the first few.
const perRow = ` LIMIT 1 OFFSET 0`

// hasTarget uses the leading columns of all indexes of targets, so that any of them ends the search
// immediately.
func (l *listing) hasTarget(condition string) string {
	return `EXISTS (SELECT 1 FROM targets t WHERE t.tenant_id = d.tenant_id AND t.deployment_id = d.id
		AND t.deployment_name = d.name AND ` + condition + perRow + `)`
}

func (l *listing) targets(a *args, condition string) string {
	return `SELECT t.deployment_name AS name, t.deployment_id AS id FROM targets t WHERE t.tenant_id = ` + a.add(l.tenant) +
		` AND (t.deployment_name, t.deployment_id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `) AND ` + condition
}

func (l *listing) onAgent(id fleet.AgentID) matcher {
	m := l.withTarget(func(a *args) string { return `t.agent_id = ` + a.add(id) })
	m.sources[0].once = true
	return m
}

func (l *listing) inSync(state fleet.SyncState) matcher {
	switch state {
	case fleet.SyncOutOfSync:
		return l.outOfSync()
	case fleet.SyncSynced:
		m := l.withTarget(func(a *args) string { return `t.read_sync = ` + a.add(state) + ` AND NOT t.waiting` })
		m.sources[0].size = func(a *args) string { return l.targets(a, `t.read_sync = `+a.add(state)) } // needs the index only
		return m
	case fleet.SyncFailed:
		return l.failed()
	}
	return l.withTarget(func(a *args) string { return `t.read_sync = ` + a.add(state) })
}

// outOfSync counts targets that wait for a newer revision and targets with reported drift.
func (l *listing) outOfSync() matcher {
	said := func(a *args) string { return `t.read_sync = ` + a.add(fleet.SyncOutOfSync) }
	m := l.withTarget(func(*args) string { return `t.waiting` })
	waits := m.where
	m.where = func(a *args) string { return `(` + waits(a) + ` OR ` + l.hasTarget(said(a)) + `)` }
	m.sources[0].selects = append(m.sources[0].selects, func(a *args) string { return l.targets(a, said(a)) })
	return m
}

// failed counts deployments that could not be rendered, in force or pending, and targets that could not be
// applied or have refused kinds.
func (l *listing) failed() matcher {
	m := l.withTarget(func(a *args) string { return `t.read_sync = ` + a.add(fleet.SyncFailed) })
	hasTarget := m.where
	m.where = func(a *args) string {
		return `(d.source_error <> '' OR d.pending_spec <> 0 AND EXISTS (SELECT 1 FROM pending_specs p
			WHERE p.tenant_id = d.tenant_id AND p.deployment_id = d.id AND p.problem <> ''` + perRow + `) OR ` + hasTarget(a) + ` OR ` + l.hasTarget(kindRefused) + `)`
	}
	m.sources[0].selects = append(m.sources[0].selects, func(a *args) string { return l.targets(a, kindRefused) }, func(a *args) string {
		return `SELECT name, id FROM deployments WHERE tenant_id = ` + a.add(l.tenant) + ` AND source_error <> ''
			AND (name, id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
	}, func(a *args) string {
		return `SELECT deployment_name AS name, deployment_id AS id FROM pending_specs WHERE tenant_id = ` + a.add(l.tenant) + ` AND problem <> ''
			AND (deployment_name, deployment_id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
	})
	return m
}

const (
	agentConnected = `EXISTS (SELECT 1 FROM agents a WHERE a.id = t.agent_id AND a.connected` + perRow + `)`
	// everKnown tells whether a target whose agent is not connected is stale: see lastSeen.
	everKnown = `(t.observed_as_of IS NOT NULL OR EXISTS (SELECT 1 FROM connections c
		WHERE c.tenant_id = t.agent_tenant AND c.agent_id = t.agent_id` + perRow + `))`
	// everConnected is the same for an agent, and thereby for all its targets.
	everConnected = `EXISTS (SELECT 1 FROM connections c WHERE c.tenant_id = a.tenant_id AND c.agent_id = a.id` + perRow + `)`
)

// inHealth has two queries for reports of connected agents: by health, and by agent for when nearly all of them
// are away.
func (l *listing) inHealth(health fleet.Health) matcher {
	switch health {
	case fleet.HealthStale:
		return l.stale()
	case fleet.HealthUnknown:
		// A target without any report has this health too.
		return l.withTarget(func(a *args) string {
			return `t.read_health = ` + a.add(health) + ` AND (` + agentConnected + ` OR NOT ` + everKnown + `)`
		})
	}
	m := l.withTarget(func(a *args) string { return `t.read_health = ` + a.add(health) + ` AND ` + agentConnected })
	m.sources[0].size = func(a *args) string { return l.targets(a, `t.read_health = `+a.add(health)) }
	m.sources = append(m.sources, source{
		few:  fewMatches,
		size: func(a *args) string { return l.onAgents(a, true) },
		selects: []func(a *args) string{func(a *args) string {
			// The expression prevents SQLite from using the index on health.
			return l.onAgents(a, true) + ` AND t.read_health || '' = ` + a.add(health)
		}},
	})
	return m
}

// stale matches targets with a known state whose agents are not connected or deleted.
func (l *listing) stale() matcher {
	return matcher{
		where: func(*args) string { return l.hasTarget(`NOT ` + agentConnected + ` AND ` + everKnown) },
		sources: []source{{few: fewMatches, selects: []func(a *args) string{
			func(a *args) string { return l.onAgents(a, false) + ` AND ` + everConnected },
			func(a *args) string {
				return l.onAgents(a, false) + ` AND NOT ` + everConnected + ` AND t.observed_as_of IS NOT NULL`
			},
			func(a *args) string { return l.targets(a, `t.agent_id IS NULL AND t.observed_as_of IS NOT NULL`) },
		}}},
	}
}

// onAgents selects the targets on agents that are connected, or not. The agents may belong to any tenant: MIN
// makes the database read an index once for each tenant. The value is not an argument, because the plan depends
// on how many agents are away.
func (l *listing) onAgents(a *args, connected bool) string {
	return `SELECT t.deployment_name AS name, t.deployment_id AS id FROM agents a
		CROSS JOIN targets t ON (t.agent_id = a.id AND t.tenant_id = ` + a.add(l.tenant) + `)
		WHERE a.connected = ` + strconv.FormatBool(connected) + ` AND a.tenant_id IN (SELECT x.id FROM tenants x
			WHERE x.id = (SELECT MIN(o.agent_tenant) FROM targets o WHERE o.tenant_id = ` + a.add(l.tenant) + ` AND o.agent_tenant >= x.id))`
}

// labelled matches deployments that have all of the labels. The text of a query does not depend on their
// number, so that prepared statements can be reused. Each label is a source; the rarest is the most selective.
func (l *listing) labelled(labels map[string]string) matcher {
	var sources []source
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		way := once(func(a *args) string {
			return `SELECT l.deployment_name AS name, l.deployment_id AS id FROM deployment_labels l
				WHERE l.tenant_id = ` + a.add(l.tenant) + ` AND l.key = ` + a.add(key) + ` AND l.value = ` + a.add(labels[key]) +
				` AND (l.deployment_name, l.deployment_id) > (` + a.add(l.after.name) + `, ` + a.add(l.after.id) + `)`
		})
		way[0].exact = len(labels) == 1
		sources = append(sources, way...)
	}
	return matcher{sources: sources, where: func(a *args) string {
		return `NOT EXISTS (SELECT 1 FROM json_each(` + a.add(jsonObject(labels)) + `) AS p WHERE NOT EXISTS (
			SELECT 1 FROM deployment_labels l WHERE l.tenant_id = d.tenant_id AND l.deployment_id = d.id
				AND l.key = p.key AND l.value = p.value` + perRow + `)` + perRow + `)`
	}}
}

// containing has one source per part of the text: the rarest is the most selective.
func (l *listing) containing(text string) matcher {
	pattern := containing(text)
	start := lowerASCII(text)
	m := matcher{where: func(a *args) string {
		return `(lower(d.name) LIKE ` + a.add(pattern) + ` ESCAPE '\' OR lower(d.path) LIKE ` + a.add(pattern) + ` ESCAPE '\'
			OR (d.rendered_commit >= ` + a.add(start) + ` AND d.rendered_commit < ` + a.add(start+afterAll) + `)
			OR (d.source_error <> '' AND lower(d.source_error) LIKE ` + a.add(pattern) + ` ESCAPE '\')
			OR EXISTS (SELECT 1 FROM repositories r WHERE r.tenant_id = d.tenant_id AND r.id = d.repository_id
				AND lower(r.url) LIKE ` + a.add(pattern) + ` ESCAPE '\'` + perRow + `))`
	}}
	for _, piece := range pieces(text) {
		m.sources = append(m.sources, source{few: fewMatches, selects: []func(a *args) string{
			func(a *args) string {
				return `SELECT w.deployment_id AS id FROM deployment_words w WHERE w.tenant_id = ` + a.add(l.tenant) +
					` AND w.suffix >= ` + a.add(piece) + ` AND w.suffix < ` + a.add(piece+afterAll)
			},
			func(a *args) string {
				return `SELECT o.id FROM repository_words w
					CROSS JOIN deployments o ON (o.tenant_id = w.tenant_id AND o.repository_id = w.repository_id)
					WHERE w.tenant_id = ` + a.add(l.tenant) +
					` AND w.suffix >= ` + a.add(piece) + ` AND w.suffix < ` + a.add(piece+afterAll)
			},
			func(a *args) string {
				return `SELECT id FROM deployments WHERE tenant_id = ` + a.add(l.tenant) +
					` AND rendered_commit >= ` + a.add(start) + ` AND rendered_commit < ` + a.add(start+afterAll)
			},
			func(a *args) string {
				return `SELECT id FROM deployments WHERE tenant_id = ` + a.add(l.tenant) + ` AND source_error <> ''
					AND lower(source_error) LIKE ` + a.add(pattern) + ` ESCAPE '\'`
			},
		}})
	}
	return m
}
