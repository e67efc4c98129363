package restapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// attempts is how often a partial change is tried if others change the rest concurrently.
const attempts = 3

type updateDeploymentInput struct {
	Named
	Matching
	Checking
	Body apiv1.UpdateDeployment
}

// updateDeployment changes the fields of a request. Source and policy are written as a whole, so missing parts
// are read first, and the write depends on the state that was read.
func (a *api) updateDeployment(ctx context.Context, p auth.Principal, in *updateDeploymentInput) (*tagged[apiv1.Deployment], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	for range attempts {
		var req control.UpdateDeployment
		bound := match
		if req, bound, err = a.merged(ctx, p, in, bound); err != nil {
			return nil, err
		}
		var view control.DeploymentView
		view, err = a.control.UpdateDeployment(ctx, p, in.Tenant, in.Name, req, bound)
		if errors.Is(err, control.ErrStale) && match == (control.Match{}) {
			continue // the caller accepts any state
		}
		return deploymentAnswer(view, err)
	}
	return nil, err
}

func (a *api) merged(
	ctx context.Context, p auth.Principal, in *updateDeploymentInput, match control.Match,
) (control.UpdateDeployment, control.Match, error) {
	b := in.Body
	req := control.UpdateDeployment{Labels: given(b.Labels), Environment: b.Environment, Namespace: b.Namespace, Check: in.Check != "false"}
	source, policy := changesSource(b.Source), changesPolicy(b.Policy)
	if !source && !policy {
		return req, match, nil
	}
	view, err := a.control.Deployment(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return req, match, err
	}
	if source {
		merged, err := mergeSource(view.Source, b.Source)
		if err != nil {
			return req, match, err
		}
		req.Source = &merged
	}
	if policy {
		merged, err := mergePolicy(view.Policy, b.Policy)
		if err != nil {
			return req, match, err
		}
		req.Policy = &merged
	}
	if match == (control.Match{}) {
		match = control.Match{ID: string(view.ID), SpecRevision: view.SpecRevision}
	}
	return req, match, nil
}

func changesSource(s apiv1.UpdateSource) bool {
	return s.RepoURL != nil || s.Path != nil || s.Revision != nil || s.Kind != nil || s.Globs != nil || s.Helm != nil || s.Variables != nil
}

func mergeSource(s fleet.Source, with apiv1.UpdateSource) (fleet.Source, error) {
	set(&s.RepoURL, with.RepoURL)
	set(&s.Path, with.Path)
	set(&s.Revision, with.Revision)
	set((*string)(&s.Kind), with.Kind)
	if with.Globs != nil {
		s.Globs = with.Globs
	}
	if with.Variables != nil {
		s.Variables = with.Variables
	}
	if with.Helm != nil {
		var err error
		if s.Helm, err = helmOf(with.Helm); err != nil {
			return s, err
		}
	}
	return s, nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (a *api) registerDeploymentActions() {
	register(a, operation("suspend-deployment", http.MethodPost, oneDeployment+"/suspend",
		"Suspend a deployment: its targets get no new state, and running workloads are not affected", http.StatusOK), deployments, a.suspendDeployment)
	register(a, operation("resume-deployment", http.MethodPost, oneDeployment+"/resume",
		"Resume a deployment", http.StatusOK), deployments, a.resumeDeployment)
	register(a, operation("release-deployment", http.MethodPost, oneDeployment+"/release",
		"Release a deployment that a rollback has pinned: it follows its source again", http.StatusOK), deployments, a.releaseDeployment)
}

func (a *api) suspendDeployment(ctx context.Context, p auth.Principal, in *actInput[apiv1.Suspend]) (*tagged[apiv1.Deployment], error) {
	return deploymentAnswer(a.control.SuspendDeployment(ctx, p, in.Tenant, in.Name, reason(in.Body)))
}

func (a *api) resumeDeployment(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.Deployment], error) {
	return deploymentAnswer(a.control.ResumeDeployment(ctx, p, in.Tenant, in.Name))
}

func (a *api) releaseDeployment(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.Deployment], error) {
	return deploymentAnswer(a.control.ReleaseDeployment(ctx, p, in.Tenant, in.Name))
}
