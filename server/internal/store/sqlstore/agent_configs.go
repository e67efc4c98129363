package sqlstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type agentConfigs struct{ tx *Tx }

const agentConfigColumns = `SELECT c.tenant_id, c.agent_id, a.name, c.repository_id, r.url, c.spec, c.created_at,
		c.state, c.file, c.commit_hash, c.live_commit, c.read_at, c.more, c.declares
	FROM agent_configs c
	JOIN agents a ON a.tenant_id = c.tenant_id AND a.id = c.agent_id
	JOIN repositories r ON r.tenant_id = c.tenant_id AND r.id = c.repository_id `

func (s agentConfigs) Get(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) (fleet.AgentConfig, error) {
	c, err := only(s.list(ctx, tenant, agentConfigColumns+`WHERE c.tenant_id = $1 AND c.agent_id = $2`, tenant, agent))
	if err != nil {
		return fleet.AgentConfig{}, fmt.Errorf("reading the configuration of agent %q: %w", agent, err)
	}
	return c, nil
}

func (s agentConfigs) OfAgents(ctx context.Context, tenant fleet.TenantID, agents []fleet.AgentID) ([]fleet.AgentConfig, error) {
	out, err := s.list(ctx, tenant, agentConfigColumns+`WHERE c.tenant_id = $1 AND c.agent_id IN (SELECT value FROM json_each($2)) ORDER BY a.name`,
		tenant, idList(agents))
	if err != nil {
		return nil, fmt.Errorf("reading the configurations of %d agents: %w", len(agents), err)
	}
	return out, nil
}

func (s agentConfigs) OfRepository(ctx context.Context, tenant fleet.TenantID, repo fleet.RepositoryID) ([]fleet.AgentConfig, error) {
	out, err := s.list(ctx, tenant, agentConfigColumns+`WHERE c.tenant_id = $1 AND c.repository_id = $2 ORDER BY a.name`, tenant, repo)
	if err != nil {
		return nil, fmt.Errorf("reading the configurations in repository %q: %w", repo, err)
	}
	return out, nil
}

func (s agentConfigs) All(ctx context.Context, tenant fleet.TenantID) ([]fleet.AgentConfig, error) {
	out, err := s.list(ctx, tenant, agentConfigColumns+`WHERE c.tenant_id = $1 ORDER BY a.name`, tenant)
	if err != nil {
		return nil, fmt.Errorf("reading the configurations of a tenant: %w", err)
	}
	return out, nil
}

func (s agentConfigs) list(ctx context.Context, tenant fleet.TenantID, query string, args ...any) ([]fleet.AgentConfig, error) {
	var out []fleet.AgentConfig
	at := map[fleet.AgentID]int{}
	err := s.tx.of(tenant).each(ctx, func(row Row) error {
		var c fleet.AgentConfig
		err := row.Scan(&c.TenantID, &c.AgentID, &c.AgentName, &c.RepositoryID, &c.RepoURL, &c.SpecRevision, timeInto(&c.CreatedAt),
			&c.State, &c.File, &c.Commit, &c.Live, timeInto(&c.ReadAt), &c.More, &c.Declares)
		at[c.AgentID] = len(out)
		out = append(out, c)
		return err
	}, query, args...)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	ids := idsOf(out, func(c *fleet.AgentConfig) fleet.AgentID { return c.AgentID })
	err = s.tx.of(tenant).each(ctx, func(row Row) error {
		var agent fleet.AgentID
		var notice bool
		var f fleet.ConfigFinding
		if err := row.Scan(&agent, &notice, &f.Field, &f.Line, &f.Message); err != nil {
			return err
		}
		if c := &out[at[agent]]; notice {
			c.Notices = append(c.Notices, f)
		} else {
			c.Errors = append(c.Errors, f)
		}
		return nil
	}, `SELECT agent_id, notice, field, line, message FROM agent_config_findings
		WHERE tenant_id = $1 AND agent_id IN (SELECT value FROM json_each($2)) ORDER BY agent_id, notice, position`, tenant, idList(ids))
	return out, err
}

func (s agentConfigs) Put(ctx context.Context, c fleet.AgentConfig) error {
	if err := s.put(ctx, c); err != nil {
		return fmt.Errorf("setting the configuration of agent %q: %w", c.AgentID, err)
	}
	return s.recordConfig(c.TenantID, c.AgentID)
}

// put checks agent and repository itself: a foreign key error would end the whole transaction.
func (s agentConfigs) put(ctx context.Context, c fleet.AgentConfig) error {
	db := s.tx.of(c.TenantID)
	n, err := db.exec(ctx, `INSERT INTO agent_configs
			(tenant_id, agent_id, repository_id, spec, created_at, state, file, commit_hash, live_commit, read_at, more, declares)
		SELECT a.tenant_id, a.id, r.id, $4, $5, '', '', '', '', NULL, 0, 0 FROM agents a, repositories r
		WHERE a.tenant_id = $1 AND a.id = $2 AND r.tenant_id = $1 AND r.id = $3
		ON CONFLICT (tenant_id, agent_id) DO UPDATE SET repository_id = excluded.repository_id, spec = agent_configs.spec + 1,
			state = '', file = '', commit_hash = '', live_commit = '', read_at = NULL, more = 0, declares = 0`,
		c.TenantID, c.AgentID, c.RepositoryID, cmp.Or(c.SpecRevision, 1), micros(c.CreatedAt))
	if err != nil {
		return err
	}
	if n == 0 {
		return store.ErrNotFound
	}
	return s.clear(ctx, c.TenantID, c.AgentID)
}

func (s agentConfigs) clear(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) error {
	_, err := s.tx.of(tenant).exec(ctx, `DELETE FROM agent_config_findings WHERE tenant_id = $1 AND agent_id = $2`, tenant, agent)
	return err
}

func (s agentConfigs) recordConfig(tenant fleet.TenantID, agent fleet.AgentID) error {
	if err := s.tx.record(store.Change{TenantID: tenant, Kind: store.ChangeAgentConfig, ID: string(agent), AgentID: agent}); err != nil {
		return err
	}
	return agents(s).recordAgent(tenant, agent)
}

func (s agentConfigs) SetRead(ctx context.Context, c fleet.AgentConfig) error {
	if err := s.setRead(ctx, c); err != nil {
		return fmt.Errorf("recording the configuration of agent %q: %w", c.AgentID, err)
	}
	return agents(s).recordAgent(c.TenantID, c.AgentID)
}

func (s agentConfigs) setRead(ctx context.Context, c fleet.AgentConfig) error {
	n, err := s.tx.of(c.TenantID).exec(ctx, `UPDATE agent_configs SET state = $3, file = $4, commit_hash = $5, live_commit = $6, read_at = $7,
			more = $8, declares = $9 WHERE tenant_id = $1 AND agent_id = $2`,
		c.TenantID, c.AgentID, c.State, c.File, c.Commit, c.Live, micros(c.ReadAt), c.More, c.Declares)
	if err != nil {
		return err
	}
	if n == 0 {
		return store.ErrNotFound
	}
	if err := s.clear(ctx, c.TenantID, c.AgentID); err != nil {
		return err
	}
	if err := s.fill(ctx, c, false, c.Errors); err != nil {
		return err
	}
	return s.fill(ctx, c, true, c.Notices)
}

func (s agentConfigs) fill(ctx context.Context, c fleet.AgentConfig, notice bool, findings []fleet.ConfigFinding) error {
	for i, f := range findings {
		_, err := s.tx.of(c.TenantID).exec(ctx, `INSERT INTO agent_config_findings (tenant_id, agent_id, notice, position, field, line, message)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`, c.TenantID, c.AgentID, notice, i, f.Field, f.Line, f.Message)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s agentConfigs) Delete(ctx context.Context, tenant fleet.TenantID, agent fleet.AgentID) error {
	n, err := s.tx.of(tenant).exec(ctx, `DELETE FROM agent_configs WHERE tenant_id = $1 AND agent_id = $2`, tenant, agent)
	if err == nil && n == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("deleting the configuration of agent %q: %w", agent, err)
	}
	return s.recordConfig(tenant, agent)
}
