package reposync

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/filetree"
	"github.com/kedge-dev/kedge/internal/filetree/memtree"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/changefeed"
	"github.com/kedge-dev/kedge/server/internal/fairlimit"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/membership"
	"github.com/kedge-dev/kedge/server/internal/placement"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// scripted is a Git with one commit for every revision.
type scripted struct{}

func (scripted) Fetch(_ context.Context, _ gitsource.Access, revisions []string) (map[string]gitsource.Ref, error) {
	out := map[string]gitsource.Ref{}
	for _, revision := range revisions {
		out[revision] = gitsource.Ref{Commit: strings.Repeat("c", 40)}
	}
	return out, nil
}

func (scripted) Tree(context.Context, gitsource.Access, string) (filetree.Tree, error) {
	return memtree.New(map[string]string{"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"}), nil
}

// permissive are use-cases that allow everything.
type permissive struct{}

func (permissive) Access(_ context.Context, repo fleet.Repository) (gitsource.Access, error) {
	return gitsource.Access{Owner: string(repo.TenantID), URL: repo.URL}, nil
}

func (permissive) ApplyConfig(context.Context, ConfigFile) (ConfigResult, error) {
	return ConfigDone, nil
}

func (permissive) CheckSpec(context.Context, store.Tx, fleet.Deployment, *fleet.Deployment) error {
	return nil
}

// service is a Manager on a real database, with one tenant and one environment. It is not running.
type service struct {
	store   store.Store
	sources *Manager
	placer  *placement.Placer
	now     func() time.Time
	tenant  fleet.Tenant
	env     fleet.Environment
}

func openService(t *testing.T, path string, cfg Config, git Git) *service {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	cfg.PollInterval = time.Hour
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	planner := rollout.New(rollout.Config{Now: cfg.Now}, st)
	s := &service{store: st, placer: placement.New(placement.Config{Now: cfg.Now}, planner), now: cfg.Now}
	s.sources = New(cfg, Deps{
		Store: st, Git: git, Feed: changefeed.New(st, nil), Leader: membership.New(membership.Config{}, st), Planner: planner, Placer: s.placer,
		Control: permissive{}, Renders: fairlimit.New(fairlimit.Config{Usual: 4, Share: 3, Most: 5}),
	})
	s.tenant = fleet.Tenant{ID: fleet.NewTenantID(), Name: "default", CreatedAt: cfg.Now()}
	s.env = fleet.Environment{ID: fleet.NewEnvironmentID(), TenantID: s.tenant.ID, Name: fleet.DefaultEnvironment, CreatedAt: cfg.Now()}
	err = st.Update(t.Context(), func(tx store.Tx) error {
		return cmp.Or(tx.Tenants().Create(t.Context(), s.tenant), tx.Environments().Create(t.Context(), s.env))
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type newAgent struct {
	Name   string
	Labels map[string]string
}

func (s *service) enroll(ctx context.Context, req newAgent) (fleet.Agent, error) {
	a := fleet.Agent{ID: fleet.NewAgentID(), TenantID: s.tenant.ID, Name: req.Name, Labels: req.Labels, Scope: fleet.ScopeCluster, SpecRevision: 1, CreatedAt: s.now()}
	return a, s.store.Update(ctx, func(tx store.Tx) error {
		if err := tx.Agents().Create(ctx, a); err != nil {
			return err
		}
		return s.placer.PlaceAgent(ctx, tx, a)
	})
}

type newDeployment struct {
	Name   string
	Source fleet.Source
}

// view returns a deployment with everything that tests check.
type view struct {
	fleet.Deployment
	Targets []fleet.Target
	Pending *fleet.PendingSpec
}

func (s *service) deploy(ctx context.Context, req newDeployment) (view, error) {
	d := fleet.Deployment{
		ID: fleet.NewDeploymentID(), TenantID: s.tenant.ID, Name: req.Name, Source: req.Source, Environment: s.env.Name, EnvironmentTenant: s.tenant.ID,
		EnvironmentID: s.env.ID, Namespace: "default", Policy: fleet.Policy{Prune: true}, SpecRevision: 1, CreatedAt: s.now(),
	}
	d.Source.Path = cmp.Or(d.Source.Path, ".")
	err := s.store.Update(ctx, func(tx store.Tx) error {
		repo, err := tx.Repositories().ByURL(ctx, s.tenant.ID, d.Source.RepoURL)
		if errors.Is(err, store.ErrNotFound) {
			repo = fleet.Repository{ID: fleet.NewRepositoryID(), TenantID: s.tenant.ID, URL: d.Source.RepoURL, SpecRevision: 1, CreatedAt: s.now()}
			err = tx.Repositories().Create(ctx, repo)
		}
		if err != nil {
			return err
		}
		d.RepositoryID = repo.ID
		if err := tx.Deployments().Create(ctx, d); err != nil {
			return err
		}
		return s.placer.Place(ctx, tx, d)
	})
	if err != nil {
		return view{}, err
	}
	return s.deployment(ctx, req.Name)
}

// edit makes a change of the source pending.
func (s *service) edit(ctx context.Context, name string, source fleet.Source) error {
	return s.store.Update(ctx, func(tx store.Tx) error {
		d, err := tx.Deployments().ByName(ctx, s.tenant.ID, name)
		if err != nil {
			return err
		}
		source.Path = cmp.Or(source.Path, ".")
		d.Source = source
		pending := d.Pending("tester")
		pending.EditedAt = s.now()
		return tx.PendingSpecs().Put(ctx, pending)
	})
}

func (s *service) deployment(ctx context.Context, name string) (view, error) {
	var out view
	err := s.store.View(ctx, func(tx store.Tx) (err error) {
		if out.Deployment, err = tx.Deployments().ByName(ctx, s.tenant.ID, name); err != nil {
			return err
		}
		if out.PendingSpecRevision != 0 {
			p, err := tx.PendingSpecs().Get(ctx, s.tenant.ID, out.ID)
			if err != nil {
				return err
			}
			out.Pending = &p
		}
		out.Targets, err = tx.Targets().OfDeployment(ctx, s.tenant.ID, out.ID)
		return err
	})
	return out, err
}

func (s *service) revisions(ctx context.Context, name string) (out []fleet.Revision, err error) {
	d, err := s.deployment(ctx, name)
	if err != nil {
		return nil, err
	}
	err = s.store.View(ctx, func(tx store.Tx) (err error) {
		out, err = tx.Revisions().List(ctx, s.tenant.ID, d.ID, store.Page{})
		return err
	})
	return out, err
}
