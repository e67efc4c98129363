package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// AgentConfigView is the configuration of an agent for users.
type AgentConfigView struct {
	fleet.AgentConfig
	// RepositoryError is why the repository cannot be read, or "".
	RepositoryError string
	// Declarations are the current and the released ones.
	Declarations []fleet.Declaration
}

// AgentConfig returns the location of the configuration of an agent, and its state. An agent without one is
// ErrNotFound.
func (s *Service) AgentConfig(ctx context.Context, p auth.Principal, tenant, agent string) (AgentConfigView, error) {
	var out AgentConfigView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		a, err := agentByName(ctx, tx, t.ID, agent)
		if err != nil {
			return err
		}
		out, err = viewConfig(ctx, tx, a)
		return err
	})
	return out, err
}

func viewConfig(ctx context.Context, tx store.Tx, a fleet.Agent) (AgentConfigView, error) {
	c, err := tx.AgentConfigs().Get(ctx, a.TenantID, a.ID)
	if err != nil {
		return AgentConfigView{}, err
	}
	problems, err := tx.Repositories().Problems(ctx, a.TenantID, []fleet.RepositoryID{c.RepositoryID})
	if err != nil {
		return AgentConfigView{}, err
	}
	out := AgentConfigView{AgentConfig: c, RepositoryError: problems[c.RepositoryID]}
	out.Declarations, err = tx.Declarations().OfAgent(ctx, a.TenantID, a.Name)
	return out, err
}

// SetAgentConfig sets the repository of the configuration of an agent. Deployments of the previous one stay
// unchanged until the new one is read. The same repository again changes nothing.
func (s *Service) SetAgentConfig(ctx context.Context, p auth.Principal, tenant, agent, repoURL string) (AgentConfigView, error) {
	var out AgentConfigView
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		a, err := agentByName(ctx, tx, t.ID, agent)
		if err != nil {
			return err
		}
		if err := s.setConfig(ctx, tx, p, t, a, repoURL); err != nil {
			return err
		}
		out, err = viewConfig(ctx, tx, a)
		return err
	})
	return out, err
}

func (s *Service) setConfig(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, a fleet.Agent, repoURL string) error {
	url, err := s.git.CheckURL(repoURL)
	if err != nil {
		return fleet.Invalid("repoURL", "%v", err)
	}
	repo, err := s.ensureRepository(ctx, tx, t, url)
	if err != nil {
		return err
	}
	was, err := tx.AgentConfigs().Get(ctx, t.ID, a.ID)
	if err == nil && was.RepositoryID == repo {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	err = tx.AgentConfigs().Put(ctx, fleet.AgentConfig{TenantID: t.ID, AgentID: a.ID, RepositoryID: repo, SpecRevision: 1, CreatedAt: s.cfg.Now()})
	if err != nil {
		return err
	}
	return s.audit(ctx, tx, p, agentEvent("agent.config.set", a, "configuration in "+url))
}

// UnsetAgentConfig ends the configuration of an agent in Git. Its deployments are released: their objects stay.
func (s *Service) UnsetAgentConfig(ctx context.Context, p auth.Principal, tenant, agent string) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		a, err := agentByName(ctx, tx, t.ID, agent)
		if err != nil {
			return err
		}
		if err := tx.AgentConfigs().Delete(ctx, t.ID, a.ID); err != nil {
			return err
		}
		live, err := liveDeclarations(ctx, tx, t.ID, a.Name)
		if err != nil {
			return err
		}
		for _, d := range live {
			if err := s.releaseDeclared(ctx, tx, p, t, d, "the agent has no configuration in Git any more"); err != nil {
				return err
			}
		}
		if err := dropAgentEnvironments(ctx, tx, t.ID, a.Name); err != nil {
			return err
		}
		if err := s.releaseKinds(ctx, tx, p, a); err != nil {
			return err
		}
		return s.audit(ctx, tx, p, agentEvent("agent.config.unset", a, wording.Count(len(live), "deployment")+" let go"))
	})
}

// liveDeclarations returns what the file of an agent declares now.
func liveDeclarations(ctx context.Context, tx store.Tx, tenant fleet.TenantID, agent string) ([]fleet.Declaration, error) {
	declared, err := tx.Declarations().OfAgent(ctx, tenant, agent)
	var out []fleet.Declaration
	for _, d := range declared {
		if d.ReleasedAt.IsZero() {
			out = append(out, d)
		}
	}
	return out, err
}

// configWarning returns why the newest configuration of an agent is not in force; zero if it is, or was not read yet.
func configWarning(c fleet.AgentConfig, repositoryError string) fleet.Cause {
	at := "configuration in Git (" + c.RepoURL + ")"
	if repositoryError != "" {
		return fleet.Cause{
			Reason:  fleet.ReasonRepositoryUnreadable,
			Message: at + " cannot be read, and the configuration that was read before stays in force: " + repositoryError,
		}
	}
	switch c.State {
	case fleet.ConfigInvalid, fleet.ConfigRefused:
		what := "is wrong"
		if c.State == fleet.ConfigRefused {
			what = "cannot be applied"
		}
		text := fmt.Sprintf("%s %s, and the configuration that was applied before stays in force", at, what)
		if len(c.Errors) > 0 {
			text += ": " + c.Errors[0].String()
		}
		if more := len(c.Errors) - 1 + c.More; more > 0 {
			text += fmt.Sprintf(" (and %d more)", more)
		}
		return fleet.Cause{Reason: c.State.Reason(), Message: text}
	case fleet.ConfigAbsent:
		return fleet.Cause{Reason: c.State.Reason(), Message: at + " has no file for this agent"}
	default:
		return fleet.Cause{}
	}
}

// configWarnings returns the warnings of some agents of one tenant.
func configWarnings(ctx context.Context, tx store.Tx, agents []fleet.Agent, ids []fleet.AgentID) (map[fleet.AgentID]fleet.Cause, error) {
	out := map[fleet.AgentID]fleet.Cause{}
	if len(agents) == 0 {
		return out, nil
	}
	configs, err := tx.AgentConfigs().OfAgents(ctx, agents[0].TenantID, ids)
	if err != nil || len(configs) == 0 {
		return out, err
	}
	repos := make([]fleet.RepositoryID, 0, len(configs))
	for _, c := range configs {
		repos = append(repos, c.RepositoryID)
	}
	problems, err := tx.Repositories().Problems(ctx, agents[0].TenantID, repos)
	for _, c := range configs {
		if w := configWarning(c, problems[c.RepositoryID]); !w.IsZero() {
			out[c.AgentID] = w
		}
	}
	return out, err
}
