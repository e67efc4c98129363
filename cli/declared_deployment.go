package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

type deploymentSpec struct {
	Source      apiv1.Source    `json:"source"`
	Environment string          `json:"environment"`
	Namespace   string          `json:"namespace"`
	Policy      apiv1.NewPolicy `json:"policy,omitzero"`
}

// complete fills in defaults, so that a spec from a file and one from the server compare equal.
func (s *deploymentSpec) complete() error {
	if s.Source.RepoURL == "" {
		return errors.New("spec.source.repoURL is missing")
	}
	s.Source.Detected = ""
	s.Environment, s.Namespace = cmp.Or(s.Environment, fleet.DefaultEnvironment), cmp.Or(s.Namespace, "default")
	p := &s.Policy
	if p.Prune != nil && *p.Prune {
		p.Prune = nil
	}
	if p.Drift == string(fleet.DriftCorrect) {
		p.Drift = ""
	}
	if p.Propagation == string(fleet.PropagationBackground) {
		p.Propagation = ""
	}
	if p.PruneLimit != nil && (*p.PruneLimit == apiv1.PruneLimit{} || *p.PruneLimit == apiv1.PruneLimit(fleet.DefaultPruneLimit)) {
		p.PruneLimit = nil
	}
	for name, text := range map[string]*string{"pruneTimeout": &p.PruneTimeout, "readyTimeout": &p.ReadyTimeout} {
		if *text == "" {
			continue
		}
		d, err := time.ParseDuration(*text)
		if err != nil {
			return fmt.Errorf("spec.policy.%s: %w", name, err)
		}
		*text = d.String()
		if d == 0 {
			*text = ""
		}
	}
	return nil
}

// declaredSpec is the spec of a deployment as the server has it.
func declaredSpec(v apiv1.Deployment) deploymentSpec {
	p := v.Policy
	s := deploymentSpec{
		Source: v.Source, Environment: v.Environment, Namespace: v.Namespace,
		Policy: apiv1.NewPolicy{
			Prune: &p.Prune, Adopt: p.Adopt, AllowEmpty: p.AllowEmpty, Manual: p.Manual, PruneOnDetach: p.PruneOnDetach, Force: p.Force, Replace: p.Replace,
			PreviewOnly: p.PreviewOnly, Drift: p.Drift, Ignore: p.Ignore, ServiceAccount: p.ServiceAccount, Propagation: p.Propagation,
			PruneTimeout: p.PruneTimeout, ReadyTimeout: p.ReadyTimeout, PruneLimit: &p.PruneLimit, CreateNamespace: p.CreateNamespace,
		},
	}
	_ = s.complete() // what a server has is valid
	return s
}

// change is an edit that makes a deployment what the spec says, whatever it was.
func (s deploymentSpec) change(labels map[string]string) apiv1.UpdateDeployment {
	p := s.Policy
	prune := p.Prune == nil || *p.Prune
	limit := apiv1.PruneLimit{}
	if p.PruneLimit != nil {
		limit = *p.PruneLimit
	}
	helm := s.Source.Helm
	if helm == nil {
		helm = &apiv1.Helm{}
	}
	return apiv1.UpdateDeployment{
		Labels: given(labels), Environment: &s.Environment, Namespace: &s.Namespace,
		Source: apiv1.UpdateSource{
			RepoURL: &s.Source.RepoURL, Path: &s.Source.Path, Revision: &s.Source.Revision, Kind: &s.Source.Kind,
			Globs: append([]string{}, s.Source.Globs...), Helm: helm, Variables: given(s.Source.Variables),
		},
		Policy: apiv1.UpdatePolicy{
			Prune: &prune, Adopt: &p.Adopt, AllowEmpty: &p.AllowEmpty, Manual: &p.Manual, PruneOnDetach: &p.PruneOnDetach, Force: &p.Force, Replace: &p.Replace,
			PreviewOnly: &p.PreviewOnly, Drift: &p.Drift, Ignore: append([]string{}, p.Ignore...), ServiceAccount: &p.ServiceAccount, Propagation: &p.Propagation,
			PruneTimeout: &p.PruneTimeout, ReadyTimeout: &p.ReadyTimeout, PruneLimit: &limit, CreateNamespace: &p.CreateNamespace,
		},
	}
}

func deploymentKind() declaredKind {
	as := func(v apiv1.Deployment) current {
		out := current{metadata: resourcefile.Metadata{Name: v.Name, Labels: v.Labels}, spec: declaredSpec(v)}
		if by := v.DeclaredBy; by != nil && by.ReleasedAt.IsZero() {
			out.managed = by.File + " of " + by.RepoURL
		}
		if by := v.ManagedBy; by != nil {
			out.managed = by.String()
		}
		return out
	}
	return declaredKind{
		kind: "Deployment", words: deploymentResource().words(), labelled: true, parse: parseSpec((*deploymentSpec).complete),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("deployments"), as, func(v apiv1.Deployment) bool { return v.DeletedAt.IsZero() })
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			return readOne(ctx, c, c.In("deployments", name), as)
		},
		create: func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
			s := spec.(deploymentSpec)
			return client.Do(ctx, c, http.MethodPost, c.In("deployments"), apiv1.CreateDeployment{
				Name: m.Name, Labels: m.Labels, Source: s.Source, Environment: s.Environment, Namespace: s.Namespace, Policy: s.Policy,
			})
		},
		update: func(ctx context.Context, c *client.Client, now current, m resourcefile.Metadata, spec any) (string, error) {
			return patch(ctx, c, now, spec.(deploymentSpec).change(m.Labels))
		},
	}
}
