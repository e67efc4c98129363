package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// pushColumns are the columns of a push environment. The revision of the credential is 0 without one.
const pushColumns = `push_api_url, push_namespaces, push_cluster_resources, push_credential, push_instance, push_moving_from,
	checked_revision, checked_reason, checked_message, checked_at,
	COALESCE((SELECT c.spec FROM credentials c WHERE c.tenant_id = environments.tenant_id AND c.id = environments.push_credential), 0)`

// pushRow reads pushColumns.
type pushRow struct {
	fleet.Push
	namespaces string
}

func (r *pushRow) into() []any {
	return []any{
		&r.APIURL, &r.namespaces, &r.ClusterResources, &r.CredentialID, &r.Instance, &r.MovingFrom,
		&r.Check.Revision, &r.Check.Cause.Reason, &r.Check.Cause.Message, timeInto(&r.Check.AsOf), &r.CredentialRevision,
	}
}

// push returns nil for an environment that selects agents.
func (r *pushRow) push() *fleet.Push {
	if r.APIURL == "" {
		return nil
	}
	if r.namespaces != "" {
		r.Namespaces = strings.Split(r.namespaces, ",")
	}
	return &r.Push
}

// pushValues returns the columns that a user or the placement changes.
func pushValues(p *fleet.Push) []any {
	if p == nil {
		p = &fleet.Push{}
	}
	return []any{p.APIURL, strings.Join(p.Namespaces, ","), p.ClusterResources, p.CredentialID, p.Instance, p.MovingFrom}
}

func (s environments) SetCheck(ctx context.Context, tenant fleet.TenantID, id fleet.EnvironmentID, c fleet.EndpointCheck) error {
	if !s.tx.writable {
		return store.ErrReadOnly
	}
	was, err := s.Get(ctx, tenant, id)
	if err != nil {
		return fmt.Errorf("recording a check: %w", err)
	}
	if was.Push != nil && was.Push.Check.Revision == c.Revision && was.Push.Check.Cause == c.Cause {
		return nil
	}
	_, err = s.tx.of(tenant).exec(ctx, `UPDATE environments SET checked_revision = $3, checked_reason = $4, checked_message = $5, checked_at = $6
		WHERE tenant_id = $1 AND id = $2`, tenant, id, c.Revision, c.Cause.Reason, c.Cause.Message, micros(c.AsOf))
	if err != nil {
		return fmt.Errorf("recording the check of environment %q: %w", id, err)
	}
	return s.tx.recordEnvironment(tenant, id)
}
