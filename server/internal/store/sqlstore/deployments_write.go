package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s deployments) recordDeployment(tenant fleet.TenantID, id fleet.DeploymentID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeDeployment, ID: string(id), DeploymentID: id})
}

func (s deployments) Create(ctx context.Context, d fleet.Deployment) error {
	if err := s.create(ctx, d); err != nil {
		return fmt.Errorf("creating deployment %q: %w", d.Name, err)
	}
	return s.recordDeployment(d.TenantID, d.ID)
}

func (s deployments) create(ctx context.Context, d fleet.Deployment) error {
	d.EnvironmentTenant = cmp.Or(d.EnvironmentTenant, d.TenantID)
	environment, err := s.environmentName(ctx, d)
	if err != nil {
		return err
	}
	x, r := d.Suspension, d.Rendered
	err = s.tx.of(d.TenantID).insert(ctx, `INSERT INTO deployments (tenant_id, id, name, repository_id, path, revision,
			environment_tenant, environment_id, environment_name, namespace, prune, adopt, allow_empty, manual, prune_on_detach,
			force_conflicts, replace_objects, dry_run, drift, ignore_fields, service_account,
			propagation, prune_timeout, ready_timeout, prune_limit_objects, prune_limit_percent,
			suspended_at, suspended_by, suspension_reason, pin_revision, pin_commit, pinned_at, pinned_by, pin_source, spec,
			source_revision, created_at, deleted_at, rendered_commit, rendered_key, rendered_digest, rendered_at, source_error, source_at,
			kind, helm_release, helm_values_files, helm_values, helm_skip_crds, rendered_reads, rendered_volatile, detected, create_namespace, helm_set, pin_terminated_run, source_reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
			$24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43,
			$44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56)
		ON CONFLICT DO NOTHING`,
		slices.Concat([]any{
			d.TenantID, d.ID, d.Name, d.RepositoryID, d.Source.Path, d.Source.Revision,
			d.EnvironmentTenant, d.EnvironmentID, environment, d.Namespace,
		}, policyValues(d.Policy), []any{
			micros(x.At), x.By, x.Reason, d.Pin.Revision, d.Pin.Commit, micros(d.Pin.At), d.Pin.By, d.Pin.SourceRevision, cmp.Or(d.SpecRevision, 1),
			cmp.Or(d.SourceRevision, 1), micros(d.CreatedAt), micros(d.DeletedAt), r.Commit, r.Key, nullable(r.Digest), micros(r.At), d.SourceError, micros(d.SourceSince),
		}, renderingValues(d.Source), []any{textList(r.Reads), r.Volatile, d.Detected, d.Policy.CreateNamespace, setsText(d.Source.Helm.Set), d.Pin.TerminatedRun, d.SourceReason})...)
	if err != nil {
		return err
	}
	s.tx.visit(d.TenantID, d.EnvironmentTenant)
	if err := deploymentWords.add(ctx, s.tx, d.TenantID, string(d.ID), suffixes(d.Name, d.Source.Path)); err != nil {
		return err
	}
	return s.fill(ctx, d)
}

// renderingValues returns the render settings of a source.
func renderingValues(s fleet.Source) []any {
	return []any{s.Kind, s.Helm.ReleaseName, textList(s.Helm.ValuesFiles), s.Helm.Values, s.Helm.SkipCRDs}
}

// environmentName returns the name for users: "owner/name" for an environment of another tenant, whose rows
// this one cannot read. It is stored with the deployment, so the rows of the other tenant are read only here.
func (s deployments) environmentName(ctx context.Context, d fleet.Deployment) (name string, err error) {
	if d.EnvironmentTenant == d.TenantID {
		err = s.tx.of(d.TenantID).get(ctx, []any{&name}, `SELECT name FROM environments WHERE tenant_id = $1 AND id = $2`,
			d.TenantID, d.EnvironmentID)
	} else {
		err = s.tx.everywhere().about(Subject(d.EnvironmentTenant)).get(ctx, []any{&name}, `SELECT t.name || '/' || e.name FROM environments e
			JOIN tenants t ON t.id = e.tenant_id WHERE e.tenant_id = $1 AND e.id = $2`, d.EnvironmentTenant, d.EnvironmentID)
	}
	if err != nil {
		return "", fmt.Errorf("environment %q: %w", d.EnvironmentID, err)
	}
	return name, nil
}

// fill writes the child rows of a deployment that has none yet.
func (s deployments) fill(ctx context.Context, d fleet.Deployment) error {
	db := s.tx.of(d.TenantID)
	for i, glob := range d.Source.Globs {
		_, err := db.exec(ctx, `INSERT INTO deployment_globs (tenant_id, deployment_id, position, glob)
			VALUES ($1, $2, $3, $4)`, d.TenantID, d.ID, i, glob)
		if err != nil {
			return fmt.Errorf("glob %q: %w", glob, err)
		}
	}
	for name, value := range d.Source.Variables {
		_, err := db.exec(ctx, `INSERT INTO deployment_variables (tenant_id, deployment_id, name, value)
			VALUES ($1, $2, $3, $4)`, d.TenantID, d.ID, name, value)
		if err != nil {
			return fmt.Errorf("variable %q: %w", name, err)
		}
	}
	for key, value := range d.Labels {
		_, err := db.exec(ctx, `INSERT INTO deployment_labels (tenant_id, deployment_id, key, value, deployment_name)
			VALUES ($1, $2, $3, $4, $5)`, d.TenantID, d.ID, key, value, d.Name)
		if err != nil {
			return fmt.Errorf("label %q: %w", key, err)
		}
	}
	return nil
}

func (s deployments) Update(ctx context.Context, d fleet.Deployment) error {
	if err := s.update(ctx, d, 1); err != nil {
		return fmt.Errorf("updating deployment %q: %w", d.ID, err)
	}
	return s.recordDeployment(d.TenantID, d.ID)
}

// update raises Spec by so much.
func (s deployments) update(ctx context.Context, d fleet.Deployment, raise int) error {
	if !s.tx.writable {
		return store.ErrReadOnly
	}
	db := s.tx.of(d.TenantID)
	var path string
	var left fleet.TenantID
	err := db.get(ctx, []any{&d.Name, &path, &left}, `SELECT name, path, environment_tenant FROM deployments
		WHERE tenant_id = $1 AND id = $2 /* FOR NO KEY UPDATE */`, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	d.EnvironmentTenant = cmp.Or(d.EnvironmentTenant, d.TenantID)
	s.tx.visit(d.TenantID, left)
	s.tx.visit(d.TenantID, d.EnvironmentTenant)
	environment, err := s.environmentName(ctx, d)
	if err != nil {
		return err
	}
	x := d.Suspension
	_, err = db.exec(ctx, `UPDATE deployments SET repository_id = $3, path = $4, revision = $5, environment_tenant = $6,
			environment_id = $7, environment_name = $8, namespace = $9, prune = $10, adopt = $11, allow_empty = $12, manual = $13,
			prune_on_detach = $14, force_conflicts = $15, replace_objects = $16, dry_run = $17, drift = $18, ignore_fields = $19,
			service_account = $20, propagation = $21, prune_timeout = $22, ready_timeout = $23, prune_limit_objects = $24, prune_limit_percent = $25,
			suspended_at = $26, suspended_by = $27, suspension_reason = $28,
			pin_revision = $29, pin_commit = $30, pinned_at = $31, pinned_by = $32, pin_source = $33,
			kind = $34, helm_release = $35, helm_values_files = $36, helm_values = $37, helm_skip_crds = $38, create_namespace = $39, helm_set = $40, spec = spec + $41, pin_terminated_run = $42
		WHERE tenant_id = $1 AND id = $2`,
		slices.Concat([]any{
			d.TenantID, d.ID, d.RepositoryID, d.Source.Path, d.Source.Revision, d.EnvironmentTenant, d.EnvironmentID, environment, d.Namespace,
		}, policyValues(d.Policy), []any{
			micros(x.At), x.By, x.Reason, d.Pin.Revision, d.Pin.Commit, micros(d.Pin.At), d.Pin.By, d.Pin.SourceRevision,
		}, renderingValues(d.Source), []any{d.Policy.CreateNamespace, setsText(d.Source.Helm.Set), raise, d.Pin.TerminatedRun})...)
	if err != nil {
		return err
	}
	if err := s.reword(ctx, d, path); err != nil {
		return err
	}
	for _, table := range []string{"deployment_globs", "deployment_variables", "deployment_labels"} {
		_, err := db.exec(ctx, `DELETE FROM `+table+` WHERE tenant_id = $1 AND deployment_id = $2`, d.TenantID, d.ID)
		if err != nil {
			return err
		}
	}
	return s.fill(ctx, d)
}

// reword updates the words after a change of the path.
func (s deployments) reword(ctx context.Context, d fleet.Deployment, path string) error {
	if path == d.Source.Path {
		return nil
	}
	now := suffixes(d.Name, d.Source.Path)
	gone := slices.DeleteFunc(suffixes(d.Name, path), func(w string) bool {
		_, stays := slices.BinarySearch(now, w)
		return stays
	})
	if err := deploymentWords.drop(ctx, s.tx, d.TenantID, string(d.ID), gone); err != nil {
		return err
	}
	return deploymentWords.add(ctx, s.tx, d.TenantID, string(d.ID), now)
}

func (s deployments) MarkDeleted(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, at time.Time) error {
	_, err := s.change(ctx, tenant, id, `UPDATE deployments SET deleted_at = $3
		WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL`, micros(at))
	if err != nil {
		return fmt.Errorf("marking deployment %q as deleted: %w", id, err)
	}
	return nil
}

// change runs an update that writes the row only if it makes a difference, and then records it.
func (s deployments) change(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID, update string, args ...any) (bool, error) {
	var place fleet.TenantID
	err := s.tx.of(tenant).returning(ctx, []any{&place}, update+` RETURNING environment_tenant`, append([]any{tenant, id}, args...)...)
	switch {
	case err == nil:
		s.tx.visit(tenant, place)
		return true, s.recordDeployment(tenant, id)
	case errors.Is(err, store.ErrNotFound):
		return false, s.exists(ctx, tenant, id)
	}
	return false, err
}

func (s deployments) exists(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	var one int
	return s.tx.of(tenant).get(ctx, []any{&one}, `SELECT 1 FROM deployments WHERE tenant_id = $1 AND id = $2`, tenant, id)
}

func (s deployments) Remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	if err := s.remove(ctx, tenant, id); err != nil {
		return fmt.Errorf("removing deployment %q: %w", id, err)
	}
	return s.recordDeployment(tenant, id)
}

// remove checks for targets itself: the foreign key would also fail, but an error of the database ends the
// whole transaction.
func (s deployments) remove(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) error {
	var name, path string
	var place fleet.TenantID
	err := s.tx.of(tenant).returning(ctx, []any{&name, &path, &place}, `DELETE FROM deployments WHERE tenant_id = $1 AND id = $2 AND NOT EXISTS (
		SELECT 1 FROM targets WHERE tenant_id = $1 AND deployment_id = $2)
		RETURNING name, path, environment_tenant`, tenant, id)
	if err == nil {
		s.tx.visit(tenant, place)
		return deploymentWords.drop(ctx, s.tx, tenant, string(id), suffixes(name, path))
	}
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err := s.exists(ctx, tenant, id); err != nil {
		return err
	}
	return fmt.Errorf("it still has targets: %w", store.ErrExists)
}
