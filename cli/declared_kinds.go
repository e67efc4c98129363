package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

type tenantSpec struct {
	Quota apiv1.Quota `json:"quota,omitzero"`
}

func tenantKind() declaredKind {
	as := func(v apiv1.Tenant) current {
		return current{metadata: resourcefile.Metadata{Name: v.Name}, spec: tenantSpec{v.Quota}}
	}
	return declaredKind{
		kind: "Tenant", words: tenantResource().words(), global: true, parse: parseSpec(asIs[tenantSpec]),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.Top("tenants"), as, every)
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			return readOne(ctx, c, c.Top("tenants", name), as)
		},
		create: func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
			return client.Do(ctx, c, http.MethodPost, c.Top("tenants"), apiv1.CreateTenant{Name: m.Name, Quota: spec.(tenantSpec).Quota})
		},
		update: func(ctx context.Context, c *client.Client, now current, _ resourcefile.Metadata, spec any) (string, error) {
			quota := spec.(tenantSpec).Quota
			return patch(ctx, c, now, apiv1.UpdateTenant{Quota: &quota})
		},
	}
}

type repositorySpec struct {
	Credential string `json:"credential,omitempty"`
	Submodules bool   `json:"submodules,omitempty"`
	Signers    string `json:"signers,omitempty"`
}

// repositoryKind names repositories by their URL.
func repositoryKind() declaredKind {
	as := func(v apiv1.Repository) current {
		return current{metadata: resourcefile.Metadata{Name: v.URL}, spec: repositorySpec{v.Credential, v.Submodules, v.Signers}}
	}
	return declaredKind{
		kind: "Repository", words: repositoryResource().words(), parse: parseSpec(asIs[repositorySpec]),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("repositories"), as, every)
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			all, err := repositoryResource().list(ctx, c)
			i := slices.IndexFunc(all, func(r apiv1.Repository) bool { return r.URL == name || r.ID == name })
			if err != nil || i < 0 {
				return nil, err
			}
			return readOne(ctx, c, c.In("repositories", all[i].ID), as)
		},
		create: func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
			s := spec.(repositorySpec)
			return client.Do(ctx, c, http.MethodPost, c.In("repositories"), apiv1.CreateRepository{URL: m.Name, Credential: s.Credential, Submodules: s.Submodules, Signers: s.Signers})
		},
		update: func(ctx context.Context, c *client.Client, now current, _ resourcefile.Metadata, spec any) (string, error) {
			s := spec.(repositorySpec)
			return patch(ctx, c, now, apiv1.UpdateRepository{Credential: &s.Credential, Submodules: &s.Submodules, Signers: &s.Signers})
		},
	}
}

type agentSpec struct {
	Namespaces            []string `json:"namespaces,omitempty"`
	EngineNamespace       string   `json:"engineNamespace,omitempty"`
	DeliverGitCredentials bool     `json:"deliverGitCredentials,omitempty"`
	EngineInstance        bool     `json:"engineInstance,omitempty"`
	Draining              bool     `json:"draining,omitempty"`
	Tunnel                bool     `json:"tunnel,omitempty"`
	// KindFilter is left out of an export when the configuration file of the agent declares it.
	KindFilter *apiv1.KindFilter `json:"kindFilter,omitempty"`
}

// sortKinds brings a kind filter into the form that the server returns.
func sortKinds(s *agentSpec) error {
	f := s.KindFilter
	if f == nil {
		return nil
	}
	slices.Sort(f.Include)
	slices.Sort(f.Exclude)
	if len(f.Include) == 0 && len(f.Exclude) == 0 {
		s.KindFilter = nil
	}
	return nil
}

func agentKind() declaredKind {
	as := func(v apiv1.Agent) current {
		spec := agentSpec{Namespaces: v.Namespaces, EngineNamespace: v.EngineNamespace, DeliverGitCredentials: v.DeliverGitCredentials, EngineInstance: v.EngineInstance, Draining: v.Draining, Tunnel: v.Tunnel}
		if !v.KindFilterFromConfig {
			spec.KindFilter = v.KindFilter
		}
		return current{metadata: resourcefile.Metadata{Name: v.Name, Labels: v.Labels}, spec: spec}
	}
	return declaredKind{
		kind: "Agent", words: agentResource().words(), labelled: true, parse: parseSpec(sortKinds),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("agents"), as, every)
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			return readOne(ctx, c, c.In("agents", name), as)
		},
		check: func(m resourcefile.Metadata, _ any) error {
			return fmt.Errorf("agent %q is not enrolled: enrolling prints a token, so that a file cannot do it; run kedge agent enroll %s first", m.Name, m.Name)
		},
		update: func(ctx context.Context, c *client.Client, now current, m resourcefile.Metadata, spec any) (string, error) {
			s := spec.(agentSpec)
			change := apiv1.UpdateAgent{
				Labels: given(m.Labels), Namespaces: append([]string{}, s.Namespaces...), EngineNamespace: &s.EngineNamespace,
				DeliverGitCredentials: &s.DeliverGitCredentials, EngineInstance: &s.EngineInstance, Draining: &s.Draining, Tunnel: &s.Tunnel, KindFilter: s.KindFilter,
			}
			if was := now.spec.(agentSpec).KindFilter; s.KindFilter == nil && was != nil {
				change.KindFilter = &apiv1.KindFilter{} // it left the file
			}
			return patch(ctx, c, now, change)
		},
	}
}

// given is a map that is sent also when it is empty: then it removes everything.
func given(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

type environmentSpec struct {
	Agents      []string          `json:"agents,omitempty"`
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

func environmentKind() declaredKind {
	as := func(v apiv1.Environment) current {
		return current{metadata: resourcefile.Metadata{Name: v.Name}, spec: environmentSpec{v.Agents, v.MatchLabels}}
	}
	// Every tenant has the environment "default", which cannot be created. A push environment needs a secret, which a file
	// does not have.
	notDefault := func(v apiv1.Environment) bool {
		return v.Push == nil && (v.Name != fleet.DefaultEnvironment || len(v.Agents)+len(v.MatchLabels) > 0)
	}
	return declaredKind{
		kind: "Environment", words: environmentResource().words(), parse: parseSpec(asIs[environmentSpec]),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("environments"), as, notDefault)
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			return readOne(ctx, c, c.In("environments", name), as)
		},
		create: func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
			s := spec.(environmentSpec)
			return client.Do(ctx, c, http.MethodPost, c.In("environments"), apiv1.CreateEnvironment{Name: m.Name, Agents: s.Agents, MatchLabels: s.MatchLabels})
		},
		update: func(ctx context.Context, c *client.Client, now current, _ resourcefile.Metadata, spec any) (string, error) {
			s := spec.(environmentSpec)
			return patch(ctx, c, now, apiv1.UpdateEnvironment{Agents: append([]string{}, s.Agents...), MatchLabels: given(s.MatchLabels)})
		},
	}
}

type grantSpec struct {
	Limits         apiv1.Limits `json:"limits,omitzero"`
	ServiceAccount string       `json:"serviceAccount,omitempty"`
}

// grantKind names grants ENVIRONMENT/TENANT.
func grantKind() declaredKind {
	name := func(v apiv1.Grant) string { return v.Environment + "/" + v.Grantee }
	as := func(v apiv1.Grant) current {
		return current{metadata: resourcefile.Metadata{Name: name(v)}, spec: grantSpec{v.Limits, v.ServiceAccount}}
	}
	isGiven := func(v apiv1.Grant) bool { return v.Direction == "given" }
	return declaredKind{
		kind: "Grant", words: grantResource().words(), parse: parseSpec(asIs[grantSpec]),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("grants"), as, isGiven)
		},
		read: func(ctx context.Context, c *client.Client, wanted string) (*current, error) {
			all, err := grantResource().list(ctx, c)
			i := slices.IndexFunc(all, func(v apiv1.Grant) bool { return isGiven(v) && name(v) == wanted })
			if err != nil || i < 0 {
				return nil, err
			}
			return readOne(ctx, c, c.In("grants", all[i].ID), as)
		},
		check: func(m resourcefile.Metadata, _ any) error {
			if env, tenant, ok := strings.Cut(m.Name, "/"); !ok || env == "" || tenant == "" {
				return fmt.Errorf("metadata.name of a Grant is %q, want ENVIRONMENT/TENANT", m.Name)
			}
			return nil
		},
		create: func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
			env, tenant, _ := strings.Cut(m.Name, "/")
			s := spec.(grantSpec)
			return client.Do(ctx, c, http.MethodPost, c.In("grants"), apiv1.CreateGrant{Environment: env, Grantee: tenant, Limits: s.Limits, ServiceAccount: s.ServiceAccount})
		},
		update: func(ctx context.Context, c *client.Client, now current, _ resourcefile.Metadata, spec any) (string, error) {
			s := spec.(grantSpec)
			return client.DoMatching(ctx, c, http.MethodPut, now.path, apiv1.UpdateGrant{Limits: s.Limits, ServiceAccount: &s.ServiceAccount}, now.tag)
		},
	}
}

type memberSpec struct {
	Role string `json:"role"`
}

// memberKind names members KIND/SUBJECT, such as group/web-team.
func memberKind() declaredKind {
	as := func(v apiv1.Member) current {
		return current{metadata: resourcefile.Metadata{Name: v.Kind + "/" + v.Subject}, spec: memberSpec{v.Role}}
	}
	put := func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
		kind, subject, _ := strings.Cut(m.Name, "/")
		return client.Do(ctx, c, http.MethodPut, c.In("members", kind, subject), apiv1.PutMember{Role: spec.(memberSpec).Role})
	}
	return declaredKind{
		kind: "Member", words: memberResource().words(), parse: parseSpec(func(s *memberSpec) error {
			if s.Role == "" {
				return errors.New("spec.role is missing: viewer, deployer or admin")
			}
			return nil
		}),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("members"), as, every)
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			return oneOf(name)(listAll(ctx, c, c.In("members"), as, every))
		},
		check: func(m resourcefile.Metadata, _ any) error {
			if kind, subject, _ := strings.Cut(m.Name, "/"); (kind != "person" && kind != "group") || subject == "" {
				return fmt.Errorf("metadata.name of a Member is %q, want person/NAME or group/NAME", m.Name)
			}
			return nil
		},
		create: put,
		update: func(ctx context.Context, c *client.Client, _ current, m resourcefile.Metadata, spec any) (string, error) {
			return "", put(ctx, c, m, spec)
		},
	}
}

// oneOf picks the resource of a name from a listing; nil when there is none.
func oneOf(name string) func([]current, error) (*current, error) {
	return func(all []current, err error) (*current, error) {
		i := slices.IndexFunc(all, func(v current) bool { return v.metadata.Name == name })
		if err != nil || i < 0 {
			return nil, err
		}
		return &all[i], nil
	}
}

type gitLabProjectSpec struct {
	RepoURL string `json:"repoURL"`
}

func gitLabProjectKind() declaredKind {
	as := func(v apiv1.GitLabProject) current {
		return current{metadata: resourcefile.Metadata{Name: v.Project}, spec: gitLabProjectSpec{v.RepoURL}}
	}
	put := func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
		return client.Do(ctx, c, http.MethodPut, c.In("gitlab-projects", m.Name), apiv1.SetGitLabProject{RepoURL: spec.(gitLabProjectSpec).RepoURL})
	}
	return declaredKind{
		kind: "GitLabProject", words: gitLabProjectResource().words(), parse: parseSpec(func(s *gitLabProjectSpec) error {
			if s.RepoURL == "" {
				return errors.New("spec.repoURL is missing")
			}
			return nil
		}),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("gitlab-projects"), as, every)
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			return oneOf(name)(listAll(ctx, c, c.In("gitlab-projects"), as, every))
		},
		create: put,
		update: func(ctx context.Context, c *client.Client, _ current, m resourcefile.Metadata, spec any) (string, error) {
			return "", put(ctx, c, m, spec)
		},
	}
}
