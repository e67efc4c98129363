package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type pendingSpecs struct{ tx *Tx }

const pendingColumns = `SELECT p.tenant_id, p.deployment_id, p.spec, p.repository_id, r.url, p.path, p.revision,
		p.kind, p.helm_release, p.helm_values_files, p.helm_values, p.helm_skip_crds,
		p.environment_tenant, p.environment_id, p.environment_name, p.namespace,
		p.prune, p.adopt, p.allow_empty, p.manual, p.prune_on_detach,
		p.force_conflicts, p.replace_objects, p.dry_run, p.drift, p.ignore_fields,
		p.service_account, p.propagation, p.prune_timeout, p.ready_timeout, p.prune_limit_objects, p.prune_limit_percent,
		p.labels, p.globs, p.variables, p.asked_by, p.edited_at, p.reason, p.problem, p.create_namespace, p.helm_set
	FROM pending_specs p
	CROSS JOIN repositories r ON (r.tenant_id = p.tenant_id AND r.id = p.repository_id) `

func scanPending(row Row) (fleet.PendingSpec, error) {
	var p fleet.PendingSpec
	src := &p.Source
	err := row.Scan(slices.Concat([]any{&p.TenantID, &p.DeploymentID, &p.SpecRevision, &p.RepositoryID, &src.RepoURL, &src.Path, &src.Revision,
		&src.Kind, &src.Helm.ReleaseName, listInto(&src.Helm.ValuesFiles), &src.Helm.Values, &src.Helm.SkipCRDs,
		&p.EnvironmentTenant, &p.EnvironmentID, &p.Environment, &p.Namespace,
	}, policyInto(&p.Policy), []any{
		mapInto(&p.Labels), listInto(&src.Globs), mapInto(&src.Variables), &p.By, timeInto(&p.EditedAt), &p.Reason, &p.Problem, &p.Policy.CreateNamespace, setsInto(&src.Helm.Set),
	})...)
	return p, err
}

func (s pendingSpecs) Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (fleet.PendingSpec, error) {
	p, err := only(s.list(ctx, s.tx.of(tenant), `WHERE p.tenant_id = $1 AND p.deployment_id = $2`, tenant, id))
	if err != nil {
		return fleet.PendingSpec{}, fmt.Errorf("reading the pending spec of deployment %q: %w", id, err)
	}
	return p, nil
}

func (s pendingSpecs) Of(ctx context.Context, tenant fleet.TenantID, ids []fleet.DeploymentID) ([]fleet.PendingSpec, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := s.list(ctx, s.tx.of(tenant), `WHERE p.tenant_id = $1 AND p.deployment_id IN (SELECT value FROM json_each($2))
		ORDER BY p.deployment_id`, tenant, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading the pending specs of %d deployments: %w", len(ids), err)
	}
	return out, nil
}

func (s pendingSpecs) OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.PendingSpec, error) {
	out, err := s.list(ctx, s.tx.of(tenant), `WHERE p.tenant_id = $1 AND p.repository_id = $2 ORDER BY p.deployment_id`, tenant, repo)
	if err != nil {
		return nil, fmt.Errorf("listing the pending specs of repository %q: %w", repo, err)
	}
	return out, nil
}

func (s pendingSpecs) OfEnvironmentAllTenants(ctx context.Context, env fleet.EnvironmentID) ([]fleet.PendingSpec, error) {
	out, err := s.list(ctx, s.tx.atPlace("environments", string(env)), `WHERE p.environment_id = $1 ORDER BY p.tenant_id, p.deployment_id`, env)
	if err != nil {
		return nil, fmt.Errorf("listing the pending specs of environment %q: %w", env, err)
	}
	return out, nil
}

func (s pendingSpecs) list(ctx context.Context, db bound, where string, args ...any) ([]fleet.PendingSpec, error) {
	var out []fleet.PendingSpec
	err := db.each(ctx, func(row Row) error {
		p, err := scanPending(row)
		out = append(out, p)
		return err
	}, pendingColumns+where, args...)
	return out, err
}

func (s pendingSpecs) Put(ctx context.Context, p fleet.PendingSpec) error {
	if err := s.put(ctx, p); err != nil {
		return fmt.Errorf("writing a pending spec of deployment %q: %w", p.DeploymentID, err)
	}
	return deployments(s).recordDeployment(p.TenantID, p.DeploymentID)
}

func (s pendingSpecs) put(ctx context.Context, p fleet.PendingSpec) error {
	db := s.tx.of(p.TenantID)
	var left fleet.TenantID
	var name string
	err := db.returning(ctx, []any{&p.SpecRevision, &left, &name}, `UPDATE deployments SET spec = spec + 1, pending_spec = spec + 1
		WHERE tenant_id = $1 AND id = $2 RETURNING spec, environment_tenant, name`, p.TenantID, p.DeploymentID)
	if err != nil {
		return err
	}
	if _, err := s.drop(ctx, p.TenantID, p.DeploymentID); err != nil {
		return err
	}
	s.tx.visit(p.TenantID, left)
	s.tx.visit(p.TenantID, p.EnvironmentTenant)
	environment, err := deployments(s).environmentName(ctx, fleet.Deployment{
		TenantID: p.TenantID, EnvironmentTenant: p.EnvironmentTenant, EnvironmentID: p.EnvironmentID,
	})
	if err != nil {
		return err
	}
	return db.insert(ctx, `INSERT INTO pending_specs (tenant_id, deployment_id, deployment_name, spec, repository_id, path, revision,
			environment_tenant, environment_id, environment_name, namespace, prune, adopt, allow_empty, manual, prune_on_detach,
			force_conflicts, replace_objects, dry_run, drift, ignore_fields, service_account,
			propagation, prune_timeout, ready_timeout, prune_limit_objects, prune_limit_percent,
			kind, helm_release, helm_values_files, helm_values, helm_skip_crds,
			labels, globs, variables, asked_by, edited_at, reason, problem, create_namespace, helm_set)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
			$24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41)
		ON CONFLICT DO NOTHING`,
		slices.Concat([]any{
			p.TenantID, p.DeploymentID, name, p.SpecRevision, p.RepositoryID, p.Source.Path, p.Source.Revision,
			p.EnvironmentTenant, p.EnvironmentID, environment, p.Namespace,
		}, policyValues(p.Policy), renderingValues(p.Source), []any{
			textMap(p.Labels), textList(p.Source.Globs), textMap(p.Source.Variables), p.By, micros(p.EditedAt), p.Reason, p.Problem, p.Policy.CreateNamespace, setsText(p.Source.Helm.Set),
		})...)
}

func (s pendingSpecs) SetProblem(ctx context.Context, p fleet.PendingSpec) error {
	n, err := s.tx.of(p.TenantID).exec(ctx, `UPDATE pending_specs SET reason = $4, problem = $5, edited_at = $6
		WHERE tenant_id = $1 AND deployment_id = $2 AND spec = $3
			AND (reason <> $4 OR problem <> $5 OR edited_at IS DISTINCT FROM $6)`,
		p.TenantID, p.DeploymentID, p.SpecRevision, p.Reason, p.Problem, micros(p.EditedAt))
	if err == nil && n == 0 {
		var one int
		err = s.tx.of(p.TenantID).get(ctx, []any{&one}, `SELECT 1 FROM pending_specs WHERE tenant_id = $1 AND deployment_id = $2 AND spec = $3`,
			p.TenantID, p.DeploymentID, p.SpecRevision)
	}
	if err != nil {
		return fmt.Errorf("recording why a spec of deployment %q is pending: %w", p.DeploymentID, err)
	}
	if n == 0 {
		return nil
	}
	return deployments(s).recordDeployment(p.TenantID, p.DeploymentID)
}

func (s pendingSpecs) Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	n, err := s.drop(ctx, tenant, id)
	if err == nil && n > 0 {
		_, err = deployments(s).change(ctx, tenant, id, `UPDATE deployments SET pending_spec = 0, spec = spec + 1 WHERE tenant_id = $1 AND id = $2`)
	}
	if err != nil {
		return fmt.Errorf("removing the pending spec of deployment %q: %w", id, err)
	}
	return nil
}

// drop deletes the row, if there is one. Other tenants may have decided on its reference to their environment.
func (s pendingSpecs) drop(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (int, error) {
	n := 0
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var place fleet.TenantID
		err := row.Scan(&place)
		s.tx.visit(tenant, place)
		n++
		return err
	}, `SELECT environment_tenant FROM pending_specs WHERE tenant_id = $1 AND deployment_id = $2`, tenant, id)
	if err != nil || n == 0 {
		return 0, err
	}
	_, err = s.tx.of(tenant).exec(ctx, `DELETE FROM pending_specs WHERE tenant_id = $1 AND deployment_id = $2`, tenant, id)
	return n, err
}

func (s deployments) Promote(ctx context.Context, d fleet.Deployment) error {
	if err := s.promote(ctx, d); err != nil {
		return fmt.Errorf("putting a spec of deployment %q in force: %w", d.ID, err)
	}
	return s.recordDeployment(d.TenantID, d.ID)
}

func (s deployments) promote(ctx context.Context, d fleet.Deployment) error {
	n, err := pendingSpecs(s).drop(ctx, d.TenantID, d.ID)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return err
	}
	if err := s.update(ctx, d, 0); err != nil {
		return err
	}
	_, err = s.tx.of(d.TenantID).exec(ctx, `UPDATE deployments SET pending_spec = 0, source_revision = $3, detected = $4, source_error = '', source_reason = '',
			source_at = CASE WHEN source_error <> '' THEN NULL ELSE source_at END
		WHERE tenant_id = $1 AND id = $2`, d.TenantID, d.ID, d.SourceRevision, d.Detected)
	return err
}

// textMap stores a map that is always read completely as JSON, or "" if it is empty.
func textMap(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "" // texts always have a JSON form
	}
	return string(text)
}

// mapInto scans a value of textMap; an empty map becomes an empty, non-nil map.
func mapInto(to *map[string]string) *mapScanner { return &mapScanner{to} }

type mapScanner struct{ dest *map[string]string }

func (s *mapScanner) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("scanning a map from %T", src)
	}
	*s.dest = map[string]string{}
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), s.dest); err != nil {
		return fmt.Errorf("scanning a map: %w", err)
	}
	return nil
}
