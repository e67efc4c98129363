package control

import (
	"cmp"
	"context"
	"errors"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/listing"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ApplyCredential creates a credential, or changes it to exactly req, and lets one repository use it. The same input twice
// changes nothing. It is refused if the repository uses another credential.
func (s *Service) ApplyCredential(ctx context.Context, p auth.Principal, tenant string, req CreateCredential, url string) (fleet.Credential, RepositoryView, error) {
	stored, err := s.git.CheckURL(url)
	if err != nil {
		return fleet.Credential{}, RepositoryView{}, fleet.Invalid("repository", "%v", err)
	}
	was, err := s.Credential(ctx, p, tenant, req.Name)
	if err == nil && was.Kind != req.Kind { // another scheme: the kind of a credential does not change
		if err := s.replaceCredential(ctx, p, tenant, req.Name); err != nil {
			return fleet.Credential{}, RepositoryView{}, err
		}
		err = store.ErrNotFound
	}
	if err == nil {
		was, err = s.UpdateCredential(ctx, p, tenant, req.Name, UpdateCredential{Username: &req.Username, Secret: &req.Secret, KnownHosts: &req.KnownHosts}, Match{})
	}
	if errors.Is(err, store.ErrNotFound) {
		was, err = s.CreateCredential(ctx, p, tenant, req)
	}
	if err != nil {
		return fleet.Credential{}, RepositoryView{}, err
	}
	id, err := s.useCredential(ctx, p, tenant, req.Name, stored)
	if err != nil {
		return fleet.Credential{}, RepositoryView{}, err
	}
	repo, err := s.Repository(ctx, p, tenant, id)
	return was, repo, err
}

// replaceCredential deletes a credential so that another one with the same name can be created.
func (s *Service) replaceCredential(ctx context.Context, p auth.Principal, tenant, name string) error {
	// Takes it over, if its owner is missing.
	if _, err := s.UpdateCredential(ctx, p, tenant, name, UpdateCredential{}, Match{}); err != nil {
		return err
	}
	return s.DeleteOwnedCredential(ctx, p, tenant, name)
}

// DeleteOwnedCredential deletes a credential that the Kubernetes resource of p created, after it ended its use.
func (s *Service) DeleteOwnedCredential(ctx context.Context, p auth.Principal, tenant, name string) error {
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, c, err := administrableCredential(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		if err := checkOwnerDeletes(ctx, tx, p, credentialResource(c)); err != nil {
			return err
		}
		return s.endUse(ctx, tx, p, t, c, "")
	})
	if err == nil {
		err = s.DeleteCredential(ctx, p, tenant, name, Match{})
	}
	return ignoreMissing(err)
}

func administrableCredential(ctx context.Context, tx store.Tx, p auth.Principal, tenant, name string) (fleet.Tenant, fleet.Credential, error) {
	t, err := administrable(ctx, tx, p, tenant)
	if err != nil {
		return fleet.Tenant{}, fleet.Credential{}, err
	}
	c, err := credentialByName(ctx, tx, t.ID, name)
	return t, c, err
}

// useCredential makes the repository with a URL, and no other one, use a credential.
func (s *Service) useCredential(ctx context.Context, p auth.Principal, tenant, name, url string) (fleet.RepositoryID, error) {
	var id fleet.RepositoryID
	err := s.store.Update(ctx, func(tx store.Tx) error {
		t, c, err := administrableCredential(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		r := credentialResource(c)
		if err := checkOwner(ctx, tx, p, r, "changed"); err != nil {
			return err
		}
		if id, err = s.ensureRepository(ctx, tx, t, url); err != nil {
			return err
		}
		repo, err := tx.Repositories().Get(ctx, t.ID, id)
		if err != nil {
			return err
		}
		if repo.CredentialID != c.ID {
			if repo.CredentialID != "" {
				return fleet.Conflict("repository %s uses another credential: end that use first", repo.URL)
			}
			if err := checkGeneration(ctx, tx, p, r); err != nil {
				return err
			}
			if err := s.setCredential(ctx, tx, p, repo, UpdateRepository{Credential: &c.Name}); err != nil {
				return err
			}
			if err := s.endUse(ctx, tx, p, t, c, url); err != nil {
				return err
			}
		}
		return observe(ctx, tx, p, r)
	})
	return id, err
}

// endUse takes a credential from the repositories that use it, except the one with a URL.
func (s *Service) endUse(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, c fleet.Credential, except string) error {
	repos, err := listing.Repositories(ctx, tx, t.ID)
	if err != nil {
		return err
	}
	none := ""
	for _, repo := range repos {
		if repo.CredentialID != c.ID || repo.URL == except {
			continue
		}
		if err := s.setCredential(ctx, tx, p, repo, UpdateRepository{Credential: &none}); err != nil {
			return err
		}
	}
	return nil
}

// CheckRepository reads the default branch of a repository now, with its credential. It returns why that failed; zero if it
// succeeded.
func (s *Service) CheckRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) (fleet.Cause, error) {
	var repo fleet.Repository
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		repo, err = tx.Repositories().Get(ctx, t.ID, id)
		return err
	})
	if err != nil {
		return fleet.Cause{}, err
	}
	access, err := s.access(ctx, repo)
	if errors.As(err, new(*sealedError)) {
		return fleet.Cause{Reason: fleet.ReasonCredentialUnusable, Message: err.Error()}, nil
	}
	if err != nil { // of the database: the caller tries again
		return fleet.Cause{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.CheckTimeout)
	defer cancel()
	_, _, err = s.checks.resolve(bounded, access, "", true)
	var remote *gitsource.RemoteError
	var noBranch *gitsource.RefNotFoundError
	switch {
	case err == nil, errors.Is(err, gitsource.ErrEmpty), errors.As(err, &noBranch): // it was read
		return fleet.Cause{}, nil
	case ctx.Err() != nil:
		return fleet.Cause{}, err
	case errors.As(err, &remote):
		return fleet.Cause{Reason: cmp.Or(remote.Reason, fleet.ReasonRepositoryUnreadable), Message: err.Error()}, nil
	}
	return fleet.Cause{Reason: fleet.ReasonRepositoryUnreadable, Message: err.Error()}, nil
}
