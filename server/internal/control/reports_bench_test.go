package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres"
	"github.com/kedge-dev/kedge/server/internal/store/sqlite"
)

// BenchmarkReport is a storm of statuses as the gateway writes it: batches of 50 agents with 20 targets each.
// The message and one of four objects of every target are new, or all objects, or nothing.
func BenchmarkReport(b *testing.B) {
	databases := map[string]func(b *testing.B) (store.Store, error){
		"sqlite": func(b *testing.B) (store.Store, error) {
			return sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "kedge.db")})
		},
		"postgres": func(b *testing.B) (store.Store, error) {
			return postgres.Open(b.Context(), postgres.Config{URL: pg.Database(b).URL})
		},
	}
	for kind, open := range databases {
		for _, what := range []string{"news", "whole", "silence"} {
			b.Run(kind+"/"+what, func(b *testing.B) {
				st, err := open(b)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = st.Close() })
				f := newStormFleet(b, st)
				round := 0
				f.report(b, round, true)
				for b.Loop() {
					if what != "silence" {
						round++
					}
					f.report(b, round, what == "whole")
				}
				b.ReportMetric(float64(b.N*len(f.targets))/b.Elapsed().Seconds(), "reports/s")
			})
		}
	}
}

// stormFleet has 100 agents with 20 targets each, in the order of their agents.
type stormFleet struct {
	service *control.Service
	tenant  fleet.TenantID
	agents  []fleet.Agent
	targets []fleet.Target
}

const stormTargets, stormBatch = 20, 50 // targets per agent, agents per batch

func newStormFleet(b *testing.B, st store.Store) *stormFleet {
	b.Helper()
	manager, err := gitsource.New(gitsource.Config{Dir: b.TempDir(), Allow: []string{"file"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = manager.Close() })
	ring, err := seal.Parse([]byte("k1:" + strings.Repeat("A", 43) + "=\n"))
	if err != nil {
		b.Fatal(err)
	}
	f := &stormFleet{tenant: fleet.NewTenantID()}
	f.service, err = control.New(control.Config{
		PollInterval: time.Hour, Key: []byte(strings.Repeat("k", 32)), Version: "test", Log: slog.New(slog.DiscardHandler), Sealer: ring,
	}, st, manager)
	if err != nil {
		b.Fatal(err)
	}
	err = st.Update(b.Context(), func(tx store.Tx) error { return f.fill(b.Context(), tx) })
	if err != nil {
		b.Fatal(err)
	}
	return f
}

func (f *stormFleet) fill(ctx context.Context, tx store.Tx) error {
	now := time.Now()
	repo, env := fleet.NewRepositoryID(), fleet.NewEnvironmentID()
	steps := []error{
		tx.Tenants().Create(ctx, fleet.Tenant{ID: f.tenant, Name: "bench", CreatedAt: now}),
		tx.Repositories().Create(ctx, fleet.Repository{ID: repo, TenantID: f.tenant, URL: "https://git.example/x", CreatedAt: now}),
		tx.Environments().Create(ctx, fleet.Environment{ID: env, TenantID: f.tenant, Name: "default", CreatedAt: now}),
		tx.Bundles().Put(ctx, fleet.Bundle{TenantID: f.tenant, Digest: "sha256:a", Content: []byte("x"), Size: 1, Objects: 4, CreatedAt: now}),
	}
	var deployments []fleet.DeploymentID
	for i := range stormTargets {
		id := fleet.NewDeploymentID()
		deployments = append(deployments, id)
		steps = append(steps, tx.Deployments().Create(ctx, fleet.Deployment{
			ID: id, TenantID: f.tenant, Name: fmt.Sprintf("app-%04d", i), RepositoryID: repo, EnvironmentID: env, CreatedAt: now}))
	}
	for i := range 100 {
		a := fleet.Agent{ID: fleet.NewAgentID(), TenantID: f.tenant, Name: fmt.Sprintf("agent-%05d", i), Scope: fleet.ScopeCluster, CreatedAt: now}
		f.agents = append(f.agents, a)
		steps = append(steps, tx.Agents().Create(ctx, a))
		for _, d := range deployments {
			t := fleet.Target{ID: fleet.NewTargetID(), TenantID: f.tenant, DeploymentID: d, AgentID: a.ID, Desired: fleet.Desired{
				Version: fleet.Version{Epoch: 1, Generation: 1}, Digest: "sha256:a", Namespace: "default"}}
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

// report has every agent say something of every target.
func (f *stormFleet) report(b *testing.B, round int, whole bool) {
	b.Helper()
	for first := 0; first < len(f.agents); first += stormBatch {
		var batch []rollout.AgentReports
		for i, a := range f.agents[first : first+stormBatch] {
			own := f.targets[(first+i)*stormTargets:][:stormTargets]
			said := rollout.AgentReports{Agent: a}
			for _, t := range own {
				said.Reports = append(said.Reports, stormReport(t, round, whole))
			}
			batch = append(batch, said)
		}
		if err := f.service.Report(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

func stormReport(t fleet.Target, round int, whole bool) store.Report {
	r := store.Report{Target: t.ID, Full: whole, Observed: fleet.Observed{
		Version: t.Desired.Version, Digest: t.Desired.Digest, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent,
		Message: fmt.Sprint("made in round ", round), AsOf: time.Now()}}
	for o := range 4 {
		if whole || o == round%4 {
			r.Objects = append(r.Objects, fleet.ObjectStatus{
				ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "default", Name: fmt.Sprint("cm-", o)},
				Sync:      fleet.SyncSynced, Health: fleet.HealthCurrent, Message: fmt.Sprint("round ", round)})
		}
	}
	return r
}
