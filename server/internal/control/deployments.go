package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const maxGlobs = 100

// CreateDeployment makes a deployment, its repository if that is new, and its targets. Its source
// is read at once, in the background.
func (s *Service) CreateDeployment(ctx context.Context, p auth.Principal, tenant string, req CreateDeployment) (DeploymentView, error) {
	d, err := s.checkDeployment(req)
	if err != nil {
		return DeploymentView{}, err
	}
	err = s.store.Update(ctx, func(tx store.Tx) error {
		t, err := writable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d.TenantID = t.ID
		env, err := tx.Environments().ByName(ctx, t.ID, d.Environment)
		if errors.Is(err, store.ErrNotFound) {
			return fleet.Invalid("environment", "there is no environment %q in tenant %q", d.Environment, tenant)
		}
		if err != nil {
			return err
		}
		d.EnvironmentID = env.ID
		if d.RepositoryID, err = s.ensureRepository(ctx, tx, t.ID, d.Source.RepoURL); err != nil {
			return err
		}
		if err := tx.Deployments().Create(ctx, d); err != nil {
			return fmt.Errorf("deployment %q: %w", d.Name, err)
		}
		if err := s.expandDeployment(ctx, tx, d, env); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: t.ID, Type: fleet.EventNormal, Reason: "DeploymentCreated", Deployment: d.Name,
			Message: fmt.Sprintf("deployment %q was created by %s", d.Name, p.Name),
		})
	})
	if err != nil {
		return DeploymentView{}, err
	}
	return s.Deployment(ctx, p, tenant, d.Name)
}

func (s *Service) checkDeployment(req CreateDeployment) (fleet.Deployment, error) {
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), Name: req.Name, Source: req.Source,
		Environment: cmp.Or(req.Environment, fleet.DefaultEnvironment), Namespace: cmp.Or(req.Namespace, "default"),
		Policy:    fleet.Policy{Prune: req.Prune == nil || *req.Prune, Adopt: req.Adopt, AllowEmpty: req.AllowEmpty},
		CreatedAt: s.cfg.Now(),
	}
	if err := fleet.CheckName("name", d.Name); err != nil {
		return d, err
	}
	if err := fleet.CheckName("namespace", d.Namespace); err != nil {
		return d, err
	}
	if err := checkSource(&d.Source); err != nil {
		return d, err
	}
	url, err := s.git.CheckURL(d.Source.RepoURL)
	if err != nil {
		return d, fleet.Invalid("source.repoURL", "%v", err)
	}
	d.Source.RepoURL = url
	return d, nil
}

// checkSource refuses what could never be read and puts the rest into its one stored form.
func checkSource(src *fleet.Source) error {
	if strings.TrimSpace(src.RepoURL) == "" {
		return fleet.Invalid("source.repoURL", "give the URL of a Git repository")
	}
	clean := path.Clean(strings.TrimPrefix(cmp.Or(src.Path, "."), "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsRune(clean, 0) {
		return fleet.Invalid("source.path", "%q leaves the repository", src.Path)
	}
	src.Path = clean
	if src.Revision == "HEAD" {
		src.Revision = "" // both are the default branch
	}
	if strings.HasPrefix(src.Revision, "-") || strings.ContainsAny(src.Revision, " ~^:?*[\\\x00") || strings.Contains(src.Revision, "..") {
		return fleet.Invalid("source.revision", "%q is not the name of a branch, tag or commit", src.Revision)
	}
	if len(src.Globs) > maxGlobs {
		return fleet.Invalid("source.globs", "at most %d globs can be given", maxGlobs)
	}
	for _, glob := range src.Globs {
		if glob == "" || len(glob) > 1024 {
			return fleet.Invalid("source.globs", "a glob has between 1 and 1024 characters")
		}
	}
	return nil
}

func (s *Service) ensureRepository(ctx context.Context, tx store.Tx, tenant fleet.TenantID, url string) (fleet.RepositoryID, error) {
	repo, err := tx.Repositories().ByURL(ctx, tenant, url)
	if err == nil {
		return repo.ID, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	repo = fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: tenant, URL: url, CreatedAt: s.cfg.Now()}
	return repo.ID, tx.Repositories().Create(ctx, repo)
}

// DeleteDeployment turns every target into a tombstone. The deployment is listed until its agents
// have carried them out; its name is free at once.
func (s *Service) DeleteDeployment(ctx context.Context, p auth.Principal, tenant, name string) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		t, err := writable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d, err := tx.Deployments().ByName(ctx, t.ID, name)
		if err != nil {
			return fmt.Errorf("deployment %q: %w", name, err)
		}
		if err := tx.Deployments().MarkDeleted(ctx, t.ID, d.ID, s.cfg.Now()); err != nil {
			return err
		}
		if err := s.bury(ctx, tx, d); err != nil {
			return err
		}
		return s.tell(ctx, tx, fleet.Event{
			TenantID: t.ID, Type: fleet.EventNormal, Reason: "DeploymentDeleted", Deployment: d.Name,
			Message: fmt.Sprintf("deployment %q was deleted by %s", d.Name, p.Name),
		})
	})
}

// bury makes tombstones of the targets that an agent may have heard of, and removes the others.
func (s *Service) bury(ctx context.Context, tx store.Tx, d fleet.Deployment) error {
	targets, err := tx.Targets().OfDeployment(ctx, d.TenantID, d.ID)
	if err != nil {
		return err
	}
	left := 0
	for _, t := range targets {
		if t.Desired.Digest == "" && t.Observed.Sync == "" {
			if err := tx.Targets().Remove(ctx, d.TenantID, t.ID); err != nil {
				return err
			}
			continue
		}
		left++
		tombstone := fleet.Desired{Version: next(newest(t)), Namespace: d.Namespace, Policy: d.Policy, Tombstone: true}
		if err := tx.Targets().SetDesired(ctx, d.TenantID, t.ID, tombstone); err != nil {
			return err
		}
	}
	if left > 0 {
		return nil
	}
	return tx.Deployments().Remove(ctx, d.TenantID, d.ID)
}

// Repositories lists the repositories of a tenant.
func (s *Service) Repositories(ctx context.Context, p auth.Principal, tenant string) ([]fleet.Repository, error) {
	var out []fleet.Repository
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := readable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		out, err = tx.Repositories().List(ctx, t.ID)
		return err
	})
	return out, err
}

// Webhook tells what the Git host of a repository has to be told. It is asked for by name and never
// part of a listing: who knows it can make the server look at the repository.
func (s *Service) Webhook(ctx context.Context, p auth.Principal, tenant string, id fleet.RepositoryID) (Webhook, error) {
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := writable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		_, err = tx.Repositories().Get(ctx, t.ID, id)
		return err
	})
	if err != nil {
		return Webhook{}, err
	}
	return Webhook{Repository: id, Secret: s.webhookSecret(id)}, nil
}

// WebhookSecret returns the secret that signs the webhooks of a repository.
func (s *Service) WebhookSecret(ctx context.Context, id fleet.RepositoryID) (string, error) {
	err := s.store.View(ctx, func(tx store.Tx) error {
		_, err := tx.Repositories().GetAllTenants(ctx, id)
		return err
	})
	if err != nil {
		return "", err
	}
	return s.webhookSecret(id), nil
}

// Push says that a ref of a repository may have moved; "" means any. The caller has checked the
// signature.
func (s *Service) Push(_ context.Context, id fleet.RepositoryID, ref string) error {
	s.sources.push(id, ref, s.cfg.Now())
	return nil
}
