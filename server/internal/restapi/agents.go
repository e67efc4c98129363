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
	Agents(ctx context.Context, p auth.Principal, tenant string, page store.Page) ([]control.AgentView, error)
	Agent(ctx context.Context, p auth.Principal, tenant, name string) (control.AgentView, error)
	DeleteAgent(ctx context.Context, p auth.Principal, tenant, name string) error
}

const agentsPath = tenant + "/agents"

type (
	agentOutput struct{ Body apiv1.Agent }
	enrollInput struct {
		Tenant string `path:"tenant"`
		Body   apiv1.EnrollAgent
	}
	enrollOutput  struct{ Body apiv1.Enrollment }
	manifestInput struct {
		Tenant        string `path:"tenant"`
		Name          string `path:"name" maxLength:"253"`
		Image         string `query:"image" doc:"Image of the agent; the server knows a default."`
		ServerAddress string `query:"serverAddress" doc:"How the agent reaches the server; the server knows a default."`
	}
	manifestOutput struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
)

func (a *api) registerAgents() {
	list := operation("list-agents", http.MethodGet, agentsPath, "List agents by name", http.StatusOK)
	register(a, list, func(in *listInput) subject { return about("agent", agentsPath, in.Tenant, "") }, a.listAgents)

	enroll := operation("enroll-agent", http.MethodPost, agentsPath,
		"Enrol an agent: its token and manifest are shown this once", http.StatusCreated, http.StatusConflict)
	register(a, enroll, func(in *enrollInput) subject { return about("agent", agentsPath, in.Tenant, in.Body.Name) }, a.enrollAgent)

	get := operation("get-agent", http.MethodGet, agentsPath+"/{name}", "Read an agent", http.StatusOK)
	register(a, get, func(in *namedInput) subject { return about("agent", agentsPath, in.Tenant, in.Name) }, a.getAgent)

	remove := operation("delete-agent", http.MethodDelete, agentsPath+"/{name}",
		"Forget an agent: its token is refused from then on, and everything that it has deployed stays in its cluster", http.StatusNoContent)
	register(a, remove, func(in *namedInput) subject { return about("agent", agentsPath, in.Tenant, in.Name) }, a.deleteAgent)

	manifest := operation("get-agent-manifest", http.MethodGet, agentsPath+"/{name}/manifest",
		"The manifest of an agent without its token, to upgrade (kubectl apply) and to uninstall (kubectl delete)", http.StatusOK)
	manifest.Responses = map[string]*huma.Response{"200": {
		Description: "YAML for kubectl.",
		Content:     map[string]*huma.MediaType{"application/yaml": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	register(a, manifest, func(in *manifestInput) subject { return about("agent", agentsPath, in.Tenant, in.Name) }, a.getManifest)
}

func (a *api) listAgents(ctx context.Context, p auth.Principal, in *listInput) (*listOutput[apiv1.Agent], error) {
	views, err := a.control.Agents(ctx, p, in.Tenant, in.page())
	if err != nil {
		return nil, err
	}
	return paged(views, in.Limit, agentJSON, func(v control.AgentView) string { return v.Name }), nil
}

func (a *api) getAgent(ctx context.Context, p auth.Principal, in *namedInput) (*agentOutput, error) {
	view, err := a.control.Agent(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	return &agentOutput{agentJSON(view)}, nil
}

func (a *api) deleteAgent(ctx context.Context, p auth.Principal, in *namedInput) (*struct{}, error) {
	return nil, a.control.DeleteAgent(ctx, p, in.Tenant, in.Name)
}

func (a *api) enrollAgent(ctx context.Context, p auth.Principal, in *enrollInput) (*enrollOutput, error) {
	opts := a.installOptions(in.Tenant, in.Body.ServerAddress, in.Body.Image)
	opts.WithSecret = true
	// Tried before anything is stored: a mistake must not leave an agent whose token nobody saw.
	opts.Token = "checked"
	opts.Agent = fleet.Agent{Name: in.Body.Name, Namespaces: in.Body.Namespaces}
	if _, err := install.Manifest(opts); err != nil {
		return nil, err
	}
	done, err := a.control.EnrollAgent(ctx, p, in.Tenant, control.EnrollAgent{
		Name: in.Body.Name, Labels: in.Body.Labels, Namespaces: in.Body.Namespaces,
	})
	if err != nil {
		return nil, err
	}
	opts.Agent, opts.Token = done.Agent, done.Token
	manifest, err := install.Manifest(opts)
	if err != nil {
		return nil, fmt.Errorf("making the manifest of agent %q: %w", done.Agent.Name, err)
	}
	return &enrollOutput{apiv1.Enrollment{
		Agent: agentJSON(control.AgentView{Agent: done.Agent}), Token: done.Token, Manifest: string(manifest),
	}}, nil
}

func (a *api) getManifest(ctx context.Context, p auth.Principal, in *manifestInput) (*manifestOutput, error) {
	view, err := a.control.Agent(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	opts := a.installOptions(in.Tenant, in.ServerAddress, in.Image)
	opts.Agent = view.Agent
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
		Connected: v.Connected, LastSeenAt: utc(v.LastSeenAt), CreatedAt: utc(v.CreatedAt),
		Targets: v.Targets, Warnings: v.Warnings,
	}
	for _, c := range v.Connections {
		out.Connections = append(out.Connections, apiv1.Connection{
			Replica: c.Replica, Version: c.Version, KubeVersion: c.KubeVersion, ClusterUID: c.ClusterUID,
			RemoteAddr: c.RemoteAddr, ConnectedAt: utc(c.ConnectedAt), LastSeenAt: utc(c.LastSeenAt), Connected: c.Connected(),
		})
	}
	slices.SortStableFunc(out.Connections, func(x, y apiv1.Connection) int { return cmp.Compare(x.Replica, y.Replica) })
	return out
}
