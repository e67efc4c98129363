package control

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// UpdateDeployment changes any part of a deployment except its name. The same input twice changes nothing. An
// edit is one change: if its source must be rendered, no part of it takes effect before that, see setPending.
// Another environment detaches the targets that it does not select.
func (s *Service) UpdateDeployment(ctx context.Context, p auth.Principal, tenant, name string, req UpdateDeployment, match Match) (DeploymentView, error) {
	warnings, err := s.checkEdit(ctx, p, tenant, name, req)
	if err != nil {
		return DeploymentView{}, err
	}
	err = s.store.Update(ctx, func(tx store.Tx) error { return s.editDeployment(ctx, tx, p, tenant, name, req, match) })
	if err != nil {
		return DeploymentView{}, err
	}
	view, err := s.Deployment(ctx, p, tenant, name)
	view.Warnings = warnings
	return view, err
}

// editDeployment is UpdateDeployment in a transaction.
func (s *Service) editDeployment(ctx context.Context, tx store.Tx, p auth.Principal, tenant, name string, req UpdateDeployment, match Match) error {
	t, was, err := s.deployableDeployment(ctx, tx, p, tenant, name)
	if err != nil {
		return err
	}
	if err := match.check(string(was.ID), was.SpecRevision); err != nil {
		return err
	}
	if err := notDeclared(ctx, tx, was, "changed"); err != nil {
		return err
	}
	if err := checkOwner(ctx, tx, p, deploymentResource(was), "changed"); err != nil {
		return err
	}
	newest, err := newestSpec(ctx, tx, was)
	if err != nil {
		return err
	}
	d := newest
	req.apply(&d)
	if err := checkUserEnvironment("environment", d.Environment); err != nil {
		return err
	}
	if err := s.checkDeployment(&d); err != nil {
		return err
	}
	if req.Source == nil || req.Source.RepoURL == newest.Source.RepoURL {
		// Not the form that would be stored today: with https instead of http it may be another repository.
		d.Source.RepoURL = newest.Source.RepoURL
	}
	changed, suspension := changes(newest, d), s.wantedSuspension(p, was, req)
	if len(changed) > 0 || suspension != was.Suspension {
		if err := checkGeneration(ctx, tx, p, deploymentResource(was)); err != nil {
			return err
		}
	}
	if len(changed) > 0 {
		if err := s.update(ctx, tx, p, t, edit{inForce: was, newest: newest, wanted: d}, changed); err != nil {
			return err
		}
	}
	if err := s.suspend(ctx, tx, p, t, was, suspension); err != nil {
		return err
	}
	return observe(ctx, tx, p, deploymentResource(was))
}

func (req UpdateDeployment) apply(d *fleet.Deployment) {
	if req.Labels != nil {
		d.Labels = fleet.CloneLabels(*req.Labels)
	}
	if req.Source != nil {
		d.Source = *req.Source
	}
	if req.Environment != nil {
		d.Environment = *req.Environment
	}
	if req.Namespace != nil {
		d.Namespace = *req.Namespace
	}
	if req.Policy != nil {
		d.Policy = *req.Policy
	}
}

// changes returns the parts in which two states of a deployment differ.
func changes(a, b fleet.Deployment) []string {
	var out []string
	for _, part := range []struct {
		name string
		same bool
	}{
		{"labels", maps.Equal(a.Labels, b.Labels)},
		{"source", a.Source.Equal(b.Source)},
		{"environment", a.Environment == b.Environment},
		{"namespace", a.Namespace == b.Namespace},
		{"policy", a.Policy.Equal(b.Policy)},
	} {
		if !part.same {
			out = append(out, part.name)
		}
	}
	return out
}

// edit is a requested change of a deployment, by a user or a file.
type edit struct {
	inForce fleet.Deployment
	newest  fleet.Deployment // with the newest requested spec; inForce if none is pending
	wanted  fleet.Deployment
}

func (s *Service) update(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, e edit, changed []string) error {
	if err := s.aimEdit(ctx, tx, t, &e); err != nil {
		return err
	}
	if e.wanted.Source.RepoURL != e.newest.Source.RepoURL {
		var err error
		if e.wanted.RepositoryID, err = s.ensureRepository(ctx, tx, t, e.wanted.Source.RepoURL); err != nil {
			return err
		}
	}
	what := strings.Join(changed, ", ") + " changed"
	if needsRender(e.inForce, e.wanted) {
		return s.setPending(ctx, tx, p, e, what)
	}
	return s.editInForce(ctx, tx, p, t, e, what)
}

// move changes the environment of d. Targets leave the old one, so it must not be suspended.
func (s *Service) move(ctx context.Context, tx store.Tx, t fleet.Tenant, was fleet.Deployment, d *fleet.Deployment) error {
	held, err := rollout.NewSuspensions(tx).Around(ctx, was)
	if err != nil {
		return err
	}
	if !held.IsZero() {
		return fleet.Conflict("deployment %q cannot leave environment %q now: %s", d.Name, was.Environment, held)
	}
	return s.aim(ctx, tx, t, d)
}

// edited writes d, which differs from the stored one, and its consequences.
func (s *Service) edited(ctx context.Context, tx store.Tx, p auth.Principal, t fleet.Tenant, d fleet.Deployment, action, what string) error {
	if err := tx.Deployments().Update(ctx, d); err != nil {
		return fmt.Errorf("deployment %q: %w", d.Name, err)
	}
	if err := s.record(ctx, tx, p, d, action, fleet.ReasonDeploymentEdited, what); err != nil {
		return err
	}
	d, err := tx.Deployments().Get(ctx, t.ID, d.ID)
	if err != nil {
		return err
	}
	return s.placer.Place(ctx, tx, d)
}
