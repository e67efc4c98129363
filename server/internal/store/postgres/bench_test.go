package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/postgres/pgtest"
)

// bed is a fleet of agents × deployments targets.
type bed struct {
	tenant  fleet.TenantID
	targets []fleet.Target
}

func newBed(t testing.TB, s store.Store, agents, deployments int) *bed {
	t.Helper()
	out := &bed{tenant: fleet.NewTenantID()}
	err := s.Update(t.Context(), func(tx store.Tx) error { return out.fill(t.Context(), tx, agents, deployments) })
	if err != nil {
		t.Fatal(err)
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
	var ids []fleet.AgentID
	for i := range agents {
		id := fleet.NewAgentID()
		ids = append(ids, id)
		steps = append(steps, tx.Agents().Create(ctx, newAgent(f.tenant, id, fmt.Sprintf("agent-%05d", i))))
	}
	for i := range deployments {
		d := fleet.Deployment{ID: fleet.NewDeploymentID(), TenantID: f.tenant, Name: fmt.Sprintf("deployment-%05d", i),
			RepositoryID: repo, EnvironmentID: env, CreatedAt: now}
		steps = append(steps, tx.Deployments().Create(ctx, d))
		for _, agent := range ids {
			x := fleet.Target{ID: fleet.NewTargetID(), TenantID: f.tenant, DeploymentID: d.ID, AgentID: agent}
			f.targets = append(f.targets, x)
			steps = append(steps, tx.Targets().Create(ctx, x))
		}
	}
	for _, err := range steps {
		if err != nil {
			return err
		}
	}
	return nil
}

// report returns a report with a change for each target.
func (f *bed) report(ctx context.Context, tx store.Tx, targets []fleet.Target, generation int64) error {
	_, err := tx.Targets().SetObserved(ctx, f.tenant, reports(targets, generation, news))
	return err
}

// benchBed returns a store with 10,000 targets and current planner statistics.
func benchBed(b *testing.B) (store.Store, *bed) {
	b.Helper()
	d := pg.Database(b)
	s := pgtest.Open(b, d)
	f := newBed(b, s, 200, 50)
	conn, err := pgx.Connect(b.Context(), d.Admin)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context())
	if _, err := conn.Exec(b.Context(), "ANALYZE"); err != nil {
		b.Fatal(err)
	}
	return s, f
}

// BenchmarkSetObserved writes one batch of reports in one transaction: each with a new message, each with ten
// objects of which one changed, each with four changed objects, and with only a new time.
func BenchmarkSetObserved(b *testing.B) {
	cases := map[string]func(target fleet.Target, n int64) store.AgentReport{
		"status": news, "objects": newsOfObjects, "changes": newsOfChanges,
		"silence": func(x fleet.Target, _ int64) store.AgentReport { return news(x, 1) },
	}
	for name, say := range cases {
		for _, size := range []int{200, 1000} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				s, f := benchBed(b)
				benchReports(b, size, func(n int64) error {
					return s.Update(b.Context(), func(tx store.Tx) error {
						_, err := tx.Targets().SetObserved(b.Context(), f.tenant, reports(f.part(n, size), n, say))
						return err
					})
				})
			})
		}
	}
}

// BenchmarkSetObservedParallel writes many batches concurrently, for different targets.
func BenchmarkSetObservedParallel(b *testing.B) {
	const size = 200
	s, f := benchBed(b)
	var count atomic.Int64
	b.SetParallelism(2)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			n := count.Add(1)
			err := s.Update(b.Context(), func(tx store.Tx) error {
				_, err := tx.Targets().SetObserved(b.Context(), f.tenant, reports(f.part(n, size), n, news))
				return err
			})
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "reports/s")
}

// benchReports runs batches, the first of which is numbered 1.
func benchReports(b *testing.B, size int, write func(n int64) error) {
	b.Helper()
	n := int64(0)
	for b.Loop() {
		n++
		if err := write(n); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "reports/s")
}

func reports(targets []fleet.Target, n int64, say func(fleet.Target, int64) store.AgentReport) []store.AgentReport {
	var out []store.AgentReport
	for _, x := range targets {
		out = append(out, say(x, n))
	}
	return out
}

func news(x fleet.Target, n int64) store.AgentReport {
	return store.AgentReport{Agent: x.AgentID, Report: store.Report{Target: x.ID, Observed: fleet.Observed{
		Version: fleet.Version{Epoch: 1, Generation: n}, Sync: fleet.SyncSynced, Health: fleet.HealthCurrent,
		AsOf: time.Now(), Message: fmt.Sprintf("generation %d", n)}}}
}

func newsOfObjects(x fleet.Target, n int64) store.AgentReport {
	r := news(x, n)
	r.Full = true
	for i := range 10 {
		o := fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "x", Name: fmt.Sprintf("cm-%d", i)},
			Sync: fleet.SyncSynced, Health: fleet.HealthCurrent}
		if i == 0 {
			o.Message = r.Observed.Message
		}
		r.Objects = append(r.Objects, o)
	}
	return r
}

func newsOfChanges(x fleet.Target, n int64) store.AgentReport {
	r := newsOfObjects(x, n)
	r.Full, r.Objects = false, r.Objects[:4]
	for i := range r.Objects {
		r.Objects[i].Message = r.Observed.Message
	}
	return r
}

// part is a batch of targets, another one each time for a while.
func (f *bed) part(n int64, size int) []fleet.Target {
	start := int(n) * size % len(f.targets)
	return f.targets[start : start+size]
}
