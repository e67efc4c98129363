package restapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

type agentControl interface {
	EnrollAgent(ctx context.Context, p auth.Principal, tenant string, req control.EnrollAgent) (control.Enrollment, error)
	Agents(ctx context.Context, p auth.Principal, tenant string, f store.AgentFilter) ([]control.AgentView, error)
	Agent(ctx context.Context, p auth.Principal, tenant, name string) (control.AgentView, error)
	UpdateAgent(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateAgent, match control.Match) (control.AgentView, error)
	DeleteAgent(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) error
}

var agents = resource{"agent", tenant + "/agents"}

type (
	listAgentsInput struct {
		InTenant
		Paging
		Label []string `query:"label,explode" doc:"KEY=VALUE; repeated: agents that have all of them."`
		LabelSelector
		Text      string `query:"q" maxLength:"253" doc:"Part of the name."`
		Connected string `query:"connected" enum:"true,false" doc:"Only those with a connected replica, or only those without."`
	}
	manifestInput struct {
		Named
		Image             string `query:"image" doc:"Image of the agent; needed unless the server has a default (--agent-image) or withoutDeployment is set."`
		Replicas          int    `query:"replicas" minimum:"0" maximum:"9" doc:"How many pods; 1 when absent, whatever there are now."`
		ServerAddress     string `query:"serverAddress" doc:"How the agent reaches the server; the server knows a default."`
		WithoutDeployment bool   `query:"withoutDeployment" doc:"Leave the Deployment out: for an agent that runs outside of its cluster, and to uninstall one, whose Namespace takes the Deployment along."`
	}
	manifestOutput struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
)

func (a *api) registerAgents() {
	one := agents.path + "/{name}"
	register(a, operation("list-agents", http.MethodGet, agents.path, "List agents by name", http.StatusOK), agents, a.listAgents)
	register(a, operation("enroll-agent", http.MethodPost, agents.path,
		"Enrol an agent: its token and manifest are shown this once", http.StatusCreated), agents, a.enrollAgent)
	register(a, operation("get-agent", http.MethodGet, one, "Read an agent", http.StatusOK), agents, a.getAgent)
	register(a, operation("update-agent", http.MethodPatch, one,
		"Change labels or namespaces of an agent; deployments come and go with them", http.StatusOK, http.StatusPreconditionFailed), agents, a.updateAgent)
	register(a, operation("delete-agent", http.MethodDelete, one,
		"Forget an agent: its token is refused from then on, and everything that it has deployed stays in its cluster",
		http.StatusNoContent, http.StatusPreconditionFailed), agents, a.deleteAgent)

	manifest := operation("get-agent-manifest", http.MethodGet, one+"/manifest",
		"The manifest of an agent without its token, to upgrade (kubectl apply) and to uninstall (kubectl delete)", http.StatusOK)
	manifest.Responses = map[string]*huma.Response{"200": {
		Description: "YAML for kubectl.",
		Content:     map[string]*huma.MediaType{"application/yaml": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	register(a, manifest, agents, a.getManifest)
}

func (a *api) listAgents(ctx context.Context, p auth.Principal, in *listAgentsInput) (*listOutput[apiv1.Agent], error) {
	labels, err := labelled(in.Label)
	if err != nil {
		return nil, err
	}
	selector, err := labelSelector(in.LabelSelector)
	if err != nil {
		return nil, err
	}
	f := store.AgentFilter{Page: in.page(), Labels: labels, Selector: selector, Text: in.Text}
	if in.Connected != "" {
		f.Connected = new(in.Connected == "true")
	}
	views, err := a.control.Agents(ctx, p, in.Tenant, f)
	if err != nil {
		return nil, err
	}
	return paged(views, in.Limit, agentJSON, func(v control.AgentView) string { return v.Name }), nil
}

func (a *api) getAgent(ctx context.Context, p auth.Principal, in *Named) (*tagged[apiv1.Agent], error) {
	return agentAnswer(a.control.Agent(ctx, p, in.Tenant, in.Name))
}

func (a *api) updateAgent(ctx context.Context, p auth.Principal, in *editInput[apiv1.UpdateAgent]) (*tagged[apiv1.Agent], error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return agentAnswer(a.control.UpdateAgent(ctx, p, in.Tenant, in.Name, control.UpdateAgent{
		Labels: given(in.Body.Labels), Namespaces: givenList(in.Body.Namespaces),
	}, match))
}

func (a *api) deleteAgent(ctx context.Context, p auth.Principal, in *deleteInput) (*struct{}, error) {
	match, err := in.match()
	if err != nil {
		return nil, err
	}
	return nil, a.control.DeleteAgent(ctx, p, in.Tenant, in.Name, match)
}

func agentAnswer(v control.AgentView, err error) (*tagged[apiv1.Agent], error) {
	if err != nil {
		return nil, err
	}
	return &tagged[apiv1.Agent]{ETag: etag(v.ID, v.Spec), Body: agentJSON(v)}, nil
}

// given is nil for what a request leaves out, which is not the same as an empty one.
func given(m map[string]string) *map[string]string {
	if m == nil {
		return nil
	}
	return &m
}

// givenList is given for lists.
func givenList(list []string) *[]string {
	if list == nil {
		return nil
	}
	return &list
}

func (a *api) enrollAgent(ctx context.Context, p auth.Principal, in *createInput[apiv1.EnrollAgent]) (*created[apiv1.Enrollment], error) {
	naming(ctx, in.Body.Name)
	opts := a.installOptions(in.Tenant, in.Body.ServerAddress, in.Body.Image)
	opts.WithSecret, opts.Replicas, opts.WithoutDeployment = true, in.Body.Replicas, in.Body.WithoutDeployment
	// Tried before anything is stored: a mistake must not leave an agent whose token nobody saw.
	opts.Token = "checked"
	opts.Agent = fleet.Agent{Name: in.Body.Name, Namespaces: in.Body.Namespaces}
	if _, err := install.Manifest(opts); err != nil {
		return nil, err
	}
	done, err := a.control.EnrollAgent(ctx, p, in.Tenant, control.EnrollAgent{
		Name: in.Body.Name, Labels: in.Body.Labels, Namespaces: in.Body.Namespaces, Token: in.Body.Token,
		ConfigRepoURL: in.Body.ConfigRepoURL,
	})
	if err != nil {
		return nil, err
	}
	opts.Agent, opts.Token = done.Agent, done.Token
	manifest, err := install.Manifest(opts)
	if err != nil {
		return nil, fmt.Errorf("making the manifest of agent %q: %w", done.Agent.Name, err)
	}
	info := infoFrom(ctx)
	info.shownOnce = true
	return &created[apiv1.Enrollment]{
		Location: info.about.list + "/" + done.Agent.Name, ETag: etag(done.Agent.ID, done.Agent.Spec),
		Body: apiv1.Enrollment{Agent: agentJSON(control.AgentView{Agent: done.Agent}), Token: done.Token, Manifest: string(manifest)},
	}, nil
}

func (a *api) getManifest(ctx context.Context, p auth.Principal, in *manifestInput) (*manifestOutput, error) {
	view, err := a.control.Agent(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	opts := a.installOptions(in.Tenant, in.ServerAddress, in.Image)
	opts.Agent, opts.Replicas, opts.WithoutDeployment = view.Agent, in.Replicas, in.WithoutDeployment
	manifest, err := install.Manifest(opts)
	if err != nil {
		return nil, err
	}
	return &manifestOutput{ContentType: "application/yaml", Body: manifest}, nil
}

func (a *api) installOptions(tenantName, address, image string) install.Options {
	if address == "" && a.cfg.AgentAddress != nil {
		address = a.cfg.AgentAddress()
	}
	return install.Options{
		TenantName: tenantName, ServerAddress: address, CAPEM: a.cfg.CAPEM, Image: cmp.Or(image, a.cfg.DefaultImage),
	}
}

func agentJSON(v control.AgentView) apiv1.Agent {
	out := apiv1.Agent{
		ID: string(v.ID), Name: v.Name, Labels: v.Labels, Scope: string(v.Scope), Namespaces: v.Namespaces,
		Connected: v.Connected, LastSeenAt: utc(v.LastSeenAt), Spec: v.Spec, CreatedAt: utc(v.CreatedAt),
		Targets: v.Targets, Warnings: v.Warnings,
	}
	for _, c := range v.Connections {
		out.Connections = append(out.Connections, apiv1.Connection{
			Replica: c.Replica, Role: c.Role(), Version: c.Version, KubeVersion: c.KubeVersion, ClusterUID: c.ClusterUID,
			RemoteAddr: c.RemoteAddr, ConnectedAt: utc(c.ConnectedAt), LastSeenAt: utc(c.LastSeenAt), Connected: c.Connected(),
		})
	}
	slices.SortStableFunc(out.Connections, func(x, y apiv1.Connection) int { return cmp.Compare(x.Replica, y.Replica) })
	return out
}
