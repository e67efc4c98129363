package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// Whoami asks how the server knows the caller.
func (c *Client) Whoami(ctx context.Context) (apiv1.Whoami, error) {
	var out apiv1.Whoami
	err := c.call(ctx, http.MethodGet, "/api/v1/whoami", nil, nil, &out)
	return out, err
}

// pages asks for few, large ones.
var pages = url.Values{"limit": {"500"}}

// Agents lists all agents by name.
func (c *Client) Agents(ctx context.Context) ([]apiv1.Agent, error) {
	return List[apiv1.Agent](ctx, c, c.In("agents"), pages, 0)
}

// Agent reads one agent.
func (c *Client) Agent(ctx context.Context, name string) (apiv1.Agent, error) {
	var out apiv1.Agent
	err := c.call(ctx, http.MethodGet, c.inTenant("agents", name), nil, nil, &out)
	return out, err
}

// Enroll creates an agent; its token is in the answer and nowhere else.
func (c *Client) Enroll(ctx context.Context, req apiv1.EnrollAgent) (apiv1.Enrollment, error) {
	var out apiv1.Enrollment
	err := c.call(ctx, http.MethodPost, c.inTenant("agents"), nil, req, &out)
	return out, err
}

// DeleteAgent forgets an agent; what it has deployed stays in its cluster.
func (c *Client) DeleteAgent(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, c.inTenant("agents", name), nil, nil, nil)
}

// Manifest returns the manifest of an agent without its token. Empty options mean the server's.
func (c *Client) Manifest(ctx context.Context, name, image, serverAddress string) ([]byte, error) {
	query := url.Values{}
	if image != "" {
		query.Set("image", image)
	}
	if serverAddress != "" {
		query.Set("serverAddress", serverAddress)
	}
	return c.do(ctx, http.MethodGet, c.inTenant("agents", name, "manifest"), query, nil)
}

// Environments lists all environments by name.
func (c *Client) Environments(ctx context.Context) ([]apiv1.Environment, error) {
	return List[apiv1.Environment](ctx, c, c.In("environments"), pages, 0)
}

// CreateEnvironment creates an environment.
func (c *Client) CreateEnvironment(ctx context.Context, req apiv1.CreateEnvironment) (apiv1.Environment, error) {
	var out apiv1.Environment
	err := c.call(ctx, http.MethodPost, c.inTenant("environments"), nil, req, &out)
	return out, err
}

// Deployments lists all deployments by name, without their objects.
func (c *Client) Deployments(ctx context.Context) ([]apiv1.Deployment, error) {
	return List[apiv1.Deployment](ctx, c, c.In("deployments"), pages, 0)
}

// Deployment reads one deployment with all its objects.
func (c *Client) Deployment(ctx context.Context, name string) (apiv1.Deployment, error) {
	var out apiv1.Deployment
	err := c.call(ctx, http.MethodGet, c.inTenant("deployments", name), nil, nil, &out)
	return out, err
}

// CreateDeployment creates a deployment.
func (c *Client) CreateDeployment(ctx context.Context, req apiv1.CreateDeployment) (apiv1.Deployment, error) {
	var out apiv1.Deployment
	err := c.call(ctx, http.MethodPost, c.inTenant("deployments"), nil, req, &out)
	return out, err
}

// DeleteDeployment asks for a deployment to be deleted with its objects; that goes on after it
// returns.
func (c *Client) DeleteDeployment(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, c.inTenant("deployments", name), nil, nil, nil)
}

// Repositories lists all repositories.
func (c *Client) Repositories(ctx context.Context) ([]apiv1.Repository, error) {
	return List[apiv1.Repository](ctx, c, c.In("repositories"), pages, 0)
}

// Webhook asks what the Git host of a repository has to be told, by the repository's id.
func (c *Client) Webhook(ctx context.Context, id string) (apiv1.Webhook, error) {
	var out apiv1.Webhook
	err := c.call(ctx, http.MethodPost, c.inTenant("repositories", id, "webhook"), nil, nil, &out)
	return out, err
}

// EventFilter narrows a listing of events; zero fields match everything.
type EventFilter struct {
	Deployment, Agent string
	After             int64
	Limit             int
}

// Events lists the newest events that match, oldest first.
func (c *Client) Events(ctx context.Context, f EventFilter) ([]apiv1.Event, error) {
	query := url.Values{}
	for name, value := range map[string]string{"deployment": f.Deployment, "agent": f.Agent} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.After > 0 {
		query.Set("after", strconv.FormatInt(f.After, 10))
	}
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	var out apiv1.List[apiv1.Event]
	err := c.call(ctx, http.MethodGet, c.inTenant("events"), query, nil, &out)
	return out.Items, err
}
