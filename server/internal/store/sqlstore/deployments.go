package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type deployments struct{ tx *Tx }

const deploymentColumns = `SELECT d.id, d.tenant_id, d.name, d.repository_id, r.url, d.path, d.revision,
		d.kind, d.helm_release, d.helm_values_files, d.helm_values, d.helm_skip_crds, d.helm_set,
		d.environment_tenant, d.environment_id, d.environment_name, d.namespace,
		d.prune, d.adopt, d.allow_empty, d.manual, d.prune_on_detach,
		d.force_conflicts, d.replace_objects, d.dry_run, d.drift, d.ignore_fields,
		d.service_account, d.propagation, d.prune_timeout, d.ready_timeout, d.prune_limit_objects, d.prune_limit_percent,
		d.pin_revision, d.pin_commit, d.pinned_at, d.pinned_by, d.pin_source, d.pin_terminated_run,
		d.spec, d.pending_spec, d.source_revision, d.created_at, d.deleted_at,
		d.rendered_commit, d.rendered_key, COALESCE(d.rendered_digest, ''), d.rendered_at,
		d.rendered_reads, d.rendered_volatile, d.detected, d.source_reason, d.source_error, d.source_at,
		d.suspended_at, d.suspended_by, d.suspension_reason, d.create_namespace
	FROM deployments d
	CROSS JOIN repositories r ON (r.tenant_id = d.tenant_id AND r.id = d.repository_id) `

func scanDeployment(row Row) (fleet.Deployment, error) {
	d := fleet.Deployment{Labels: map[string]string{}, Source: fleet.Source{Variables: map[string]string{}}}
	err := row.Scan(slices.Concat([]any{&d.ID, &d.TenantID, &d.Name, &d.RepositoryID, &d.Source.RepoURL, &d.Source.Path, &d.Source.Revision,
		&d.Source.Kind, &d.Source.Helm.ReleaseName, listInto(&d.Source.Helm.ValuesFiles), &d.Source.Helm.Values, &d.Source.Helm.SkipCRDs, setsInto(&d.Source.Helm.Set),
		&d.EnvironmentTenant, &d.EnvironmentID, &d.Environment, &d.Namespace,
	}, policyInto(&d.Policy), []any{
		&d.Pin.Revision, &d.Pin.Commit, timeInto(&d.Pin.At), &d.Pin.By, &d.Pin.SourceRevision, &d.Pin.TerminatedRun,
		&d.SpecRevision, &d.PendingSpecRevision, &d.SourceRevision, timeInto(&d.CreatedAt), timeInto(&d.DeletedAt),
		&d.Rendered.Commit, &d.Rendered.Key, &d.Rendered.Digest, timeInto(&d.Rendered.At),
		listInto(&d.Rendered.Reads), &d.Rendered.Volatile, &d.Detected, &d.SourceReason, &d.SourceError, timeInto(&d.SourceSince),
	}, suspensionInto(&d.Suspension), []any{&d.Policy.CreateNamespace})...)
	return d, err
}

func (s deployments) Get(ctx context.Context, tenant fleet.TenantID, id fleet.DeploymentID) (fleet.Deployment, error) {
	d, err := only(s.list(ctx, s.tx.of(tenant), deploymentColumns+`WHERE d.tenant_id = $1 AND d.id = $2`, tenant, id))
	if err != nil {
		return fleet.Deployment{}, fmt.Errorf("reading deployment %q: %w", id, err)
	}
	return d, nil
}

func (s deployments) ByName(ctx context.Context, tenant fleet.TenantID, name string) (fleet.Deployment, error) {
	d, err := only(s.list(ctx, s.tx.of(tenant), deploymentColumns+`WHERE d.tenant_id = $1 AND d.name = $2 AND d.deleted_at IS NULL`,
		tenant, name))
	if err != nil {
		return fleet.Deployment{}, fmt.Errorf("reading deployment %q: %w", name, err)
	}
	return d, nil
}

func (s deployments) LeavingByName(ctx context.Context, tenant fleet.TenantID, name string) ([]fleet.Deployment, error) {
	out, err := s.list(ctx, s.tx.of(tenant), deploymentColumns+`WHERE d.tenant_id = $1 AND d.name = $2 AND d.deleted_at IS NOT NULL
		ORDER BY d.deleted_at DESC, d.id`, tenant, name)
	if err != nil {
		return nil, fmt.Errorf("reading deployments %q that are being deleted: %w", name, err)
	}
	return out, nil
}

func (s deployments) OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.Deployment, error) {
	out, err := s.list(ctx, s.tx.of(tenant), deploymentColumns+`WHERE d.tenant_id = $1 AND d.repository_id = $2
		AND d.deleted_at IS NULL ORDER BY d.name`, tenant, repo)
	if err != nil {
		return nil, fmt.Errorf("listing deployments of repository %q: %w", repo, err)
	}
	return out, nil
}

func (s deployments) OfRepositoryByID(
	ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID, ids []fleet.DeploymentID,
) ([]fleet.Deployment, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out, err := s.list(ctx, s.tx.of(tenant), deploymentColumns+`WHERE d.tenant_id = $1 AND d.id IN (SELECT value FROM json_each($3)) AND d.repository_id = $2
		AND d.deleted_at IS NULL ORDER BY d.name`, tenant, repo, idList(ids))
	if err != nil {
		return nil, fmt.Errorf("reading %d deployments of repository %q: %w", len(ids), repo, err)
	}
	return out, nil
}

func (s deployments) BriefsOfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]store.DeploymentBrief, error) {
	var out []store.DeploymentBrief
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var b store.DeploymentBrief
		err := row.Scan(&b.ID, &b.Revision, &b.Rendered, &b.Pending)
		out = append(out, b)
		return err
	}, `SELECT id, revision, rendered_commit <> '', pending_spec <> 0 FROM deployments
		WHERE tenant_id = $1 AND repository_id = $2 AND deleted_at IS NULL ORDER BY name`, tenant, repo)
	if err != nil {
		return nil, fmt.Errorf("listing deployments of repository %q: %w", repo, err)
	}
	return out, nil
}

func (s deployments) OfEnvironmentAllTenants(ctx context.Context, env fleet.EnvironmentID) ([]fleet.Deployment, error) {
	out, err := s.list(ctx, s.tx.atPlace("environments", string(env)), deploymentColumns+`WHERE d.environment_id = $1
		AND d.deleted_at IS NULL ORDER BY d.tenant_id, d.name`, env)
	if err != nil {
		return nil, fmt.Errorf("listing deployments of environment %q: %w", env, err)
	}
	return out, nil
}

// Count omits deployments that are being deleted: their names are free, and they do not count for the quota.
func (s deployments) Count(ctx context.Context, tenant fleet.TenantID) (int, error) {
	var n int
	err := s.tx.of(tenant).get(ctx, []any{&n}, `SELECT COUNT(*) FROM deployments WHERE tenant_id = $1 AND deleted_at IS NULL`, tenant)
	if err != nil {
		return 0, fmt.Errorf("counting deployments: %w", err)
	}
	return n, nil
}

// list reads deployments and then, with one query each, their child rows.
func (s deployments) list(ctx context.Context, db bound, query string, args ...any) ([]fleet.Deployment, error) {
	var out []fleet.Deployment
	at := map[fleet.DeploymentID]int{}
	err := db.each(ctx, func(row Row) error {
		d, err := scanDeployment(row)
		at[d.ID] = len(out)
		out = append(out, d)
		return err
	}, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	below := []struct {
		query string
		keep  func(d *fleet.Deployment, key, value string)
	}{
		{`SELECT deployment_id, '', glob FROM deployment_globs
			WHERE deployment_id IN (SELECT value FROM json_each($1)) AND tenant_id IN (SELECT value FROM json_each($2))
			ORDER BY deployment_id, position`,
			func(d *fleet.Deployment, _, glob string) { d.Source.Globs = append(d.Source.Globs, glob) }},
		{`SELECT deployment_id, name, value FROM deployment_variables
			WHERE deployment_id IN (SELECT value FROM json_each($1)) AND tenant_id IN (SELECT value FROM json_each($2))`,
			func(d *fleet.Deployment, name, value string) { d.Source.Variables[name] = value }},
		{`SELECT deployment_id, key, value FROM deployment_labels
			WHERE deployment_id IN (SELECT value FROM json_each($1)) AND tenant_id IN (SELECT value FROM json_each($2))`,
			func(d *fleet.Deployment, key, value string) { d.Labels[key] = value }},
	}
	ids, owners := idList(idsOf(out, func(d *fleet.Deployment) fleet.DeploymentID { return d.ID })), idList(ownersOf(out))
	for _, b := range below {
		err := db.each(ctx, func(row Row) error {
			var id fleet.DeploymentID
			var key, value string
			err := row.Scan(&id, &key, &value)
			b.keep(&out[at[id]], key, value)
			return err
		}, b.query, ids, owners)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ownersOf returns the tenants of deployments that are sorted by tenant.
func ownersOf(rows []fleet.Deployment) []fleet.TenantID {
	var out []fleet.TenantID
	for i := range rows {
		if i == 0 || rows[i].TenantID != rows[i-1].TenantID {
			out = append(out, rows[i].TenantID)
		}
	}
	return out
}
