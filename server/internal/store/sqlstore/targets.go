package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type targets struct{ tx *Tx }

const targetColumns = `SELECT t.id, t.tenant_id, t.deployment_id, t.deployment_name, t.agent_tenant, COALESCE(t.agent_id, ''), t.agent_name,
		COALESCE(t.grant_id, ''), t.variant, t.variant_error, t.included_kinds, t.excluded_kinds, t.kind_error, t.detached_at, t.detached_why, t.left_in,
		t.desired_epoch, t.desired_generation, COALESCE(t.desired_digest, ''), t.desired_commit, t.desired_namespace,
		t.desired_prune, t.desired_adopt, t.desired_allow_empty, t.desired_manual, t.desired_prune_on_detach,
		t.desired_force_conflicts, t.desired_replace_objects, t.desired_dry_run, t.desired_drift, t.desired_ignore_fields,
		t.desired_service_account, t.desired_propagation, t.desired_prune_timeout, t.desired_ready_timeout,
		t.desired_prune_limit_objects, t.desired_prune_limit_percent,
		t.desired_hold_prune, t.desired_consent, t.desired_confirmed, t.desired_hand_overs, t.desired_tombstone, t.desired_detached, t.desired_source, t.desired_hold_protected,
		t.observed_epoch, t.observed_generation, t.observed_digest, t.observed_sync, t.observed_health,
		t.observed_as_of, t.observed_message, t.desired_create_namespace, t.observed_reason, t.observed_sync_at, t.observed_health_at
	FROM targets t `

func scanTarget(row Row) (fleet.Target, error) {
	var t fleet.Target
	d, o := &t.Desired, &t.Observed
	err := row.Scan(slices.Concat([]any{&t.ID, &t.TenantID, &t.DeploymentID, &t.DeploymentName, &t.AgentTenant, &t.AgentID, &t.AgentName,
		&t.GrantID, &t.Variant, &t.VariantError, listInto(&t.Kinds.Include), listInto(&t.Kinds.Exclude), &t.KindError, timeInto(&t.DetachedAt), &t.DetachedWhy, &t.LeftIn,
		&d.Epoch, &d.Generation, &d.Digest, &d.Commit, &d.Namespace,
	}, policyInto(&d.Policy), []any{&d.HoldPrune, &d.Consent, listInto(&d.Confirmed), handOversInto(&d.HandOvers), &d.Tombstone, &d.Detached, &d.SourceRevision, &d.HoldProtected,
		&o.Epoch, &o.Generation, &o.Digest, &o.Sync, &o.Health, timeInto(&o.AsOf), &o.Message, &d.Policy.CreateNamespace,
		&o.Reason, timeInto(&t.SyncSince), timeInto(&t.HealthSince),
	})...)
	return t, err
}

func (s targets) Get(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) (fleet.Target, error) {
	t, err := only(s.list(ctx, s.tx.of(tenant), targetColumns+`WHERE t.tenant_id = $1 AND t.id = $2`, tenant, id))
	if err != nil {
		return fleet.Target{}, fmt.Errorf("reading target %q: %w", id, err)
	}
	return t, nil
}

func (s targets) OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Target, error) {
	out, err := s.list(ctx, s.tx.of(tenant), targetColumns+`WHERE t.tenant_id = $1 AND t.deployment_id = $2
		ORDER BY t.agent_name, t.id`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing targets of deployment %q: %w", id, err)
	}
	return out, nil
}

func (s targets) Detached(ctx context.Context, tenant fleet.TenantID, f store.DetachedFilter) ([]fleet.Target, error) {
	out, err := s.list(ctx, s.tx.of(tenant), targetColumns+`WHERE t.tenant_id = $1 AND t.detached_at IS NOT NULL
		AND ($2 = '' OR t.deployment_name = $2) AND ($3 = '' OR t.agent_name = $3)
		AND (t.deployment_name > $4 OR t.deployment_name = $4 AND t.id > $5)
		ORDER BY t.deployment_name, t.id LIMIT $6`, tenant, f.Deployment, f.Agent, f.After, f.AfterID, limitOf(f.Limit))
	if err != nil {
		return nil, fmt.Errorf("listing detached targets: %w", err)
	}
	return out, nil
}

func (s targets) OfDeployments(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) (map[fleet.DeploymentID][]fleet.Target, error) {
	list, err := s.list(ctx, s.tx.of(tenant), targetColumns+`WHERE t.tenant_id = $1 AND t.deployment_id IN (SELECT value FROM json_each($2))
		ORDER BY t.deployment_id, t.agent_name, t.id`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("listing targets of %d deployments: %w", len(ids), err)
	}
	out := make(map[fleet.DeploymentID][]fleet.Target, len(ids))
	for _, t := range list {
		out[t.DeploymentID] = append(out[t.DeploymentID], t)
	}
	return out, nil
}

func (s targets) OfAgentAllTenants(ctx context.Context, id fleet.AgentID) ([]fleet.Target, error) {
	out, err := s.list(ctx, s.tx.atPlace("agents", string(id)), targetColumns+`WHERE t.agent_id = $1
		ORDER BY t.tenant_id, t.deployment_name, t.deployment_id`, id)
	if err != nil {
		return nil, fmt.Errorf("listing targets of agent %q: %w", id, err)
	}
	return out, nil
}

func (s targets) GetAllTenants(ctx context.Context, agent fleet.AgentID, ids []fleet.TargetID) ([]fleet.Target, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	// COALESCE makes the database search by ID and not by agent, which may have thousands of other targets.
	out, err := s.list(ctx, s.tx.atPlace("agents", string(agent)), targetColumns+`WHERE COALESCE(t.agent_id, '') = $1 AND t.id IN (SELECT value FROM json_each($2))
		ORDER BY t.tenant_id, t.deployment_name, t.deployment_id`, agent, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading %d targets of agent %q: %w", len(ids), agent, err)
	}
	return out, nil
}

func (s targets) LeftBehindAllTenants(ctx context.Context, agent fleet.Agent) ([]fleet.Target, error) {
	out, err := s.list(ctx, s.tx.at(agent.TenantID), targetColumns+`WHERE t.agent_id IS NULL AND t.agent_tenant = $1 AND t.agent_name = $2
		ORDER BY t.tenant_id, t.deployment_name, t.deployment_id, t.detached_at DESC, t.id`, agent.TenantID, agent.Name)
	if err != nil {
		return nil, fmt.Errorf("listing targets that were on agent %q: %w", agent.Name, err)
	}
	return out, nil
}

func (s targets) UnprovenAllTenants(ctx context.Context, agent fleet.AgentID) ([]fleet.Target, error) {
	out, err := s.list(ctx, s.tx.atPlace("agents", string(agent)), targetColumns+`WHERE t.agent_id = $1 AND t.left_in <> ''
		ORDER BY t.tenant_id, t.deployment_name, t.deployment_id`, agent)
	if err != nil {
		return nil, fmt.Errorf("listing targets that agent %q has not recognized yet: %w", agent, err)
	}
	return out, nil
}

func (s targets) OfGrantAllTenants(ctx context.Context, id fleet.GrantID) ([]fleet.Target, error) {
	out, err := s.list(ctx, s.tx.atPlace("grants", string(id)), targetColumns+`WHERE t.grant_id = $1
		ORDER BY t.deployment_name, t.deployment_id, t.agent_name, t.id`, id)
	if err != nil {
		return nil, fmt.Errorf("listing targets of grant %q: %w", id, err)
	}
	return out, nil
}

func (s targets) List(ctx context.Context, tenant fleet.TenantID, ids []fleet.TargetID) ([]fleet.Target, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := s.list(ctx, s.tx.of(tenant), targetColumns+`WHERE t.tenant_id = $1 AND t.id IN (SELECT value FROM json_each($2))
		ORDER BY t.id`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading %d targets: %w", len(ids), err)
	}
	return out, nil
}

// list reads targets and the limits of their grants.
func (s targets) list(ctx context.Context, db bound, query string, args ...any) ([]fleet.Target, error) {
	var out []fleet.Target
	granted := map[fleet.GrantID]bool{}
	err := db.each(ctx, func(row Row) error {
		t, err := scanTarget(row)
		out = append(out, t)
		if t.GrantID != "" {
			granted[t.GrantID] = true
		}
		return err
	}, query, args...)
	if err != nil || len(granted) == 0 {
		return out, err
	}
	ids := make([]fleet.GrantID, 0, len(granted))
	for id := range granted {
		ids = append(ids, id)
	}
	limits, err := s.tx.limitsOf(ctx, db, ids)
	for i := range out {
		out[i].Desired.Limits = limits[out[i].GrantID]
	}
	return out, err
}

func (s targets) CountByAgentAllTenants(ctx context.Context, ids []fleet.AgentID) (map[fleet.AgentID]int, error) {
	out := map[fleet.AgentID]int{}
	if len(ids) == 0 {
		return out, nil
	}
	db := s.tx.everywhere().aboutOwners(`SELECT tenant_id FROM agents WHERE id IN (SELECT value FROM json_each($1))
		UNION SELECT 'guests/' || tenant_id FROM agents WHERE id IN (SELECT value FROM json_each($1))`, idList(ids))
	err := db.each(ctx, func(row Row) error {
		var id fleet.AgentID
		var n int
		err := row.Scan(&id, &n)
		out[id] = n
		return err
	}, `SELECT agent_id, COUNT(*) FROM targets WHERE agent_id IN (SELECT value FROM json_each($1)) GROUP BY agent_id`, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("counting targets of %d agents: %w", len(ids), err)
	}
	return out, nil
}

func (s targets) Count(ctx context.Context, tenant fleet.TenantID) (int, error) {
	var n int
	if err := s.tx.of(tenant).get(ctx, []any{&n}, `SELECT COUNT(*) FROM targets WHERE tenant_id = $1`, tenant); err != nil {
		return 0, fmt.Errorf("counting targets: %w", err)
	}
	return n, nil
}
