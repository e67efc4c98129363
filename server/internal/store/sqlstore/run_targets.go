package sqlstore

import (
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// deploymentOf returns the deployment of a run, which is recorded with its changes.
func (s runs) deploymentOf(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) (deployment fleet.DeploymentID, err error) {
	err = s.tx.of(tenant).get(ctx, []any{&deployment}, `SELECT deployment_id FROM sync_runs WHERE tenant_id = $1 AND id = $2`, tenant, id)
	return deployment, err
}

func (s runs) SetTargets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, targets []fleet.RunTarget) error {
	deployment, err := s.setTargets(ctx, tenant, id, targets)
	if err != nil {
		return fmt.Errorf("writing the targets of run %q: %w", id, err)
	}
	return s.recordRun(tenant, id, deployment)
}

func (s runs) setTargets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, targets []fleet.RunTarget) (fleet.DeploymentID, error) {
	deployment, err := s.deploymentOf(ctx, tenant, id)
	if err != nil {
		return "", err
	}
	if _, err := s.tx.of(tenant).exec(ctx, `DELETE FROM run_targets WHERE tenant_id = $1 AND run_id = $2`, tenant, id); err != nil {
		return "", err
	}
	for _, t := range targets {
		if _, err := s.putTarget(ctx, tenant, id, t); err != nil {
			return "", fmt.Errorf("target %q: %w", t.TargetID, err)
		}
	}
	return deployment, nil
}

// putTarget does not write a row that is equal.
func (s runs) putTarget(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, t fleet.RunTarget) (int64, error) {
	return s.tx.of(tenant).exec(ctx, `INSERT INTO run_targets AS w (tenant_id, run_id, target_id, epoch, generation, done, failed, message, reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (tenant_id, run_id, target_id) DO UPDATE SET epoch = excluded.epoch, generation = excluded.generation,
			done = excluded.done, failed = excluded.failed, message = excluded.message, reason = excluded.reason
		WHERE w.epoch <> excluded.epoch OR w.generation <> excluded.generation OR w.done <> excluded.done
			OR w.failed <> excluded.failed OR w.message <> excluded.message OR w.reason <> excluded.reason`,
		tenant, id, t.TargetID, t.Version.Epoch, t.Version.Generation, t.Done, t.Failed, t.Message, t.Reason)
}

func (s runs) SetTarget(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, t fleet.RunTarget) error {
	n, deployment, err := s.setTarget(ctx, tenant, id, t)
	if err != nil {
		return fmt.Errorf("writing target %[2]q of run %[1]q: %[3]w", id, t.TargetID, err)
	}
	if n == 0 {
		return nil
	}
	return s.recordRun(tenant, id, deployment)
}

func (s runs) setTarget(ctx context.Context, tenant fleet.TenantID, id fleet.RunID, t fleet.RunTarget) (int64, fleet.DeploymentID, error) {
	deployment, err := s.deploymentOf(ctx, tenant, id)
	if err != nil {
		return 0, "", err
	}
	n, err := s.putTarget(ctx, tenant, id, t)
	return n, deployment, err
}

func (s runs) Targets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) ([]fleet.RunTarget, error) {
	var out []fleet.RunTarget
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var t fleet.RunTarget
		err := row.Scan(&t.TargetID, &t.Version.Epoch, &t.Version.Generation, &t.Done, &t.Failed, &t.Message, &t.Reason)
		out = append(out, t)
		return err
	}, `SELECT target_id, epoch, generation, done, failed, message, reason FROM run_targets
		WHERE tenant_id = $1 AND run_id = $2 ORDER BY target_id`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing the targets of run %q: %w", id, err)
	}
	return out, nil
}

func (s runs) CountOpenTargets(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) (open, failed int, err error) {
	err = s.tx.of(tenant).get(ctx, []any{&open, &failed}, `SELECT COALESCE(SUM(CASE WHEN done THEN 0 ELSE 1 END), 0),
			COALESCE(SUM(CASE WHEN failed THEN 1 ELSE 0 END), 0)
		FROM run_targets WHERE tenant_id = $1 AND run_id = $2`, tenant, id)
	if err != nil {
		return 0, 0, fmt.Errorf("counting the targets of run %q: %w", id, err)
	}
	return open, failed, nil
}
