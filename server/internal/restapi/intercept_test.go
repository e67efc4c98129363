package restapi_test

import (
	"context"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// intercepted is the real control, with a function that runs before some of its methods. The function gets the name
// of the method and its request. If it returns an error, the method is not called and returns that error.
type intercepted struct {
	*control.Service
	before func(method string, request any) error
}

// intercept runs fn before one method, with its request.
func intercept[T any](f fixture, method string, fn func(T) error) intercepted {
	return intercepted{f.Service, func(called string, request any) error {
		if called != method {
			return nil
		}
		return fn(request.(T))
	}}
}

// record appends the requests of a method to a list.
func record[T any](f fixture, method string, into *[]T) intercepted {
	return intercept(f, method, func(request T) error {
		*into = append(*into, request)
		return nil
	})
}

// fail makes a method fail.
func fail(f fixture, method string, err error) intercepted {
	return intercept(f, method, func(any) error { return err })
}

// deploymentEdit is the request of UpdateDeployment.
type deploymentEdit struct {
	control.UpdateDeployment
	match control.Match
}

// auditQuery is the request of Audit.
type auditQuery struct {
	store.AuditFilter
	tenant string
}

// push is the request of Push.
type push struct {
	repo fleet.RepositoryID
	refs []string
}

func next[T any](i intercepted, method string, request any, call func() (T, error)) (T, error) {
	if err := i.before(method, request); err != nil {
		var none T
		return none, err
	}
	return call()
}

func (i intercepted) Authenticate(ctx context.Context, given string) (auth.Principal, error) {
	return next(i, "Authenticate", given, func() (auth.Principal, error) { return i.Service.Authenticate(ctx, given) })
}

func (i intercepted) Agents(ctx context.Context, p auth.Principal, tenant string, filter store.AgentFilter) ([]control.AgentView, error) {
	return next(i, "Agents", filter, func() ([]control.AgentView, error) { return i.Service.Agents(ctx, p, tenant, filter) })
}

func (i intercepted) CreateDeployment(ctx context.Context, p auth.Principal, tenant string, req control.CreateDeployment) (control.DeploymentView, error) {
	return next(i, "CreateDeployment", req, func() (control.DeploymentView, error) { return i.Service.CreateDeployment(ctx, p, tenant, req) })
}

func (i intercepted) Deployments(ctx context.Context, p auth.Principal, tenant string, filter control.ListDeployments) ([]control.DeploymentView, error) {
	return next(i, "Deployments", filter, func() ([]control.DeploymentView, error) { return i.Service.Deployments(ctx, p, tenant, filter) })
}

func (i intercepted) Deployment(ctx context.Context, p auth.Principal, tenant, name string) (control.DeploymentView, error) {
	return next(i, "Deployment", name, func() (control.DeploymentView, error) { return i.Service.Deployment(ctx, p, tenant, name) })
}

func (i intercepted) UpdateDeployment(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateDeployment, match control.Match) (control.DeploymentView, error) {
	return next(i, "UpdateDeployment", deploymentEdit{req, match}, func() (control.DeploymentView, error) {
		return i.Service.UpdateDeployment(ctx, p, tenant, name, req, match)
	})
}

func (i intercepted) Audit(ctx context.Context, p auth.Principal, tenant string, filter store.AuditFilter) ([]fleet.AuditEvent, error) {
	return next(i, "Audit", auditQuery{filter, tenant}, func() ([]fleet.AuditEvent, error) { return i.Service.Audit(ctx, p, tenant, filter) })
}

func (i intercepted) WebhookSecret(ctx context.Context, repo fleet.RepositoryID) (string, error) {
	return next(i, "WebhookSecret", repo, func() (string, error) { return i.Service.WebhookSecret(ctx, repo) })
}

func (i intercepted) Push(ctx context.Context, repo fleet.RepositoryID, refs ...string) error {
	_, err := next(i, "Push", push{repo, refs}, func() (any, error) { return nil, i.Service.Push(ctx, repo, refs...) })
	return err
}

func (i intercepted) WaitApplications(ctx context.Context, a fleet.Agent, tag string, wait time.Duration) ([]control.Application, string, bool, error) {
	if err := i.before("WaitApplications", wait); err != nil {
		return nil, "", false, err
	}
	return i.Service.WaitApplications(ctx, a, tag, wait)
}
