package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// declareKinds makes the kind filter of an agent the one of its file, and reports whether it changed:
//
//	the file has a filter        it is in force, and only the file can change it
//	another filter was set       the file is refused: whoever pushes to Git must not lift the restrictions of an admin
//	the filter left the file     the agent has no filter any more
//	there is no file             nothing changes: a lost file lifts no restriction
func (s *Service) declareKinds(ctx context.Context, tx store.Tx, look reposync.ConfigFile) (bool, error) {
	declared := look.File.Kinds
	agent, err := tx.Agents().Get(ctx, look.Config.TenantID, look.Config.AgentID)
	if err != nil || look.State != fleet.ConfigApplied || declared == nil && !agent.KindsFromConfig {
		return false, err
	}
	wanted := agent
	wanted.Kinds, wanted.KindsFromConfig = fleet.KindFilter{}, declared != nil
	if declared != nil {
		wanted.Kinds = *declared
	}
	if !agent.KindsFromConfig && !agent.Kinds.IsZero() && !agent.Kinds.Equal(wanted.Kinds) {
		return false, fleet.Conflict("kindFilter: agent %q has another kind filter, which was not set by this file: "+
			"remove that one first, with kedge agent set %[1]s --include-kind= --exclude-kind=, or in its ManagedEnvironment", agent.Name)
	}
	if sameAgent(agent, wanted) {
		return false, nil
	}
	_, err = s.editAgent(ctx, tx, configPrincipal(look), wanted)
	return err == nil, err
}

// releaseKinds leaves the kind filter of an agent without a configuration file as it is. It can be edited then.
func (s *Service) releaseKinds(ctx context.Context, tx store.Tx, p auth.Principal, a fleet.Agent) error {
	if !a.KindsFromConfig {
		return nil
	}
	a.KindsFromConfig = false
	_, err := s.editAgent(ctx, tx, p, a)
	return err
}
