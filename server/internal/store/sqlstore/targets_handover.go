package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// handOver is the stored form of a fleet.HandOver.
type handOver struct {
	Reason     fleet.Reason       `json:"reason"`
	To         fleet.DeploymentID `json:"to,omitempty"`
	Deployment string             `json:"deployment,omitempty"`
	Repository fleet.RepositoryID `json:"repository,omitempty"`
	Objects    []string           `json:"objects"`
}

func handOverText(list []fleet.HandOver) string {
	if len(list) == 0 {
		return ""
	}
	rows := make([]handOver, len(list))
	for i, h := range list {
		rows[i] = handOver(h)
	}
	// Strings always marshal.
	b, _ := json.Marshal(rows)
	return string(b)
}

// handOversInto scans a value of handOverText; an empty list becomes nil.
func handOversInto(to *[]fleet.HandOver) *handOverScanner { return &handOverScanner{to} }

type handOverScanner struct{ dest *[]fleet.HandOver }

func (s *handOverScanner) Scan(src any) error {
	text, ok := src.(string)
	if !ok {
		return fmt.Errorf("scanning hand-overs from %T", src)
	}
	*s.dest = nil
	if text == "" {
		return nil
	}
	var rows []handOver
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return fmt.Errorf("scanning hand-overs: %w", err)
	}
	for _, h := range rows {
		*s.dest = append(*s.dest, fleet.HandOver(h))
	}
	return nil
}

func (s targets) HandingOver(ctx context.Context, tenant fleet.TenantID) ([]fleet.Target, error) {
	out, err := s.list(ctx, s.tx.of(tenant), targetColumns+`WHERE t.tenant_id = $1 AND t.desired_hand_overs <> '' ORDER BY t.id`, tenant)
	if err != nil {
		return nil, fmt.Errorf("listing targets that hand objects over: %w", err)
	}
	return out, nil
}

func (s targets) Unsettled(ctx context.Context, tenant fleet.TenantID, agents []fleet.AgentID) ([]store.UnsettledTarget, error) {
	if len(agents) == 0 {
		return nil, nil
	}
	var out []store.UnsettledTarget
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var t store.UnsettledTarget
		err := row.Scan(&t.Agent, &t.Deployment, &t.DeploymentName, &t.Desired.Namespace, &t.Desired.Digest, &t.Newest.Namespace, &t.Newest.Digest, &t.DryRun)
		out = append(out, t)
		return err
	}, `SELECT t.agent_id, t.deployment_id, t.deployment_name, t.desired_namespace, COALESCE(t.desired_digest, ''),
			d.namespace, COALESCE(t.newest_digest, ''), t.desired_dry_run
		FROM targets t CROSS JOIN deployments d ON (d.tenant_id = t.tenant_id AND d.id = t.deployment_id)
		WHERE t.tenant_id = $1 AND t.agent_id IN (SELECT value FROM json_each($2))
			AND NOT t.desired_tombstone AND NOT t.desired_detached AND t.detached_at IS NULL
			AND (t.read_sync <> 'Synced' OR t.waiting OR t.desired_dry_run)
			AND (t.desired_digest IS NOT NULL OR t.newest_digest IS NOT NULL)
		ORDER BY t.deployment_name, t.deployment_id, t.agent_id`, tenant, idList(agents))
	if err != nil {
		return nil, fmt.Errorf("listing targets that are not in sync: %w", err)
	}
	return out, nil
}
