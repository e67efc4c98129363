package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// Repositories lists the repositories of a tenant, sorted by URL.
func (s *Service) Repositories(ctx context.Context, p auth.Principal, tenant string, f store.RepositoryFilter) ([]RepositoryView, error) {
	var out []RepositoryView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		repos, err := tx.Repositories().List(ctx, t.ID, f)
		if err != nil {
			return err
		}
		out = make([]RepositoryView, len(repos))
		for i, repo := range repos {
			if out[i], err = s.viewRepository(ctx, tx, repo); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// Repository returns one repository.
func (s *Service) Repository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) (RepositoryView, error) {
	var out RepositoryView
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		repo, err := tx.Repositories().Get(ctx, t.ID, id)
		if err != nil {
			return fmt.Errorf("repository %q: %w", id, err)
		}
		out, err = s.viewRepository(ctx, tx, repo)
		return err
	})
	return out, err
}

func (s *Service) viewRepository(ctx context.Context, tx store.Tx, repo fleet.Repository) (RepositoryView, error) {
	v := RepositoryView{Repository: repo}
	if at := s.sources.CheckedAt(repo.ID); at.After(v.CheckedAt) {
		v.CheckedAt = at
	}
	deployments, err := tx.Deployments().OfRepository(ctx, repo.TenantID, repo.ID)
	if err != nil {
		return v, err
	}
	v.Deployments = len(deployments)
	if repo.CredentialID == "" {
		return v, nil
	}
	c, err := tx.Credentials().Get(ctx, repo.TenantID, repo.CredentialID)
	v.Credential = c.Name
	return v, err
}

// CreateRepository creates a repository before anything is deployed from it, with its settings.
func (s *Service) CreateRepository(ctx context.Context, p auth.Principal, tenant string, req CreateRepository) (RepositoryView, error) {
	url, err := s.git.CheckURL(req.URL)
	if err != nil {
		return RepositoryView{}, fleet.Invalid("url", "%v", err)
	}
	if err := gitsource.CheckSigners(req.Signers); err != nil {
		return RepositoryView{}, fleet.Invalid("signers", "%v", err)
	}
	repo := fleet.Repository{
		ID: fleet.NewRepositoryID(), URL: url, Submodules: req.Submodules, Signers: req.Signers, SpecRevision: 1, CreatedAt: s.cfg.Now(),
	}
	err = s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		if err := quota.Check(ctx, tx, t, quota.Repositories, 1); err != nil {
			return err
		}
		repo.TenantID = t.ID
		if err := takeSigners(ctx, tx, &repo); err != nil {
			return err
		}
		if repo.CredentialID, err = credentialFor(ctx, tx, repo, req.Credential); err != nil {
			return err
		}
		if err := tx.Repositories().Create(ctx, repo); err != nil {
			return fmt.Errorf("repository %q: %w", url, err)
		}
		if err := s.shareSigners(ctx, tx, p, repo); err != nil {
			return err
		}
		return s.auditRepository(ctx, tx, p, repo, "repository.create", req.Credential)
	})
	if err != nil {
		return RepositoryView{}, err
	}
	return s.Repository(ctx, p, tenant, repo.ID)
}

// credentialFor finds a credential by name, and refuses one that does not fit the URL.
func credentialFor(ctx context.Context, tx store.Tx, repo fleet.Repository, name string) (fleet.CredentialID, error) {
	if name == "" {
		return "", nil
	}
	c, err := credentialByName(ctx, tx, repo.TenantID, name)
	if errors.Is(err, store.ErrNotFound) {
		return "", fleet.Invalid("credential", "there is no credential %q", name)
	}
	if err != nil {
		return "", err
	}
	want := fleet.CredentialSSH
	if strings.HasPrefix(repo.URL, "https://") || strings.HasPrefix(repo.URL, "http://") {
		want = fleet.CredentialHTTPS
	}
	if c.Kind != want {
		return "", fleet.Invalid("credential", "credential %q has kind %q, which does not fit %s", name, c.Kind, repo.URL)
	}
	return c.ID, nil
}

// UpdateRepository changes the settings of a repository; it is read again immediately.
func (s *Service) UpdateRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID, req UpdateRepository, match Match) (RepositoryView, error) {
	if req.Signers != nil {
		if err := gitsource.CheckSigners(*req.Signers); err != nil {
			return RepositoryView{}, fleet.Invalid("signers", "%v", err)
		}
	}
	err := s.changeRepository(ctx, p, tenant, id, match, func(tx store.Tx, repo fleet.Repository) error {
		if err := s.setCredential(ctx, tx, p, repo, req); err != nil {
			return err
		}
		return s.setPolicy(ctx, tx, p, repo, req)
	})
	if err != nil {
		return RepositoryView{}, err
	}
	return s.Repository(ctx, p, tenant, id)
}

func (s *Service) setCredential(ctx context.Context, tx store.Tx, p auth.Principal, repo fleet.Repository, req UpdateRepository) error {
	if req.Credential == nil {
		return nil
	}
	credential, err := credentialFor(ctx, tx, repo, *req.Credential)
	if err != nil || credential == repo.CredentialID {
		return err
	}
	if err := checkReplacement(ctx, tx, p, repo); err != nil {
		return err
	}
	if err := tx.Repositories().SetCredential(ctx, repo.TenantID, repo.ID, credential); err != nil {
		return err
	}
	return s.auditRepository(ctx, tx, p, repo, "repository.update", "credential "+*req.Credential)
}

// checkReplacement refuses to replace a credential that a Kubernetes resource gave to a repository.
func checkReplacement(ctx context.Context, tx store.Tx, p auth.Principal, repo fleet.Repository) error {
	if repo.CredentialID == "" || !p.Owner.IsZero() {
		return nil
	}
	c, err := tx.Credentials().Get(ctx, repo.TenantID, repo.CredentialID)
	if err != nil {
		return err
	}
	return checkOwner(ctx, tx, p, credentialResource(c), "replaced")
}

// setPolicy changes signers and submodules of a repository.
func (s *Service) setPolicy(ctx context.Context, tx store.Tx, p auth.Principal, repo fleet.Repository, req UpdateRepository) error {
	was := repo
	var changed []string
	if req.Submodules != nil && *req.Submodules != repo.Submodules {
		repo.Submodules = *req.Submodules
		changed = append(changed, fmt.Sprintf("submodules %t", repo.Submodules))
	}
	if req.Signers != nil && *req.Signers != repo.Signers {
		repo.Signers = *req.Signers
		changed = append(changed, "signers")
	}
	if repo == was {
		return nil
	}
	if err := tx.Repositories().SetPolicy(ctx, repo.TenantID, repo.ID, repo.Submodules, repo.Signers); err != nil {
		return err
	}
	if err := s.auditRepository(ctx, tx, p, repo, "repository.update", strings.Join(changed, ", ")); err != nil || repo.Signers == was.Signers {
		return err
	}
	return s.shareSigners(ctx, tx, p, repo)
}

// DeleteRepository removes a repository that no deployment uses.
func (s *Service) DeleteRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID, match Match) error {
	return s.changeRepository(ctx, p, tenant, id, match, func(tx store.Tx, repo fleet.Repository) error {
		if err := notConfigured(ctx, tx, repo); err != nil {
			return err
		}
		if err := tx.Repositories().Delete(ctx, repo.TenantID, repo.ID); errors.Is(err, store.ErrExists) {
			return fleet.Conflict("deployments, or their pending specs, use repository %s: delete or edit them first; those that are being deleted count until their agents have deleted them", repo.URL)
		} else if err != nil {
			return err
		}
		return s.auditRepository(ctx, tx, p, repo, "repository.delete", "")
	})
}

// RefreshRepository reads a repository now.
func (s *Service) RefreshRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		repo, err := tx.Repositories().Get(ctx, t.ID, id)
		if err != nil {
			return fmt.Errorf("repository %q: %w", id, err)
		}
		if err := tx.Changes().WakeRepository(ctx, t.ID, repo.ID, store.Wake{Reason: store.WakeRefresh}); err != nil {
			return err
		}
		return s.auditRepository(ctx, tx, p, repo, "repository.refresh", "")
	})
}

func (s *Service) changeRepository(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID, match Match, change func(store.Tx, fleet.Repository) error) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := administrable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		repo, err := tx.Repositories().Get(ctx, t.ID, id)
		if err != nil {
			return fmt.Errorf("repository %q: %w", id, err)
		}
		if err := match.check(string(repo.ID), repo.SpecRevision); err != nil {
			return err
		}
		return change(tx, repo)
	})
}

func (s *Service) auditRepository(ctx context.Context, tx store.Tx, p auth.Principal, repo fleet.Repository, action, detail string) error {
	return s.audit(ctx, tx, p, fleet.AuditEvent{
		TenantID: repo.TenantID, Action: action, Kind: "repository", Name: repo.URL, ID: string(repo.ID), Detail: detail,
	})
}
