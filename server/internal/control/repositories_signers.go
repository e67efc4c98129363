package control

import (
	"cmp"
	"context"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Signers apply to a repository in every spelling of its URL: otherwise a deployer could bypass them with
// another spelling.

// spellings returns the other repositories of the tenant that are the same one with another URL.
func spellings(ctx context.Context, tx store.Tx, repo fleet.Repository) ([]fleet.Repository, error) {
	all, err := tx.Repositories().List(ctx, repo.TenantID, store.RepositoryFilter{Page: store.Whole()})
	if err != nil {
		return nil, err
	}
	var out []fleet.Repository
	for _, other := range all {
		if other.ID != repo.ID && gitsource.SameRepository(other.URL, repo.URL) {
			out = append(out, other)
		}
	}
	return out, nil
}

// takeSigners gives a new repository the signers of its other spellings, and refuses others.
func takeSigners(ctx context.Context, tx store.Tx, repo *fleet.Repository) error {
	others, err := spellings(ctx, tx, *repo)
	for _, other := range others {
		if repo.Signers != "" && other.Signers != "" && repo.Signers != other.Signers {
			return fleet.Invalid("signers", "%s is the same repository and has other signers: set them there for both", other.URL)
		}
		repo.Signers = cmp.Or(repo.Signers, other.Signers)
	}
	return err
}

// shareSigners copies the signers of a repository to its other spellings.
func (s *Service) shareSigners(ctx context.Context, tx store.Tx, p auth.Principal, repo fleet.Repository) error {
	others, err := spellings(ctx, tx, repo)
	if err != nil {
		return err
	}
	for _, other := range others {
		if other.Signers == repo.Signers {
			continue
		}
		if err := tx.Repositories().SetPolicy(ctx, other.TenantID, other.ID, other.Submodules, repo.Signers); err != nil {
			return err
		}
		if err := s.auditRepository(ctx, tx, p, other, "repository.update", "signers, as those of "+repo.URL); err != nil {
			return err
		}
	}
	return nil
}
