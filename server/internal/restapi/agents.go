package restapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
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
	ForeignApplications(ctx context.Context, p auth.Principal, tenant, agent string) (fleet.ForeignApplications, error)
	Agent(ctx context.Context, p auth.Principal, tenant, name string) (control.AgentView, error)
	UpdateAgent(ctx context.Context, p auth.Principal, tenant, name string, req control.UpdateAgent, match control.Match) (control.AgentView, error)
	DeleteAgent(ctx context.Context, p auth.Principal, tenant, name string, match control.Match) error
}

var agents = resource{"agent", tenant + "/agents"}

type (
	listAgentsInput struct {
		InTenant
		Paging
		Label []string `query:"label,explode" doc:"KEY=VALUE; repeatable: agents that have all of these labels."`
		LabelSelector
		Text      string `query:"q" maxLength:"253" doc:"Part of the name."`
		Reason    string `query:"reason" maxLength:"64" pattern:"^[A-Za-z]*$" doc:"AgentConnected, AgentDisconnected or AgentNeverConnected."`
		Connected string `query:"connected" enum:"true,false" doc:"Only agents with a connected replica, or only agents without one."`
	}
	manifestInput struct {
		Named
		Image              string `query:"image" doc:"Image of the agent; required unless the server has a default (--agent-image) or withoutDeployment is set."`
		Replicas           int    `query:"replicas" minimum:"0" maximum:"9" doc:"Number of pods; default 1, independent of the current number."`
		ServerAddress      string `query:"serverAddress" doc:"Address of the server for the agent. The server has a default."`
		Namespace          string `query:"namespace" maxLength:"63" doc:"Namespace of the agent. The server has a default."`
		RegistrationSecret string `query:"registrationSecret" maxLength:"253" doc:"Name of a Secret that you create in the namespace of the agent; its key registrationToken holds the token."`
		WithoutDeployment  bool   `query:"withoutDeployment" doc:"Leave the Deployment out: for an agent that runs outside its cluster, and to uninstall one, because deleting the Namespace deletes the Deployment."`
		admissionQuery
	}
	// admissionQuery is an embedded struct, because a query has no nested values.
	admissionQuery struct {
		Admission                bool     `query:"admission" doc:"Add a ValidatingAdmissionPolicy that limits the agent beyond RBAC. The other parameters say to what; privileged pods are always refused without admissionPrivileged."`
		AdmissionNamespaces      []string `query:"admissionNamespace,explode" doc:"Pattern of namespaces that the agent may write in, such as team-*; repeatable."`
		AdmissionNamespaceLabels []string `query:"admissionNamespaceLabel,explode" doc:"KEY=VALUE that namespaces must have; repeatable."`
		AdmissionClusterScoped   bool     `query:"admissionClusterScoped" doc:"Allow objects without a namespace although namespaces are limited."`
		AdmissionKinds           []string `query:"admissionKind,explode" doc:"Only these kinds, such as ConfigMap or *.apps; repeatable."`
		AdmissionExcludeKinds    []string `query:"admissionExcludeKind,explode" doc:"Not these kinds; repeatable."`
		AdmissionPrivileged      bool     `query:"admissionPrivileged" doc:"Allow privileged pods."`
		AdmissionRules           []string `query:"admissionRule,explode" doc:"CEL expression that must be true for each object; repeatable."`
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
		"Enroll an agent: its token and manifest are returned only once", http.StatusCreated), agents, a.enrollAgent)
	register(a, operation("get-agent", http.MethodGet, one, "Read an agent", http.StatusOK), agents, a.getAgent)
	register(a, operation("update-agent", http.MethodPatch, one,
		"Change an agent; with its labels and namespaces, its deployments change", http.StatusOK, http.StatusPreconditionFailed), agents, a.updateAgent)
	register(a, operation("delete-agent", http.MethodDelete, one,
		"Delete an agent: its token becomes invalid, and everything that it deployed stays in its cluster",
		http.StatusNoContent, http.StatusPreconditionFailed), agents, a.deleteAgent)

	manifest := operation("get-agent-manifest", http.MethodGet, one+"/manifest",
		"The manifest of an agent without its token, to upgrade (kubectl apply) and to uninstall (kubectl delete)", http.StatusOK)
	manifest.Responses = map[string]*huma.Response{"200": {
		Description: "YAML for kubectl.",
		Content:     map[string]*huma.MediaType{"application/yaml": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	register(a, manifest, agents, a.getManifest)
	register(a, operation("list-agent-applications", http.MethodGet, one+"/applications",
		"List the Applications of Argo CD that an agent does not manage", http.StatusOK), agents, a.listAgentApplications)
}

func (a *api) listAgentApplications(ctx context.Context, p auth.Principal, in *Named) (*plain[apiv1.AgentApplications], error) {
	l, err := a.control.ForeignApplications(ctx, p, in.Tenant, in.Name)
	if err != nil {
		return nil, err
	}
	out := apiv1.AgentApplications{Items: make([]apiv1.AgentApplication, 0, len(l.Items)), Total: l.Total}
	for _, item := range l.Items {
		out.Items = append(out.Items, apiv1.AgentApplication(item))
	}
	return &plain[apiv1.AgentApplications]{Body: out}, nil
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
	f := store.AgentFilter{Page: in.page(), Labels: labels, Selector: selector, Text: in.Text, Reason: fleet.Reason(in.Reason)}
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
		Labels: given(in.Body.Labels), Namespaces: givenList(in.Body.Namespaces), EngineNamespace: in.Body.EngineNamespace,
		DeliverGitCredentials: in.Body.DeliverGitCredentials, Instance: in.Body.EngineInstance, Draining: in.Body.Draining, Tunnel: in.Body.Tunnel, Kinds: givenKinds(in.Body.KindFilter),
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
	return &tagged[apiv1.Agent]{ETag: etag(v.ID, v.SpecRevision), Body: agentJSON(v)}, nil
}

// given returns nil for an absent value, which differs from an empty one.
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

// givenKinds is given for kind filters.
func givenKinds(f *apiv1.KindFilter) *fleet.KindFilter {
	if f == nil {
		return nil
	}
	return new(kindFilter(f))
}

func kindFilter(f *apiv1.KindFilter) fleet.KindFilter {
	if f == nil {
		return fleet.KindFilter{}
	}
	return fleet.KindFilter{Include: f.Include, Exclude: f.Exclude}
}

func (a *api) enrollAgent(ctx context.Context, p auth.Principal, in *createInput[apiv1.EnrollAgent]) (*created[apiv1.Enrollment], error) {
	naming(ctx, in.Body.Name)
	opts := a.installOptions(in.Tenant, in.Body.ServerAddress, in.Body.Image)
	opts.WithSecret, opts.Replicas, opts.WithoutDeployment = true, in.Body.Replicas, in.Body.WithoutDeployment
	// Validate before anything is stored: an error must not leave an agent whose token was never shown.
	opts.Token = "checked"
	opts.Agent = fleet.Agent{Name: in.Body.Name, Namespaces: in.Body.Namespaces, EngineNamespace: in.Body.EngineNamespace, DeliverGitCredentials: in.Body.DeliverGitCredentials, Instance: in.Body.EngineInstance, Tunnel: in.Body.Tunnel}
	if _, err := install.Manifest(opts); err != nil {
		return nil, err
	}
	done, err := a.control.EnrollAgent(ctx, p, in.Tenant, control.EnrollAgent{
		Name: in.Body.Name, Labels: in.Body.Labels, Namespaces: in.Body.Namespaces, Token: in.Body.Token,
		EngineNamespace: in.Body.EngineNamespace, DeliverGitCredentials: in.Body.DeliverGitCredentials, Instance: in.Body.EngineInstance, ConfigRepoURL: in.Body.ConfigRepoURL,
		Tunnel: in.Body.Tunnel, Kinds: kindFilter(in.Body.KindFilter),
	})
	if err != nil {
		return nil, err
	}
	opts.Agent, opts.Token = done.Agent, done.Token
	manifest, err := install.Manifest(opts)
	if err != nil {
		return nil, fmt.Errorf("generating the manifest of agent %q: %w", done.Agent.Name, err)
	}
	info := infoFrom(ctx)
	info.shownOnce = true
	return &created[apiv1.Enrollment]{
		Location: info.about.list + "/" + done.Agent.Name, ETag: etag(done.Agent.ID, done.Agent.SpecRevision),
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
	opts.AgentNamespace, opts.RegistrationSecret = in.Namespace, in.RegistrationSecret
	if opts.Admission, err = in.admission(); err != nil {
		return nil, err
	}
	manifest, err := install.Manifest(opts)
	if err != nil {
		return nil, err
	}
	return &manifestOutput{ContentType: "application/yaml", Body: manifest}, nil
}

// admission returns the limits of a query; nil if it has none. Limits without the policy would limit nothing.
func (q admissionQuery) admission() (*install.Admission, error) {
	out := &install.Admission{
		Namespaces: q.AdmissionNamespaces, ClusterScoped: q.AdmissionClusterScoped, Kinds: q.AdmissionKinds, ExcludeKinds: q.AdmissionExcludeKinds,
		Privileged: q.AdmissionPrivileged, Rules: q.AdmissionRules,
	}
	if !q.Admission {
		if len(q.AdmissionNamespaceLabels) > 0 || !reflect.ValueOf(*out).IsZero() {
			return nil, fleet.Invalid("admission", "must be set to limit the agent")
		}
		return nil, nil
	}
	var err error
	out.NamespaceLabels, err = labelled(q.AdmissionNamespaceLabels)
	return out, err
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
		ID: string(v.ID), Name: v.Name, Labels: v.Labels, Scope: string(v.Scope), Namespaces: v.Namespaces, EngineNamespace: v.EngineNamespace, DeliverGitCredentials: v.DeliverGitCredentials, EngineInstance: v.Instance, Draining: v.Draining, Tunnel: v.Tunnel,
		Reason: string(v.Reason()), Conditions: conditionsJSON(v.Conditions()), Connected: v.Connected, LastSeenAt: utc(v.LastSeenAt), SpecRevision: v.SpecRevision, CreatedAt: utc(v.CreatedAt),
		Targets: v.Targets, Warnings: causesJSON(v.Warnings),
	}
	if !v.Kinds.IsZero() || v.KindsFromConfig {
		out.KindFilter, out.KindFilterFromConfig = &apiv1.KindFilter{Include: v.Kinds.Include, Exclude: v.Kinds.Exclude}, v.KindsFromConfig
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
