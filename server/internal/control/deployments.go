package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/quota"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// CreateDeployment makes a deployment, its repository if that is new, and its targets. Its source
// is read at once, in the background.
func (s *Service) CreateDeployment(ctx context.Context, p auth.Principal, tenant string, req CreateDeployment) (DeploymentView, error) {
	d, err := s.newDeployment(req)
	if err != nil {
		return DeploymentView{}, err
	}
	warnings, err := s.checkNew(ctx, p, tenant, d, req.Check)
	if err != nil {
		return DeploymentView{}, err
	}
	err = s.store.Update(ctx, func(tx store.Tx) error {
		t, err := deployable(ctx, tx, p, tenant)
		if err != nil {
			return err
		}
		d := d // this may run more than once
		d.TenantID = t.ID
		return s.create(ctx, tx, p, t, d)
	})
	if err != nil {
		return DeploymentView{}, err
	}
	view, err := s.Deployment(ctx, p, tenant, d.Name)
	view.Warnings = warnings
	return view, err
}

// create stores a deployment that was checked, and places it.
func (s *Service) create(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, d fleet.Deployment) error {
	if err := quota.Check(ctx, tx, t, quota.Deployments, 1); err != nil {
		return err
	}
	if err := s.aim(ctx, tx, t, &d); err != nil {
		return err
	}
	var err error
	if d.RepositoryID, err = s.ensureRepository(ctx, tx, t, d.Source.RepoURL); err != nil {
		return err
	}
	if err := tx.Deployments().Create(ctx, d); err != nil {
		return fmt.Errorf("deployment %q: %w", d.Name, err)
	}
	if err := s.placer.Place(ctx, tx, d); err != nil {
		return err
	}
	return s.record(ctx, tx, p, d, "deployment.create", "DeploymentCreated", "was created")
}

func (s *Service) newDeployment(req CreateDeployment) (fleet.Deployment, error) {
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), Name: req.Name, Labels: fleet.CloneLabels(req.Labels), Source: req.Source,
		Environment: cmp.Or(req.Environment, fleet.DefaultEnvironment), Namespace: cmp.Or(req.Namespace, "default"),
		Policy: fleet.Policy{Prune: true}, Spec: 1, CreatedAt: s.cfg.Now(),
	}
	if req.Policy != nil {
		d.Policy = *req.Policy
	}
	if err := fleet.CheckName("name", d.Name); err != nil {
		return d, err
	}
	if err := checkPlace("environment", d.Environment); err != nil {
		return d, err
	}
	return d, s.checkDeployment(&d)
}

// checkDeployment refuses what could never work and puts the rest into its one stored form.
func (s *Service) checkDeployment(d *fleet.Deployment) error {
	return errors.Join(checkLabelCount(d.Labels), fleet.CheckLabels("labels", d.Labels), fleet.CheckName("namespace", d.Namespace), checkPolicy(&d.Policy),
		checkSource(&d.Source), s.checkURL(&d.Source))
}

// checkLabelCount bounds how many labels a deployment has.
func checkLabelCount(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fleet.Invalid("labels", "a deployment has at most %d labels", maxLabels)
	}
	return nil
}

func (s *Service) checkURL(src *fleet.Source) error {
	if strings.TrimSpace(src.RepoURL) == "" {
		return fleet.Invalid("source.repoURL", "give the URL of a Git repository")
	}
	url, err := s.git.CheckURL(src.RepoURL)
	if err != nil {
		return fleet.Invalid("source.repoURL", "%v", err)
	}
	src.RepoURL = url
	return nil
}

// aim finds the environment that d names.
func (s *Service) aim(ctx context.Context, tx store.Tx, t fleet.Tenant, d *fleet.Deployment) error {
	env, _, _, err := s.environmentOf(ctx, tx, t, d.Environment)
	if errors.Is(err, store.ErrNotFound) {
		return fleet.Invalid("environment", "there is no environment %q for tenant %q", d.Environment, t.Name)
	}
	if err != nil {
		return err
	}
	d.EnvironmentTenant, d.EnvironmentID = env.TenantID, env.ID
	return nil
}

func (s *Service) ensureRepository(ctx context.Context, tx store.Tx, t fleet.Tenant, url string) (fleet.RepositoryID, error) {
	repo, err := tx.Repositories().ByURL(ctx, t.ID, url)
	if err == nil {
		return repo.ID, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	if err := quota.Check(ctx, tx, t, quota.Repositories, 1); err != nil {
		return "", err
	}
	repo = fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: t.ID, URL: url, Spec: 1, CreatedAt: s.cfg.Now()}
	if err := takeSigners(ctx, tx, &repo); err != nil {
		return "", err
	}
	err = tx.Repositories().Create(ctx, repo)
	if errors.Is(err, store.ErrExists) { // another deployment of it was created at the same moment
		repo, err = tx.Repositories().ByURL(ctx, t.ID, url)
	}
	return repo.ID, err
}

// deployableDeployment finds a deployment that p may change.
func (s *Service) deployableDeployment(ctx context.Context, tx store.Tx, p auth.Principal, tenant, name string) (fleet.Tenant, fleet.Deployment, error) {
	t, err := deployable(ctx, tx, p, tenant)
	if err != nil {
		return fleet.Tenant{}, fleet.Deployment{}, err
	}
	d, err := tx.Deployments().ByName(ctx, t.ID, name)
	if err != nil {
		return fleet.Tenant{}, fleet.Deployment{}, fmt.Errorf("deployment %q: %w", name, err)
	}
	return t, d, nil
}

// record tells users and the audit log what p did to a deployment.
func (s *Service) record(ctx context.Context, tx store.Tx, p auth.Principal, d fleet.Deployment, action string, reason fleet.Reason, what string) error {
	if err := s.audit(ctx, tx, p, fleet.AuditEvent{
		TenantID: d.TenantID, Action: action, Kind: "deployment", Name: d.Name, ID: string(d.ID), Detail: what,
	}); err != nil {
		return err
	}
	return s.tell(ctx, tx, fleet.Event{
		TenantID: d.TenantID, Type: fleet.EventNormal, Reason: reason, Deployment: d.Name,
		Message: fmt.Sprintf("deployment %q: %s, by %s", d.Name, what, p.Name),
	})
}
