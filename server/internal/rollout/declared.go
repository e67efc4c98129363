package rollout

import (
	"context"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// doubtDeclared forgets that a file wants d to be deleted when it leaves it. A target of d was behind, so what is
// known of the file may be as old as a backup that was restored, and from the version on that the target
// is given now nobody can tell any more. The file is read again, and what it says then counts.
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
	if err != nil || c.State == fleet.ConfigPending { // it is going to be read
		return err
	}
	c.State = fleet.ConfigPending
	if err := tx.AgentConfigs().SetRead(ctx, c); err != nil {
		return err
	}
	return tx.Changes().RecordPush(ctx, d.TenantID, c.RepositoryID, "")
}

// DeclaredInGit reports whether a name is kept for configuration in Git.
func DeclaredInGit(name string) bool { return strings.Contains(name, ".") }
