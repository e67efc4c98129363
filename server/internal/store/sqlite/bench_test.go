package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// bed is a fleet of agents × deployments targets to measure on.
type bed struct {
	store   *Store
	tenant  fleet.TenantID
	agents  []fleet.AgentID
	targets []fleet.Target
	digests [2]string
}

func newBed(b *testing.B, agents, deployments int) *bed {
	b.Helper()
	s, err := Open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "kedge.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	out := &bed{store: s, tenant: fleet.NewTenantID(), digests: [2]string{"sha256:a", "sha256:b"}}
	err = s.Update(b.Context(), func(tx store.Tx) error { return out.fill(b.Context(), tx, agents, deployments) })
	if err != nil {
		b.Fatal(err)
	}
	return out
}

func (f *bed) fill(ctx context.Context, tx store.Tx, agents, deployments int) error {
	now := time.Now()
	repo, env := fleet.NewRepositoryID(), fleet.NewEnvironmentID()
	steps := []error{
		tx.Tenants().Create(ctx, fleet.Tenant{ID: f.tenant, Name: "bench", CreatedAt: now}),
		tx.Repositories().Create(ctx, fleet.Repository{ID: repo, TenantID: f.tenant, URL: "https://git.example/x", CreatedAt: now}),
		tx.Environments().Create(ctx, fleet.Environment{ID: env, TenantID: f.tenant, Name: "default", CreatedAt: now}),
	}
	for _, digest := range f.digests {
		steps = append(steps, tx.Bundles().Put(ctx, fleet.Bundle{
			TenantID: f.tenant, Digest: digest, Content: make([]byte, 20_000), Size: 60_000, Objects: 10, CreatedAt: now}))
	}
	for i := range agents {
		id := fleet.NewAgentID()
		f.agents = append(f.agents, id)
		steps = append(steps, tx.Agents().Create(ctx, fleet.Agent{
			ID: id, TenantID: f.tenant, Name: fmt.Sprintf("agent-%05d", i), Scope: fleet.ScopeCluster, CreatedAt: now}))
	}
	for i := range deployments {
		d := fleet.Deployment{ID: fleet.NewDeploymentID(), TenantID: f.tenant, Name: fmt.Sprintf("deployment-%05d", i),
			RepositoryID: repo, EnvironmentID: env, CreatedAt: now}
		steps = append(steps, tx.Deployments().Create(ctx, d))
		for _, agent := range f.agents {
			t := fleet.Target{ID: fleet.NewTargetID(), TenantID: f.tenant, DeploymentID: d.ID, AgentID: agent}
			f.targets = append(f.targets, t)
			steps = append(steps, tx.Targets().Create(ctx, t))
		}
	}
	for _, err := range steps {
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkSetDesired10k is one commit that changes 10,000 targets, in one transaction.
func BenchmarkSetDesired10k(b *testing.B) {
	f := newBed(b, 1000, 10)
	ctx := b.Context()
	generation := int64(0)
	for b.Loop() {
		generation++
		err := f.store.Update(ctx, func(tx store.Tx) error {
			for _, t := range f.targets {
				err := tx.Targets().SetDesired(ctx, f.tenant, t.ID, fleet.Desired{
					Version: fleet.Version{Epoch: 1, Generation: generation}, Digest: f.digests[generation%2],
					Commit: "0123456789abcdef0123456789abcdef01234567", Namespace: "default", Policy: fleet.Policy{Prune: true},
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSetObserved writes one batch of reports without objects, with changes and with only a new time.
func BenchmarkSetObserved(b *testing.B) {
	for _, size := range []int{200, 1000} {
		for name, news := range map[string]int64{"status": 1, "silence": 0} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				f := newBed(b, 200, 50)
				n := int64(0)
				for b.Loop() {
					n++
					start := int(n) * size % len(f.targets)
					var reports []store.AgentReport
					for _, t := range f.targets[start : start+size] {
						r := benchReport(t.ID, 1+n*news)
						r.Objects, r.Full = nil, false
						reports = append(reports, store.AgentReport{Agent: t.AgentID, Report: r})
					}
					err := f.store.Update(b.Context(), func(tx store.Tx) error {
						_, err := tx.Targets().SetObserved(b.Context(), f.tenant, reports)
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "reports/s")
			})
		}
	}
}

func benchReport(id fleet.TargetID, generation int64) store.Report {
	r := store.Report{Target: id, Full: true, Observed: fleet.Observed{
		Version: fleet.Version{Epoch: 1, Generation: generation}, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent, AsOf: time.Now()}}
	for i := range 10 {
		r.Objects = append(r.Objects, fleet.ObjectStatus{
			ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: fmt.Sprintf("cm-%d", i)},
			Sync:      fleet.SyncSynced, Health: fleet.HealthCurrent, Message: fmt.Sprintf("generation %d", generation)})
	}
	return r
}

// BenchmarkOfAgent reads the 100 targets of a reconnecting agent.
func BenchmarkOfAgent(b *testing.B) {
	f := newBed(b, 100, 100)
	ctx := b.Context()
	for b.Loop() {
		err := f.store.View(ctx, func(tx store.Tx) error {
			got, err := tx.Targets().OfAgentAllTenants(ctx, f.agents[7])
			if err == nil && len(got) != 100 {
				err = fmt.Errorf("got %d targets", len(got))
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBundlesGet reads a bundle of 20 kB for many agents concurrently.
func BenchmarkBundlesGet(b *testing.B) {
	f := newBed(b, 1, 1)
	ctx := b.Context()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			err := f.store.View(ctx, func(tx store.Tx) error {
				_, err := tx.Bundles().Get(ctx, f.tenant, f.digests[0])
				return err
			})
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}
