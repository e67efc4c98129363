package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func (s targets) recordTarget(kind store.ChangeKind, tenant fleet.TenantID, id fleet.TargetID,
	agent fleet.AgentID, deployment fleet.DeploymentID) error {
	return s.tx.record(store.Change{TenantID: tenant, Kind: kind, ID: string(id), AgentID: agent, DeploymentID: deployment})
}

// newestOf is the newest rendered digest for a target of deployment $2 with variant $3; "" is the deployment
// itself.
const newestOf = `CASE WHEN $3 = '' THEN (SELECT x.rendered_digest FROM deployments x WHERE x.tenant_id = $1 AND x.id = $2)
	ELSE (SELECT x.rendered_digest FROM deployment_variants x WHERE x.tenant_id = $1 AND x.deployment_id = $2 AND x.name = $3) END`

// Create uses the agent name of t, and reads it only for agents of the tenant itself.
func (s targets) Create(ctx context.Context, t fleet.Target) error {
	o := t.Observed
	err := s.tx.of(t.TenantID).insert(ctx, `INSERT INTO targets (tenant_id, deployment_id, variant, id, deployment_name,
			agent_tenant, agent_id, agent_name, grant_id, detached_at, detached_why, left_in, variant_error, newest_digest,
			desired_epoch, desired_generation, desired_digest, desired_commit, desired_namespace,
			desired_prune, desired_adopt, desired_allow_empty, desired_manual, desired_prune_on_detach,
			desired_force_conflicts, desired_replace_objects, desired_dry_run, desired_drift, desired_ignore_fields,
			desired_service_account, desired_propagation, desired_prune_timeout, desired_ready_timeout,
			desired_prune_limit_objects, desired_prune_limit_percent,
			desired_hold_prune, desired_consent, desired_confirmed, desired_hand_overs, desired_tombstone, desired_detached, desired_source, desired_hold_protected,
			observed_epoch, observed_generation, observed_digest, observed_sync, observed_health, observed_as_of, observed_message, desired_create_namespace, observed_reason,
			included_kinds, excluded_kinds, kind_error)
		VALUES ($1, $2, $3, $4, COALESCE((SELECT x.name FROM deployments x WHERE x.tenant_id = $1 AND x.id = $2), ''),
			$5, $6, CASE WHEN $7 <> '' THEN $7 ELSE COALESCE((SELECT x.name FROM agents x WHERE x.tenant_id = $1 AND x.id = $6), '') END,
			$8, $9, $10, $11, $12, `+newestOf+`,
			$13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31,
			$32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53)
		ON CONFLICT DO NOTHING`,
		slices.Concat([]any{
			string(t.TenantID), string(t.DeploymentID), t.Variant, string(t.ID),
			string(cmp.Or(t.AgentTenant, t.TenantID)), nullable(string(t.AgentID)), t.AgentName,
			nullable(string(t.GrantID)), micros(t.DetachedAt), t.DetachedWhy, t.LeftIn, t.VariantError,
		}, desiredValues(t.Desired), []any{
			o.Epoch, o.Generation, o.Digest, string(o.Sync), string(o.Health), micros(o.AsOf), o.Message, t.Desired.Policy.CreateNamespace, string(o.Reason),
			textList(t.Kinds.Include), textList(t.Kinds.Exclude), t.KindError,
		})...)
	if err != nil {
		return fmt.Errorf("creating target %q: %w", t.ID, err)
	}
	s.tx.visit(t.TenantID, t.AgentTenant)
	return s.recordTarget(store.ChangeDesired, t.TenantID, t.ID, t.AgentID, t.DeploymentID)
}

// desiredValues returns the values of the desired_ columns, in their order, except desired_create_namespace.
func desiredValues(d fleet.Desired) []any {
	return slices.Concat(
		[]any{d.Epoch, d.Generation, nullable(d.Digest), d.Commit, d.Namespace},
		policyValues(d.Policy),
		[]any{d.HoldPrune, d.Consent, textList(d.Confirmed), handOverText(d.HandOvers), d.Tombstone, d.Detached, d.SourceRevision, d.HoldProtected})
}

func (s targets) SetDesired(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, d fleet.Desired) error {
	err := s.change(ctx, tenant, id, `UPDATE targets SET
			desired_epoch = $3, desired_generation = $4, desired_digest = $5, desired_commit = $6,
			desired_namespace = $7, desired_prune = $8, desired_adopt = $9, desired_allow_empty = $10,
			desired_manual = $11, desired_prune_on_detach = $12, desired_force_conflicts = $13, desired_replace_objects = $14,
			desired_dry_run = $15, desired_drift = $16, desired_ignore_fields = $17, desired_service_account = $18,
			desired_propagation = $19, desired_prune_timeout = $20, desired_ready_timeout = $21, desired_prune_limit_objects = $22,
			desired_prune_limit_percent = $23, desired_hold_prune = $24, desired_consent = $25, desired_confirmed = $26,
			desired_hand_overs = $27, desired_tombstone = $28, desired_detached = $29, desired_source = $30, desired_hold_protected = $31,
			desired_create_namespace = $32
		WHERE tenant_id = $1 AND id = $2 `+ofTarget, append(desiredValues(d), d.Policy.CreateNamespace)...)
	if err != nil {
		return fmt.Errorf("setting the desired state of target %q: %w", id, err)
	}
	return nil
}

func (s targets) SetSourceRevision(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, revision int64) error {
	n, err := s.tx.of(tenant).exec(ctx, `UPDATE targets SET desired_source = $3 WHERE tenant_id = $1 AND id = $2`, tenant, id, revision)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("setting the source revision of target %q: %w", id, err)
	}
	return nil
}

func (s targets) SetPlace(ctx context.Context, t fleet.Target) error {
	// The newest digest of a target depends on its variant.
	err := s.change(ctx, t.TenantID, t.ID, `UPDATE targets SET variant = $3, grant_id = $4, detached_at = $5, detached_why = $6, agent_id = $7, left_in = $8, variant_error = $9,
			included_kinds = $10, excluded_kinds = $11, kind_error = $12, agent_name = $13,
			newest_digest = CASE WHEN $3 = ''
				THEN (SELECT x.rendered_digest FROM deployments x WHERE x.tenant_id = $1 AND x.id = targets.deployment_id)
				ELSE (SELECT x.rendered_digest FROM deployment_variants x
					WHERE x.tenant_id = $1 AND x.deployment_id = targets.deployment_id AND x.name = $3) END
		WHERE tenant_id = $1 AND id = $2 `+ofTarget,
		t.Variant, nullable(string(t.GrantID)), micros(t.DetachedAt), t.DetachedWhy, nullable(string(t.AgentID)), t.LeftIn, t.VariantError,
		textList(t.Kinds.Include), textList(t.Kinds.Exclude), t.KindError, t.AgentName)
	if err != nil {
		return fmt.Errorf("writing the placement of target %q: %w", t.ID, err)
	}
	return nil
}

func (s targets) Remove(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID) error {
	err := s.change(ctx, tenant, id, `DELETE FROM targets WHERE tenant_id = $1 AND id = $2 `+ofTarget)
	if err != nil {
		return fmt.Errorf("removing target %q: %w", id, err)
	}
	return nil
}

// ofTarget is the RETURNING clause of statements on one target.
const ofTarget = `RETURNING COALESCE(agent_id, ''), agent_tenant, deployment_id`

// change runs a statement on one target with ofTarget, and records it.
func (s targets) change(ctx context.Context, tenant fleet.TenantID, id fleet.TargetID, query string, more ...any) error {
	var agent fleet.AgentID
	var place fleet.TenantID
	var deployment fleet.DeploymentID
	err := s.tx.of(tenant).returning(ctx, []any{&agent, &place, &deployment}, query, append([]any{string(tenant), string(id)}, more...)...)
	if err != nil {
		return err
	}
	s.tx.visit(tenant, place)
	return s.recordTarget(store.ChangeDesired, tenant, id, agent, deployment)
}
