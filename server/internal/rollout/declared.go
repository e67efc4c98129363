package rollout

import (
	"context"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// doubtDeclared forgets that a file wants d to be deleted when it no longer lists it. A target of d was behind,
// so the stored state of the file may be as old as a restored backup, and after the new version of the target
// this can no longer be detected. The file is read again, and its new content counts.
func doubtDeclared(ctx context.Context, tx store.Tx, d fleet.Deployment) error {
	if !DeclaredInGit(d.Name) {
		return nil
	}
	found, err := tx.Declarations().Of(ctx, d.TenantID, []fleet.DeploymentID{d.ID})
	if err != nil || len(found) == 0 || !found[0].Prune || !found[0].ReleasedAt.IsZero() {
		return err
	}
	by := found[0]
	by.Prune = false
	if err := tx.Declarations().Put(ctx, by); err != nil {
		return err
	}
	agent, err := tx.Agents().ByName(ctx, d.TenantID, by.AgentName)
	if err != nil {
		return err
	}
	c, err := tx.AgentConfigs().Get(ctx, d.TenantID, agent.ID)
	if err != nil || c.State == fleet.ConfigPending { // it will be read
		return err
	}
	c.State = fleet.ConfigPending
	if err := tx.AgentConfigs().SetRead(ctx, c); err != nil {
		return err
	}
	return tx.Changes().WakeRepository(ctx, d.TenantID, c.RepositoryID, store.Wake{Reason: store.WakeAgentConfig})
}

// DeclaredInGit reports whether a name is reserved for configuration in Git.
func DeclaredInGit(name string) bool { return strings.Contains(name, ".") }
