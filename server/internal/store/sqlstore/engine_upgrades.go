package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type engineUpgrades struct{ tx *Tx }

func (s engineUpgrades) record(u fleet.EngineUpgrade) error {
	return s.tx.record(store.Change{TenantID: u.TenantID, Kind: store.ChangeEngineUpgrade, ID: string(u.ID)})
}

func (s engineUpgrades) Create(ctx context.Context, u fleet.EngineUpgrade) error {
	err := s.tx.of(u.TenantID).insert(ctx, `INSERT INTO engine_upgrades (tenant_id, id, name, revision, timeout, phase, reason, message,
			halt, halted_by, created_by, step, created_at, finished_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING`,
		u.TenantID, u.ID, u.Name, u.Revision, u.Timeout.Microseconds(), u.Phase, u.Reason, u.Message,
		u.Halt, u.HaltedBy, u.By, u.Step, micros(u.CreatedAt), micros(u.FinishedAt))
	if err == nil {
		err = s.putInstances(ctx, u)
	}
	if err != nil {
		return fmt.Errorf("creating engine upgrade %q: %w", u.Name, err)
	}
	return s.record(u)
}

// putInstances writes all instances; an upgrade has few.
func (s engineUpgrades) putInstances(ctx context.Context, u fleet.EngineUpgrade) error {
	for place, i := range u.Instances {
		_, err := s.tx.of(u.TenantID).exec(ctx, `INSERT INTO engine_upgrade_instances (tenant_id, upgrade_id, place, agent_id, agent, deployment_id,
				deployment, canary_id, canary, phase, reason, message, before_revision, before_commit, commit_hash, run_id, canary_epoch,
				canary_generation, deadline, started_at, finished_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
			ON CONFLICT (tenant_id, upgrade_id, place) DO UPDATE SET phase = excluded.phase, reason = excluded.reason, message = excluded.message,
				before_revision = excluded.before_revision, before_commit = excluded.before_commit, commit_hash = excluded.commit_hash,
				run_id = excluded.run_id, canary_epoch = excluded.canary_epoch, canary_generation = excluded.canary_generation,
				deadline = excluded.deadline, started_at = excluded.started_at, finished_at = excluded.finished_at`,
			u.TenantID, u.ID, place, i.AgentID, i.Agent, i.DeploymentID, i.Deployment, i.CanaryID, i.Canary, i.Phase, i.Reason, i.Message,
			i.Before, i.BeforeCommit, i.Commit, i.RunID, i.CanaryAfter.Epoch, i.CanaryAfter.Generation, micros(i.Deadline), micros(i.StartedAt), micros(i.FinishedAt))
		if err != nil {
			return fmt.Errorf("instance %q: %w", i.Agent, err)
		}
	}
	return nil
}

func (s engineUpgrades) Update(ctx context.Context, u fleet.EngineUpgrade) error {
	n, err := s.tx.of(u.TenantID).exec(ctx, `UPDATE engine_upgrades SET phase = $4, reason = $5, message = $6, halt = $7, halted_by = $8,
			finished_at = $9, step = step + 1
		WHERE tenant_id = $1 AND id = $2 AND step = $3`, u.TenantID, u.ID, u.Step, u.Phase, u.Reason, u.Message, u.Halt, u.HaltedBy, micros(u.FinishedAt))
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err == nil {
		err = s.putInstances(ctx, u)
	}
	if err != nil {
		return fmt.Errorf("updating engine upgrade %q at step %d: %w", u.Name, u.Step, err)
	}
	return s.record(u)
}

func (s engineUpgrades) Get(ctx context.Context, tenant fleet.TenantID, id fleet.EngineUpgradeID) (fleet.EngineUpgrade, error) {
	u, err := only(s.list(ctx, s.tx.of(tenant), `WHERE tenant_id = $1 AND id = $2`, tenant, id))
	if err != nil {
		return u, fmt.Errorf("reading engine upgrade %q: %w", id, err)
	}
	return u, nil
}

func (s engineUpgrades) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.EngineUpgrade, error) {
	u, err := only(s.list(ctx, s.tx.of(tenant), `WHERE tenant_id = $1 AND name = $2`, tenant, name))
	if err != nil {
		return u, fmt.Errorf("reading engine upgrade %q: %w", name, err)
	}
	return u, nil
}

func (s engineUpgrades) List(ctx context.Context, tenant fleet.TenantID, page store.Page) ([]fleet.EngineUpgrade, error) {
	return s.list(ctx, s.tx.of(tenant), `WHERE tenant_id = $1 AND name > $2 ORDER BY name LIMIT $3`, tenant, page.After, limitOf(page.Limit))
}

func (s engineUpgrades) Open(ctx context.Context, tenant fleet.TenantID) ([]fleet.EngineUpgrade, error) {
	return s.list(ctx, s.tx.of(tenant), `WHERE tenant_id = $1 AND phase = 'Running' ORDER BY name`, tenant)
}

func (s engineUpgrades) OpenAllTenants(ctx context.Context) ([]fleet.EngineUpgrade, error) {
	return s.list(ctx, s.tx.everywhere(), `WHERE phase = 'Running' ORDER BY tenant_id, name`)
}

func (s engineUpgrades) list(ctx context.Context, db bound, where string, args ...any) ([]fleet.EngineUpgrade, error) {
	var out []fleet.EngineUpgrade
	err := db.each(ctx, func(row Row) error {
		var u fleet.EngineUpgrade
		var timeout int64
		err := row.Scan(&u.TenantID, &u.ID, &u.Name, &u.Revision, &timeout, &u.Phase, &u.Reason, &u.Message, &u.Halt, &u.HaltedBy, &u.By, &u.Step,
			timeInto(&u.CreatedAt), timeInto(&u.FinishedAt))
		u.Timeout = time.Duration(timeout) * time.Microsecond
		out = append(out, u)
		return err
	}, `SELECT tenant_id, id, name, revision, timeout, phase, reason, message, halt, halted_by, created_by, step, created_at, finished_at
		FROM engine_upgrades `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("listing engine upgrades: %w", err)
	}
	for i := range out {
		if err := s.readInstances(ctx, &out[i]); err != nil {
			return nil, fmt.Errorf("reading the instances of engine upgrade %q: %w", out[i].Name, err)
		}
	}
	return out, nil
}

func (s engineUpgrades) readInstances(ctx context.Context, u *fleet.EngineUpgrade) error {
	return s.tx.of(u.TenantID).each(ctx, func(row Row) error {
		var i fleet.EngineUpgradeInstance
		err := row.Scan(&i.AgentID, &i.Agent, &i.DeploymentID, &i.Deployment, &i.CanaryID, &i.Canary, &i.Phase, &i.Reason, &i.Message, &i.Before,
			&i.BeforeCommit, &i.Commit, &i.RunID, &i.CanaryAfter.Epoch, &i.CanaryAfter.Generation, timeInto(&i.Deadline), timeInto(&i.StartedAt), timeInto(&i.FinishedAt))
		u.Instances = append(u.Instances, i)
		return err
	}, `SELECT agent_id, agent, deployment_id, deployment, canary_id, canary, phase, reason, message, before_revision, before_commit, commit_hash, run_id,
			canary_epoch, canary_generation, deadline, started_at, finished_at
		FROM engine_upgrade_instances WHERE tenant_id = $1 AND upgrade_id = $2 ORDER BY place`, u.TenantID, u.ID)
}

func (s engineUpgrades) Trim(ctx context.Context, tenant fleet.TenantID, n int) error {
	_, err := s.tx.of(tenant).exec(ctx, `DELETE FROM engine_upgrades WHERE tenant_id = $1 AND id IN (
		SELECT done.id FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY finished_at DESC, id) AS place FROM engine_upgrades
			WHERE tenant_id = $1 AND phase <> 'Running') AS done
		WHERE done.place > $2)`, tenant, max(n, 0))
	if err != nil {
		return fmt.Errorf("trimming engine upgrades to %d: %w", n, err)
	}
	return nil
}
