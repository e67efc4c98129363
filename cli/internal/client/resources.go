package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// Everything asks a listing for few, large pages.
func Everything() url.Values { return url.Values{"limit": {"500"}} }

// Deployment reads one deployment with all its targets, however many pages they take, and while they
// are few with all their objects.
func (c *Client) Deployment(ctx context.Context, name string) (apiv1.Deployment, error) {
	out, err := Get[apiv1.Deployment](ctx, c, c.In("deployments", name))
	if err != nil || out.MoreTargets == "" {
		return out, err
	}
	query := Everything()
	query.Set("after", out.MoreTargets)
	more, err := List[apiv1.Target](ctx, c, c.In("deployments", name, "targets"), query, 0)
	out.Targets, out.MoreTargets = append(out.Targets, more...), ""
	return out, err
}

// DeleteDeployment deletes a deployment, and unless keepObjects is set its objects in every cluster.
func (c *Client) DeleteDeployment(ctx context.Context, name string, keepObjects bool) error {
	query := url.Values{}
	if keepObjects {
		query.Set("keepObjects", "true")
	}
	return c.call(ctx, http.MethodDelete, c.In("deployments", name), query, nil, nil)
}

// ManifestOptions says how an agent is to be installed. Empty ones mean the server's.
type ManifestOptions struct {
	Image         string
	ServerAddress string
	Replicas      int
	// Namespace is the namespace of the agent.
	Namespace string
	// RegistrationSecret is a Secret in that namespace that the user creates.
	RegistrationSecret string
	// WithoutDeployment leaves the Deployment out.
	WithoutDeployment bool
	// Admission adds an admission policy; nil for none.
	Admission *Admission
}

// Admission limits what an agent may write, beyond RBAC.
type Admission struct {
	Namespaces, NamespaceLabels, Kinds, ExcludeKinds, Rules []string
	ClusterScoped, Privileged                               bool
}

func (a *Admission) query(to url.Values) {
	if a == nil {
		return
	}
	to.Set("admission", "true")
	for name, list := range map[string][]string{
		"admissionNamespace": a.Namespaces, "admissionNamespaceLabel": a.NamespaceLabels, "admissionKind": a.Kinds, "admissionExcludeKind": a.ExcludeKinds, "admissionRule": a.Rules,
	} {
		for _, value := range list {
			to.Add(name, value)
		}
	}
	for name, set := range map[string]bool{"admissionClusterScoped": a.ClusterScoped, "admissionPrivileged": a.Privileged} {
		if set {
			to.Set(name, "true")
		}
	}
}

// Manifest returns the manifest of an agent without its token.
func (c *Client) Manifest(ctx context.Context, name string, o ManifestOptions) ([]byte, error) {
	query := url.Values{}
	if o.Image != "" {
		query.Set("image", o.Image)
	}
	if o.ServerAddress != "" {
		query.Set("serverAddress", o.ServerAddress)
	}
	if o.Replicas > 1 {
		query.Set("replicas", strconv.Itoa(o.Replicas))
	}
	if o.Namespace != "" {
		query.Set("namespace", o.Namespace)
	}
	if o.RegistrationSecret != "" {
		query.Set("registrationSecret", o.RegistrationSecret)
	}
	if o.WithoutDeployment {
		query.Set("withoutDeployment", "true")
	}
	o.Admission.query(query)
	return c.do(ctx, http.MethodGet, c.In("agents", name, "manifest"), query, nil)
}

// Events lists the newest events that match, oldest first.
func (c *Client) Events(ctx context.Context, query url.Values) ([]apiv1.Event, error) {
	var page apiv1.List[apiv1.Event]
	err := c.call(ctx, http.MethodGet, c.In("events"), query, nil, &page)
	return page.Items, err
}
