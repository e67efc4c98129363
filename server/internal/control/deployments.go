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

// suspendedBySpec is the reason of a suspension that is part of a spec.
const suspendedBySpec = "spec.suspend is set"

// CreateDeployment creates a deployment, its repository if that is new, and its targets. Its source is read
// immediately, in the background.
func (s *Service) CreateDeployment(ctx context.Context, p auth.Principal, tenant string, req CreateDeployment) (DeploymentView, error) {
	d, err := s.newDeployment(req)
	if err != nil {
		return DeploymentView{}, err
	}
	warnings, err := s.checkNew(ctx, p, tenant, d, req.Check)
	if err != nil {
		return DeploymentView{}, err
	}
	err = s.store.Update(ctx, func(tx store.Tx) error { return s.addDeployment(ctx, tx, p, tenant, d, req.Suspend) })
	if err != nil {
		return DeploymentView{}, err
	}
	view, err := s.Deployment(ctx, p, tenant, d.Name)
	view.Warnings = warnings
	return view, err
}

// addDeployment is CreateDeployment in a transaction, for a checked deployment.
func (s *Service) addDeployment(ctx context.Context, tx store.Tx, p auth.Principal, tenant string, d fleet.Deployment, suspend bool) error {
	t, err := deployable(ctx, tx, p, tenant)
	if err != nil {
		return err
	}
	d.TenantID = t.ID
	if suspend {
		d.Suspension = s.suspension(p, suspendedBySpec)
	}
	return s.create(ctx, tx, p, t, d)
}

// create stores a checked deployment and places it.
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
	if err := own(ctx, tx, p, deploymentResource(d)); err != nil {
		return err
	}
	if err := s.placer.Place(ctx, tx, d); err != nil {
		return err
	}
	return s.record(ctx, tx, p, d, "deployment.create", fleet.ReasonDeploymentCreated, "was created")
}

func (s *Service) newDeployment(req CreateDeployment) (fleet.Deployment, error) {
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), Name: req.Name, Labels: fleet.CloneLabels(req.Labels), Source: req.Source,
		Environment: cmp.Or(req.Environment, fleet.DefaultEnvironment), Namespace: cmp.Or(req.Namespace, "default"),
		Policy: fleet.Policy{Prune: true}, SpecRevision: 1, CreatedAt: s.cfg.Now(),
	}
	if req.Policy != nil {
		d.Policy = *req.Policy
	}
	if err := fleet.CheckName("name", d.Name); err != nil {
		return d, err
	}
	if err := checkUserEnvironment("environment", d.Environment); err != nil {
		return d, err
	}
	return d, s.checkDeployment(&d)
}

// checkDeployment refuses invalid fields and converts the rest to their stored form.
func (s *Service) checkDeployment(d *fleet.Deployment) error {
	return errors.Join(checkLabelCount(d.Labels), fleet.CheckLabels("labels", d.Labels), fleet.CheckName("namespace", d.Namespace), checkPolicy(&d.Policy),
		checkSource(&d.Source), s.checkURL(&d.Source))
}

// checkLabelCount limits the labels of a deployment.
func checkLabelCount(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fleet.Invalid("labels", "a deployment has at most %d labels", maxLabels)
	}
	return nil
}

func (s *Service) checkURL(src *fleet.Source) error {
	if strings.TrimSpace(src.RepoURL) == "" {
		return fleet.Invalid("source.repoURL", "is required: the URL of a Git repository")
	}
	url, err := s.git.CheckURL(src.RepoURL)
	if err != nil {
		return fleet.Invalid("source.repoURL", "%v", err)
	}
	src.RepoURL = url
	return nil
}

// aim finds the environment of d.
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
	repo = fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: t.ID, URL: url, SpecRevision: 1, CreatedAt: s.cfg.Now()}
	if err := takeSigners(ctx, tx, &repo); err != nil {
		return "", err
	}
	err = tx.Repositories().Create(ctx, repo)
	if errors.Is(err, store.ErrExists) { // another request created it concurrently
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

// record writes an event and an audit record about a change of a deployment by p.
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
