package control

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/obs"
	"github.com/kedge-dev/kedge/internal/render"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// checkNew checks the source of a new deployment, if requested.
func (s *Service) checkNew(ctx context.Context, p auth.Principal, tenant string, d fleet.Deployment, asked bool) ([]string, error) {
	if !asked {
		return nil, nil
	}
	var repo fleet.Repository
	var taken bool
	err := s.store.View(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d.TenantID = t.ID
		if taken, err = s.acceptable(ctx, tx, t, d); err != nil || taken {
			return err
		}
		repo, err = s.repositoryOf(ctx, tx, d)
		if err == nil && repo.ID == "" {
			err = quota.Check(ctx, tx, t, quota.Repositories, 1)
		}
		return err
	})
	if err != nil || taken {
		return nil, err
	}
	return s.checkSource(ctx, repo, d)
}

// acceptable refuses a deployment that would be refused with any source: then nothing is fetched. The creation
// itself reports a name that is in use.
func (s *Service) acceptable(ctx context.Context, tx store.Tx, t fleet.Tenant, d fleet.Deployment) (taken bool, err error) {
	_, err = tx.Deployments().ByName(ctx, t.ID, d.Name)
	if !errors.Is(err, store.ErrNotFound) {
		return err == nil, err
	}
	if err := quota.Check(ctx, tx, t, quota.Deployments, 1); err != nil {
		return false, err
	}
	return false, s.aim(ctx, tx, t, &d)
}

// checkEdit checks the changed source of a deployment, if requested. The edit itself finds errors that need no
// fetch.
func (s *Service) checkEdit(ctx context.Context, p auth.Principal, tenant, name string, req UpdateDeployment) ([]string, error) {
	if !req.Check || req.Source == nil {
		return nil, nil
	}
	var repo fleet.Repository
	var d fleet.Deployment
	changed := false
	err := s.store.View(ctx, func(tx store.Tx) error {
		_, was, err := s.deployableDeployment(ctx, tx, p, tenant, name)
		if err != nil {
			return err
		}
		d = was
		req.apply(&d)
		if s.checkDeployment(&d) != nil || was.Source.Equal(d.Source) {
			return nil
		}
		changed = true
		repo, err = s.repositoryOf(ctx, tx, d)
		return err
	})
	if err != nil || !changed {
		return nil, err
	}
	return s.checkSource(ctx, repo, d)
}

// repositoryOf returns the repository of a deployment, stored or not yet stored.
func (s *Service) repositoryOf(ctx context.Context, tx store.Tx, d fleet.Deployment) (fleet.Repository, error) {
	repo, err := tx.Repositories().ByURL(ctx, d.TenantID, d.Source.RepoURL)
	if errors.Is(err, store.ErrNotFound) {
		return fleet.Repository{TenantID: d.TenantID, URL: d.Source.RepoURL}, nil
	}
	return repo, err
}

// checkSource checks within [Config.CheckTimeout] whether the revision and the folder of a deployment exist and
// contain something to deploy. A definite error names the field. Anything that cannot be checked is a warning:
// the host may be back in a minute.
func (s *Service) checkSource(ctx context.Context, repo fleet.Repository, d fleet.Deployment) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CheckTimeout)
	defer cancel()
	access, err := s.access(ctx, repo)
	if err == nil {
		access.Signers = "" // signatures are checked later, in the status of the deployment
		err = s.checks.check(ctx, access, d)
	}
	var invalid *fleet.InvalidError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &invalid):
		return nil, err
	default:
		return []string{s.notChecked(ctx, d, err)}, nil
	}
}

// notChecked returns the warning for a source that could not be checked.
func (s *Service) notChecked(ctx context.Context, d fleet.Deployment, err error) string {
	why := "the cause is in the log of the server"
	var remote *gitsource.RemoteError
	switch {
	case errors.As(err, &remote):
		why = remote.Error()
	case errors.Is(err, gitsource.ErrEmpty):
		return fmt.Sprintf("%s is empty: the first push to it is deployed", d.Source.RepoURL)
	case ctx.Err() != nil:
		why = fmt.Sprintf("reading %s took longer than %s", d.Source.RepoURL, s.cfg.CheckTimeout)
	default:
		s.cfg.Log.WarnContext(ctx, "checking the source of a deployment", "url", d.Source.RepoURL, obs.KeyError, err)
	}
	return "the source was not checked: " + why
}

// definite converts an error that a retry would not fix to one that names the field.
func definite(err error) error {
	var remote *gitsource.RemoteError
	var missing *gitsource.RefNotFoundError
	var url *gitsource.URLError
	switch {
	case errors.As(err, &missing):
		return fleet.Invalid("source.revision", "%v", err)
	case errors.As(err, &url):
		return fleet.Invalid("source.repoURL", "%v", err)
	case errors.As(err, &remote) && remote.Reason == fleet.ReasonRepositoryNotReadable:
		return fleet.Invalid("source.repoURL", "%v: check the URL; if the repository is private, store a credential and set it with "+
			"kedge repo add URL --credential NAME", err)
	case errors.As(err, &remote) && remote.Reason != "":
		return fleet.Invalid("source.repoURL", "%v", err)
	}
	return err
}

// wrongPath converts an error of render to one that names the field.
func wrongPath(d fleet.Deployment, err error) error {
	if !render.IsUserError(err) {
		return err
	}
	field := "source.path"
	if len(d.Source.Globs) > 0 {
		field = "source.globs"
	}
	return fleet.Invalid(field, "%v", err)
}

// variesByPath reports whether the folder depends on the agent: then it is not known yet.
func variesByPath(src fleet.Source) bool { return strings.Contains(src.Path, "{agent.") }
