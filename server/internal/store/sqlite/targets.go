package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type targets struct{ *tx }

func (s targets) Create(ctx context.Context, t fleet.Target) error {
	d, o := t.Desired, t.Observed
	err := s.insert(ctx, `INSERT INTO targets (tenant_id, id, deployment_id, agent_id,
			desired_epoch, desired_generation, desired_digest, desired_commit, desired_namespace,
			desired_prune, desired_adopt, desired_allow_empty, desired_hold_prune, desired_tombstone,
			observed_epoch, observed_generation, observed_digest, observed_sync, observed_health, observed_as_of, observed_message)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
		ON CONFLICT DO NOTHING`,
		t.TenantID, t.ID, t.DeploymentID, t.AgentID,
		d.Epoch, d.Generation, nullable(d.Digest), d.Commit, d.Namespace,
		d.Policy.Prune, d.Policy.Adopt, d.Policy.AllowEmpty, d.HoldPrune, d.Tombstone,
		o.Epoch, o.Generation, o.Digest, o.Sync, o.Health, micros(o.AsOf), o.Message)
	if err != nil {
		return fmt.Errorf("creating target %q: %w", t.ID, err)
	}
	return s.recordTarget(ctx, store.ChangeDesired, t.TenantID, t.ID, t.AgentID, t.DeploymentID)
}

func (s targets) recordTarget(ctx context.Context, kind store.ChangeKind, tenant fleet.TenantID, id fleet.TargetID,
	agent fleet.AgentID, deployment fleet.DeploymentID) error {
	return s.record(ctx, store.Change{TenantID: tenant, Kind: kind, ID: string(id), AgentID: agent, DeploymentID: deployment})
}

const targetColumns = `SELECT t.id, t.tenant_id, t.deployment_id, t.agent_id, d.name, a.name,
		t.desired_epoch, t.desired_generation, COALESCE(t.desired_digest, ''), t.desired_commit, t.desired_namespace,
		t.desired_prune, t.desired_adopt, t.desired_allow_empty, t.desired_hold_prune, t.desired_tombstone,
		t.observed_epoch, t.observed_generation, t.observed_digest, t.observed_sync, t.observed_health,
		t.observed_as_of, t.observed_message
	FROM targets t
	JOIN deployments d ON d.tenant_id = t.tenant_id AND d.id = t.deployment_id
	JOIN agents a ON a.tenant_id = t.tenant_id AND a.id = t.agent_id `

func (s targets) Get(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) (fleet.Target, error) {
	t, err := only(s.list(ctx, targetColumns+`WHERE t.tenant_id = $1 AND t.id = $2`, tenant, id))
	if err != nil {
		return fleet.Target{}, fmt.Errorf("reading target %q: %w", id, err)
	}
	return t, nil
}

func (s targets) OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.Target, error) {
	out, err := s.list(ctx, targetColumns+`WHERE t.tenant_id = $1 AND t.deployment_id = $2 ORDER BY a.name`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing targets of deployment %q: %w", id, err)
	}
	return out, nil
}

func (s targets) OfAgent(ctx context.Context, tenant fleet.TenantID, id fleet.AgentID) ([]fleet.Target, error) {
	out, err := s.list(ctx, targetColumns+`WHERE t.tenant_id = $1 AND t.agent_id = $2 ORDER BY d.name, t.id`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing targets of agent %q: %w", id, err)
	}
	return out, nil
}

func (s targets) ListByDeployments(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]fleet.Target, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := s.list(ctx, targetColumns+`WHERE t.tenant_id = $1 AND t.deployment_id IN (SELECT value FROM json_each($2))
		ORDER BY d.name, t.deployment_id, a.name`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("listing targets of %d deployments: %w", len(ids), err)
	}
	return out, nil
}

func (s targets) CountByAgent(ctx context.Context, tenant fleet.TenantID) (map[fleet.AgentID]int, error) {
	out := map[fleet.AgentID]int{}
	err := s.each(ctx, func(rows *sql.Rows) error {
		var id fleet.AgentID
		var n int
		err := rows.Scan(&id, &n)
		out[id] = n
		return err
	}, `SELECT agent_id, COUNT(*) FROM targets WHERE tenant_id = $1 GROUP BY agent_id`, tenant)
	if err != nil {
		return nil, fmt.Errorf("counting targets by agent: %w", err)
	}
	return out, nil
}

func (s targets) list(ctx context.Context, query string, args ...any) ([]fleet.Target, error) {
	var out []fleet.Target
	err := s.each(ctx, func(rows *sql.Rows) error {
		t, err := scanTarget(rows)
		out = append(out, t)
		return err
	}, query, args...)
	return out, err
}

func scanTarget(rows *sql.Rows) (fleet.Target, error) {
	var t fleet.Target
	d, o := &t.Desired, &t.Observed
	err := rows.Scan(&t.ID, &t.TenantID, &t.DeploymentID, &t.AgentID, &t.DeploymentName, &t.AgentName,
		&d.Epoch, &d.Generation, &d.Digest, &d.Commit, &d.Namespace,
		&d.Policy.Prune, &d.Policy.Adopt, &d.Policy.AllowEmpty, &d.HoldPrune, &d.Tombstone,
		&o.Epoch, &o.Generation, &o.Digest, &o.Sync, &o.Health, timeInto(&o.AsOf), &o.Message)
	return t, err
}

func (s targets) SetDesired(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, d fleet.Desired) error {
	if !s.writable {
		return store.ErrReadOnly
	}
	var agent fleet.AgentID
	var deployment fleet.DeploymentID
	err := s.get(ctx, []any{&agent, &deployment}, `UPDATE targets SET desired_epoch = $3, desired_generation = $4,
			desired_digest = $5, desired_commit = $6, desired_namespace = $7, desired_prune = $8, desired_adopt = $9,
			desired_allow_empty = $10, desired_hold_prune = $11, desired_tombstone = $12
		WHERE tenant_id = $1 AND id = $2 RETURNING agent_id, deployment_id`,
		string(tenant), string(id), d.Epoch, d.Generation, nullable(d.Digest), d.Commit, d.Namespace,
		d.Policy.Prune, d.Policy.Adopt, d.Policy.AllowEmpty, d.HoldPrune, d.Tombstone)
	if err != nil {
		return fmt.Errorf("setting what is desired of target %q: %w", id, err)
	}
	return s.recordTarget(ctx, store.ChangeDesired, tenant, id, agent, deployment)
}

func (s targets) Remove(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) error {
	if !s.writable {
		return store.ErrReadOnly
	}
	var agent fleet.AgentID
	var deployment fleet.DeploymentID
	err := s.get(ctx, []any{&agent, &deployment}, `DELETE FROM targets
		WHERE tenant_id = $1 AND id = $2 RETURNING agent_id, deployment_id`, tenant, id)
	if err != nil {
		return fmt.Errorf("removing target %q: %w", id, err)
	}
	return s.recordTarget(ctx, store.ChangeDesired, tenant, id, agent, deployment)
}
