package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type runs struct{ tx *Tx }

func (s runs) recordRun(tenant fleet.TenantID, id fleet.RunID, deployment fleet.DeploymentID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeRun, ID: string(id), DeploymentID: deployment})
}

func (s runs) Create(ctx context.Context, r fleet.SyncRun) (int64, error) {
	seq, err := s.create(ctx, r)
	if err != nil {
		return 0, fmt.Errorf("creating run %q: %w", r.ID, err)
	}
	return seq, s.recordRun(r.TenantID, r.ID, r.DeploymentID)
}

// create gets the number from the deployment, whose row lock prevents duplicates.
func (s runs) create(ctx context.Context, r fleet.SyncRun) (seq int64, err error) {
	db := s.tx.of(r.TenantID)
	err = db.returning(ctx, []any{&seq}, `UPDATE deployments SET last_run = last_run + 1
		WHERE tenant_id = $1 AND id = $2 RETURNING last_run`, r.TenantID, r.DeploymentID)
	if err != nil {
		return 0, err
	}
	err = db.insert(ctx, `INSERT INTO sync_runs (tenant_id, id, deployment_id, seq, kind, revision, kept, phase, reason, message, commit_hash,
			created_by, created_at, started_at, finished_at, operation_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ON CONFLICT DO NOTHING`,
		r.TenantID, r.ID, r.DeploymentID, seq, r.Kind, r.Revision, r.Kept, r.Phase, r.Reason, r.Message, r.Commit,
		r.By, micros(r.CreatedAt), micros(r.StartedAt), micros(r.FinishedAt), r.OperationID)
	return seq, err
}

const runColumns = `SELECT r.id, r.tenant_id, r.deployment_id, d.name, r.seq, r.kind, r.revision, r.kept, r.phase, r.reason, r.message,
		r.commit_hash, r.created_by, r.created_at, r.started_at, r.finished_at, r.operation_id
	FROM sync_runs r JOIN deployments d ON d.tenant_id = r.tenant_id AND d.id = r.deployment_id `

func (s runs) Get(ctx context.Context, tenant fleet.TenantID, id fleet.RunID) (fleet.SyncRun, error) {
	r, err := only(s.list(ctx, s.tx.of(tenant), runColumns+`WHERE r.tenant_id = $1 AND r.id = $2`, tenant, id))
	if err != nil {
		return fleet.SyncRun{}, fmt.Errorf("reading run %q: %w", id, err)
	}
	return r, nil
}

func (s runs) OfDeployment(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, f store.RunFilter) ([]fleet.SyncRun, error) {
	var a args
	query := runColumns + `WHERE r.tenant_id = ` + a.add(tenant) + ` AND r.deployment_id = ` + a.add(id)
	before, err := numberAfter(f.Page, math.MaxInt64)
	if err != nil {
		return nil, fmt.Errorf("listing runs of deployment %q: %w", id, err)
	}
	query += ` AND r.seq < ` + a.add(before)
	if f.Reason != "" {
		query += ` AND r.reason = ` + a.add(f.Reason)
	}
	out, err := s.list(ctx, s.tx.of(tenant), query+` ORDER BY r.seq DESC LIMIT `+a.add(limitOf(f.Limit)), a...)
	if err != nil {
		return nil, fmt.Errorf("listing runs of deployment %q: %w", id, err)
	}
	return out, nil
}

func (s runs) Open(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) ([]fleet.SyncRun, error) {
	out, err := s.list(ctx, s.tx.of(tenant), runColumns+`WHERE r.tenant_id = $1 AND r.deployment_id = $2
		AND r.phase IN ('Pending', 'Running') ORDER BY r.seq`, tenant, id)
	if err != nil {
		return nil, fmt.Errorf("listing open runs of deployment %q: %w", id, err)
	}
	return out, nil
}

func (s runs) OpenAllTenants(ctx context.Context) ([]fleet.SyncRun, error) {
	out, err := s.list(ctx, s.tx.everywhere(), runColumns+`WHERE r.phase IN ('Pending', 'Running')
		ORDER BY r.tenant_id, r.deployment_id, r.seq`)
	if err != nil {
		return nil, fmt.Errorf("listing open runs: %w", err)
	}
	return out, nil
}

func (s runs) WaitingForTarget(ctx context.Context, tenant fleet.TenantID, target fleet.TargetID) (fleet.SyncRun, error) {
	r, err := only(s.list(ctx, s.tx.of(tenant), runColumns+`JOIN run_targets w ON w.tenant_id = r.tenant_id AND w.run_id = r.id
		WHERE w.tenant_id = $1 AND w.target_id = $2 AND NOT w.done AND r.phase = 'Running'
		ORDER BY r.seq LIMIT 1`, tenant, target))
	if err != nil {
		return fleet.SyncRun{}, fmt.Errorf("searching for a run that waits for target %q: %w", target, err)
	}
	return r, nil
}

func (s runs) WaitingForTargets(ctx context.Context, tenant fleet.TenantID, targets []fleet.TargetID) (map[fleet.TargetID]fleet.SyncRun, error) {
	out, err := s.waitingFor(ctx, tenant, targets)
	if err != nil {
		return nil, fmt.Errorf("searching for runs that wait for %d targets: %w", len(targets), err)
	}
	return out, nil
}

// waitingFor reads the runs in a second query, only if there are any: usually nothing waits.
func (s runs) waitingFor(ctx context.Context, tenant fleet.TenantID, targets []fleet.TargetID) (map[fleet.TargetID]fleet.SyncRun, error) {
	out := map[fleet.TargetID]fleet.SyncRun{}
	if len(targets) == 0 {
		return out, nil
	}
	waited := map[fleet.RunID][]fleet.TargetID{}
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var target fleet.TargetID
		var run fleet.RunID
		err := row.Scan(&target, &run)
		waited[run] = append(waited[run], target)
		return err
	}, `SELECT w.target_id, w.run_id FROM run_targets w JOIN sync_runs r ON r.tenant_id = w.tenant_id AND r.id = w.run_id
		WHERE w.tenant_id = $1 AND w.target_id IN (SELECT value FROM json_each($2)) AND NOT w.done AND r.phase = 'Running'`,
		tenant, idList(targets))
	if err != nil || len(waited) == 0 {
		return out, err
	}
	found, err := s.list(ctx, s.tx.of(tenant), runColumns+`WHERE r.tenant_id = $1 AND r.id IN (SELECT value FROM json_each($2))
		ORDER BY r.seq DESC`, tenant, idList(slices.Sorted(maps.Keys(waited))))
	for _, r := range found { // the first one counts
		for _, target := range waited[r.ID] {
			out[target] = r
		}
	}
	return out, err
}

func (s runs) list(ctx context.Context, db bound, query string, args ...any) ([]fleet.SyncRun, error) {
	var out []fleet.SyncRun
	err := db.each(ctx, func(row Row) error {
		var r fleet.SyncRun
		err := row.Scan(&r.ID, &r.TenantID, &r.DeploymentID, &r.Deployment, &r.Seq, &r.Kind, &r.Revision, &r.Kept, &r.Phase, &r.Reason, &r.Message,
			&r.Commit, &r.By, timeInto(&r.CreatedAt), timeInto(&r.StartedAt), timeInto(&r.FinishedAt), &r.OperationID)
		out = append(out, r)
		return err
	}, query, args...)
	return out, err
}

func (s runs) Update(ctx context.Context, r fleet.SyncRun) error {
	var deployment fleet.DeploymentID
	err := s.tx.of(r.TenantID).returning(ctx, []any{&deployment}, `UPDATE sync_runs SET revision = $3, kept = $4, phase = $5,
			message = $6, commit_hash = $7, started_at = $8, finished_at = $9, reason = $10
		WHERE tenant_id = $1 AND id = $2 RETURNING deployment_id`, r.TenantID, r.ID, r.Revision, r.Kept, r.Phase,
		r.Message, r.Commit, micros(r.StartedAt), micros(r.FinishedAt), r.Reason)
	if err != nil {
		return fmt.Errorf("updating run %q: %w", r.ID, err)
	}
	return s.recordRun(r.TenantID, r.ID, deployment)
}

func (s runs) Trim(ctx context.Context, tenant fleet.TenantID, n int) error {
	_, err := s.tx.of(tenant).exec(ctx, `DELETE FROM sync_runs WHERE tenant_id = $1 AND id IN (
		SELECT done.id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY deployment_id ORDER BY seq DESC) AS place FROM sync_runs
			WHERE tenant_id = $1 AND phase IN ('Succeeded', 'Failed', 'Terminated')) AS done
		WHERE done.place > $2)`, tenant, max(n, 0))
	if err != nil {
		return fmt.Errorf("trimming runs to %d per deployment: %w", n, err)
	}
	return nil
}
