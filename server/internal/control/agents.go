package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const (
	// maxNamespaces limits the namespaces of an agent: each costs watches.
	maxNamespaces = 200
	// maxLabels limits the labels that are matched against every selector.
	maxLabels = 64
)

// EnrollAgent creates an agent with its first token, given or generated, and creates the targets of every
// deployment whose environment selects it.
func (s *Service) EnrollAgent(ctx context.Context, p auth.Principal, tenant string, req EnrollAgent) (Enrollment, error) {
	out := Enrollment{Token: req.Token}
	if err := checkEnroll(req); err != nil {
		return Enrollment{}, err
	}
	if out.Token == "" {
		out.Token = auth.NewToken(auth.AgentTokenPrefix)
	}
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if err := quota.Check(ctx, tx, t, quota.Agents, 1); err != nil {
			return err
		}
		agent := fleet.Agent{
			ID: fleet.NewAgentID(), TenantID: t.ID, Name: req.Name, Labels: fleet.CloneLabels(req.Labels), SpecRevision: 1, CreatedAt: s.cfg.Now(),
		}
		agent.Scope, agent.Namespaces = scopeOf(req.Namespaces)
		agent.EngineNamespace, agent.DeliverGitCredentials, agent.Instance = req.EngineNamespace, req.DeliverGitCredentials, req.Instance
		agent.Kinds, agent.Tunnel = fleet.NewKindFilter(req.Kinds.Include, req.Kinds.Exclude), req.Tunnel
		if err := tx.Agents().Create(ctx, agent); err != nil {
			return fmt.Errorf("agent %q: %w", req.Name, err)
		}
		if out.Agent, err = tx.Agents().Get(ctx, t.ID, agent.ID); err != nil {
			return err
		}
		if _, err := s.addAgentToken(ctx, tx, agent, out.Token, p.Name); err != nil {
			return err
		}
		if err := own(ctx, tx, p, agentResource(agent)); err != nil {
			return err
		}
		if err := s.placer.PlaceAgent(ctx, tx, agent); err != nil {
			return err
		}
		if err := s.placer.PlacePush(ctx, tx, t.ID); err != nil {
			return err
		}
		if req.ConfigRepoURL != "" {
			if err := s.setConfig(ctx, tx, p, t, agent, req.ConfigRepoURL); err != nil {
				return err
			}
		}
		return s.enrolled(ctx, tx, p, agent)
	})
	if err != nil {
		return Enrollment{}, err
	}
	return out, nil
}

func (s *Service) enrolled(ctx context.Context, tx store.Tx, p auth.Principal, a fleet.Agent) error {
	if err := s.audit(ctx, tx, p, agentEvent("agent.create", a, "")); err != nil {
		return err
	}
	return s.tell(ctx, tx, fleet.Event{
		TenantID: a.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonAgentEnrolled, Agent: a.Name,
		Message: fmt.Sprintf("agent %q was enrolled by %s", a.Name, p.Name),
	})
}

func agentEvent(action string, a fleet.Agent, detail string) fleet.AuditEvent {
	return fleet.AuditEvent{TenantID: a.TenantID, Action: action, Kind: "agent", Name: a.Name, ID: string(a.ID), Detail: detail}
}

func checkEnroll(req EnrollAgent) error {
	if err := fleet.CheckName("name", req.Name); err != nil {
		return err
	}
	if err := checkAgentLabels(req.Labels); err != nil {
		return err
	}
	if err := checkNamespaces(req.Namespaces); err != nil {
		return err
	}
	if err := req.Kinds.Check("kindFilter"); err != nil {
		return err
	}
	if err := checkEngine(req.EngineNamespace, req.DeliverGitCredentials, req.Instance); err != nil || req.Token == "" {
		return err
	}
	return auth.CheckUserToken("token", req.Token)
}

func checkAgentLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fleet.Invalid("labels", "an agent has at most %d labels", maxLabels)
	}
	return fleet.CheckLabels("labels", labels)
}

func checkNamespaces(namespaces []string) error {
	if len(namespaces) > maxNamespaces {
		return fleet.Invalid("namespaces", "at most %d namespaces are allowed", maxNamespaces)
	}
	for _, ns := range namespaces {
		if err := fleet.CheckName("namespaces", ns); err != nil {
			return err
		}
	}
	return nil
}

func checkEngine(namespace string, credentials, instance bool) error {
	switch {
	case namespace == "" && instance:
		return fleet.Invalid("engineInstance", "only an agent with the namespace of an Argo CD can serve push environments")
	case namespace == "" && credentials:
		return fleet.Invalid("deliverGitCredentials", "an agent without the namespace of an Argo CD needs no Git credentials")
	case namespace == "":
		return nil
	}
	return fleet.CheckName("engineNamespace", namespace)
}

// scopeOf returns the scope for a list of namespaces, and the list in its stored form.
func scopeOf(namespaces []string) (fleet.Scope, []string) {
	if len(namespaces) == 0 {
		return fleet.ScopeCluster, nil
	}
	return fleet.ScopeNamespaced, sorted(namespaces)
}

// sorted returns a set of names in its stored order.
func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// UpdateAgent changes labels, namespaces, the kind filter, the engine, and the tunnel. Labels decide the environments of the agent, so targets are
// created, detached, and attached again with them.
func (s *Service) UpdateAgent(ctx context.Context, p auth.Principal, tenant, name string, req UpdateAgent, match Match) (AgentView, error) {
	var out AgentView
	err := s.store.Update(ctx, func(tx store.Tx) error {
		agent, err := administrableAgent(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		if err := match.check(string(agent.ID), agent.SpecRevision); err != nil {
			return err
		}
		if err := checkOwner(ctx, tx, p, agentResource(agent), "changed"); err != nil {
			return err
		}
		if agent.KindsFromConfig && !p.Owner.IsZero() && req.Kinds != nil && req.Kinds.IsZero() {
			req.Kinds = nil // a resource without a filter leaves the one of the file
		}
		changed, err := edited(agent, req)
		if err != nil {
			return err
		}
		if changed.EngineNamespace != agent.EngineNamespace {
			if err := engineUnused(ctx, tx, agent); err != nil {
				return err
			}
		}
		if agent.Instance && !changed.Instance {
			if err := servesNothing(ctx, tx, agent, "stop to be an engine instance"); err != nil {
				return err
			}
		}
		if !sameAgent(agent, changed) {
			if err := checkGeneration(ctx, tx, p, agentResource(agent)); err != nil {
				return err
			}
			if agent, err = s.editAgent(ctx, tx, p, changed); err != nil {
				return err
			}
		}
		if err := observe(ctx, tx, p, agentResource(agent)); err != nil {
			return err
		}
		views, err := s.viewAgents(ctx, tx, []fleet.Agent{agent})
		if err == nil {
			out = views[0]
		}
		return err
	})
	return out, err
}

func edited(a fleet.Agent, req UpdateAgent) (fleet.Agent, error) {
	if req.Labels != nil {
		if err := checkAgentLabels(*req.Labels); err != nil {
			return fleet.Agent{}, err
		}
		a.Labels = fleet.CloneLabels(*req.Labels)
	}
	if req.Namespaces != nil {
		if err := checkNamespaces(*req.Namespaces); err != nil {
			return fleet.Agent{}, err
		}
		a.Scope, a.Namespaces = scopeOf(*req.Namespaces)
	}
	if req.EngineNamespace != nil {
		a.EngineNamespace = *req.EngineNamespace
	}
	if req.DeliverGitCredentials != nil {
		a.DeliverGitCredentials = *req.DeliverGitCredentials
	}
	if req.Instance != nil {
		a.Instance = *req.Instance
	}
	if req.Draining != nil {
		a.Draining = *req.Draining
	}
	if req.Tunnel != nil {
		a.Tunnel = *req.Tunnel
	}
	if a.Draining && !a.Instance {
		return fleet.Agent{}, fleet.Invalid("draining", "only an engine instance can be drained")
	}
	if req.Kinds != nil {
		if err := req.Kinds.Check("kindFilter"); err != nil {
			return fleet.Agent{}, err
		}
		kinds := fleet.NewKindFilter(req.Kinds.Include, req.Kinds.Exclude)
		if a.KindsFromConfig && !kinds.Equal(a.Kinds) {
			return fleet.Agent{}, fleet.Conflict("the configuration file of agent %q declares its kind filter: change the file, or remove kindFilter from it first", a.Name)
		}
		a.Kinds = kinds
	}
	return a, checkEngine(a.EngineNamespace, a.DeliverGitCredentials, a.Instance)
}

// engineUnused refuses a change of the engine while the agent has targets. The objects of a target are in the inventory of
// one engine, and the other engine could neither change nor delete them.
func engineUnused(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	counts, err := tx.Targets().CountByAgentAllTenants(ctx, []fleet.AgentID{a.ID})
	if err != nil || counts[a.ID] == 0 {
		return err
	}
	return fleet.Conflict("the namespace of Argo CD of agent %q cannot change while it has %d deployments, because another engine applied their objects: "+
		"remove the deployments from the agent first, or enroll another agent", a.Name, counts[a.ID])
}

func sameAgent(a, b fleet.Agent) bool {
	return maps.Equal(a.Labels, b.Labels) && a.SameToAgent(b) && a.KindsFromConfig == b.KindsFromConfig && a.Draining == b.Draining && a.Tunnel == b.Tunnel
}

func (s *Service) editAgent(ctx context.Context, tx store.Tx, p auth.Principal, a fleet.Agent) (fleet.Agent, error) {
	if err := tx.Agents().Update(ctx, a); err != nil {
		return fleet.Agent{}, err
	}
	if err := s.placer.PlaceAgent(ctx, tx, a); err != nil {
		return fleet.Agent{}, err
	}
	if err := s.placer.PlacePush(ctx, tx, a.TenantID); err != nil {
		return fleet.Agent{}, err
	}
	if err := s.audit(ctx, tx, p, agentEvent("agent.update", a, agentWords(a))); err != nil {
		return fleet.Agent{}, err
	}
	return tx.Agents().Get(ctx, a.TenantID, a.ID)
}

func agentWords(a fleet.Agent) string {
	text := "labels: " + labelWords(a.Labels) + "; namespaces: " + listWords(a.Namespaces, "all that its scope allows") + "; Argo CD in namespace: " + cmp.Or(a.EngineNamespace, "none")
	if a.DeliverGitCredentials {
		text += "; gets Git credentials"
	}
	if a.Instance {
		text += "; serves push environments"
	}
	if a.Draining {
		text += "; is drained"
	}
	if a.Tunnel {
		text += "; has a tunnel"
	}
	if !a.Kinds.IsZero() {
		text += "; includes kinds: " + listWords(a.Kinds.Include, "none") + "; excludes kinds: " + listWords(a.Kinds.Exclude, "none")
	}
	return text
}

// administrableAgent finds an agent that p may change.
func administrableAgent(ctx context.Context, tx store.Tx, p auth.Principal, tenant, name string) (fleet.Agent, error) {
	t, err := administrable(ctx, tx, p, tenant)
	if err != nil {
		return fleet.Agent{}, err
	}
	return agentByName(ctx, tx, t.ID, name)
}

func agentByName(ctx context.Context, tx store.Tx, tenant fleet.TenantID, name string) (fleet.Agent, error) {
	a, err := tx.Agents().ByName(ctx, tenant, name)
	if err != nil {
		return fleet.Agent{}, fmt.Errorf("agent %q: %w", name, err)
	}
	return a, nil
}

// DeleteAgent deletes an agent with its tokens and connections. Its targets stay, detached, and no tombstone is
// created, so no object in any cluster is deleted: the agent may just be lost, and absence is never deletion.
// Runs and deletions no longer wait for this agent.
func (s *Service) DeleteAgent(ctx context.Context, p auth.Principal, tenant, name string, match Match) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		a, err := administrableAgent(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		if err := match.check(string(a.ID), a.SpecRevision); err != nil {
			return err
		}
		if err := checkOwnerDeletes(ctx, tx, p, agentResource(a)); err != nil {
			return err
		}
		if err := notDeploying(ctx, tx, p, a); err != nil {
			return err
		}
		if err := s.abandonPush(ctx, tx, a); err != nil {
			return err
		}
		if err := s.releaseAll(ctx, tx, a); err != nil {
			return err
		}
		if err := s.detachAgent(ctx, tx, a); err != nil {
			return err
		}
		// No operation is orphaned.
		message := fmt.Sprintf("agent %q was deleted", a.Name)
		if err := s.planner.FinishOperationsOf(ctx, tx, a.TenantID, string(a.ID), ActionRotate, message); err != nil {
			return err
		}
		if err := tx.Agents().Delete(ctx, a.TenantID, a.ID); err != nil {
			return err
		}
		if err := s.placer.PlacePush(ctx, tx, a.TenantID); err != nil {
			return err
		}
		if err := s.audit(ctx, tx, p, agentEvent("agent.delete", a, "")); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: a.TenantID, Type: fleet.EventNormal, Reason: fleet.ReasonAgentDeleted, Agent: name,
			Message: fmt.Sprintf("agent %q was deleted by %s; its deployed objects stay in the cluster", name, p.Name),
		})
	})
}

// notDeploying refuses the deletion of an agent by the Kubernetes resource that created it while the agent has deployments:
// deletions that the agent has not completed would be abandoned.
func notDeploying(ctx context.Context, tx store.Tx, p auth.Principal, a fleet.Agent) error {
	if p.Owner.IsZero() || p.AbandonDeletions {
		return nil
	}
	targets, err := tx.Targets().OfAgentAllTenants(ctx, a.ID)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if !rollout.Released(t) {
			return fleet.Conflict("agent %q still has deployment %q: deployments that are being deleted count until the agent has deleted them", a.Name, t.DeploymentName)
		}
	}
	return nil
}

// detachAgent detaches every target of an agent that is about to be deleted.
func (s *Service) detachAgent(ctx context.Context, tx store.Tx, a fleet.Agent) error {
	targets, err := tx.Targets().OfAgentAllTenants(ctx, a.ID)
	if err != nil {
		return err
	}
	where, err := placement.ClusterOf(ctx, tx, a.ID)
	if err != nil {
		return err
	}
	for _, t := range targets {
		t.LeftIn = cmp.Or(t.LeftIn, where.Cluster)
		if err := s.placer.Orphan(ctx, tx, a, t, fmt.Sprintf("agent %q was deleted", a.Name)); err != nil {
			return fmt.Errorf("detaching deployment %q: %w", t.DeploymentName, err)
		}
	}
	return nil
}
