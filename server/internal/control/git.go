package control

import (
	"context"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/reposync"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Git is the source of commits.
type Git interface {
	// CheckURL returns the stored form of url, or an error.
	CheckURL(url string) (string, error)
	Fetch(ctx context.Context, a gitsource.Access, revisions []string) (map[string]gitsource.Ref, error)
	Tree(ctx context.Context, a gitsource.Access, commit string) (filetree.Tree, error)
}

// repositories implements the interface of reposync with the use cases.
type repositories struct{ s *Service }

func (r repositories) Access(ctx context.Context, repo fleet.Repository) (gitsource.Access, error) {
	return r.s.access(ctx, repo)
}

func (r repositories) ApplyConfig(ctx context.Context, read reposync.ConfigFile) (reposync.ConfigResult, error) {
	return r.s.applyConfig(ctx, read)
}

func (r repositories) CheckSpec(ctx context.Context, tx store.Tx, d fleet.Deployment, next *fleet.Deployment) error {
	if err := r.s.checkDeployment(next); err != nil {
		return err
	}
	t, err := tx.Tenants().Get(ctx, d.TenantID)
	if err != nil || next.EnvironmentID == d.EnvironmentID {
		return err
	}
	if err := r.s.move(ctx, tx, t, d, next); err != nil {
		return err
	}
	return r.s.placer.CheckQuota(ctx, tx, t, *next)
}

// reseal encrypts the secrets of credentials with the newest key, once.
func (s *Service) reseal(ctx context.Context) error {
	if n, err := s.ResealCredentials(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("encrypting credentials with the newest key", obs.KeyError, err)
	} else if n > 0 {
		s.cfg.Log.Info("encrypted credentials with the newest key", "credentials", n)
	}
	return nil
}
