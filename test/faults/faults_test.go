package faults_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// plan defines one run.
type plan struct {
	seed     uint64
	tenants  int
	steps    int           // of each tenant
	script   []string      // the steps of each tenant instead of random ones: see scripted
	limit    time.Duration // for everything to get its state without faults
	database newDatabase
	planted  string // the bug of the server; "" for none
	focus    string // part of the call sites of which every call fails, instead of random ones
	push     int    // the tenant with a push environment; negative for none
}

// run drives a world through the steps of a seed. Errors are reported to tb.
func run(tb testing.TB, p plan) {
	tb.Helper()
	began := time.Now()
	w := newWorld(tb, p)
	for i := range p.tenants {
		w.addTenant(i).addClaim()
	}
	tb.Logf("seed %d: ready after %v", p.seed, time.Since(began).Round(time.Millisecond))
	defer func() {
		if tb.Failed() {
			w.explain()
		}
	}()
	w.storm(p)
	if errs := w.playAll(p); len(errs) > 0 {
		tb.Fatal(errs)
	}
	w.calm()
	tb.Logf("the faults end after %v: %s", time.Since(began).Round(time.Millisecond), w.summary())
	w.converges()
	tb.Logf("everything has its state after %v", time.Since(began).Round(time.Millisecond))
	w.deletesAll()
	w.leavesNothing()
	for _, wrong := range w.ledger.wrong() {
		tb.Errorf("wrong deletion: %s", wrong)
	}
	tb.Logf("%d objects were deleted; the end after %v", w.ledger.deletions(), time.Since(began).Round(time.Millisecond))
	tb.Logf("call sites:\n%s", w.sites.check(tb))
}

// explain logs what the server knows about a run that failed, and its steps.
func (w *world) explain() {
	w.tb.Helper()
	for _, t := range w.tenants {
		logOf(w.tb, t)
		for name := range t.apps {
			answer, err := w.rest().Ask(w.tb.Context(), "GET", "/tenants/"+t.name+"/deployments/"+name, nil, nil)
			w.tb.Logf("%s/%s: %d %v %s", t.name, name, answer.Code, err, answer.Body)
		}
	}
	for _, f := range w.faulty {
		f.dump()
	}
}

// playAll lets all tenants do their steps at the same time.
func (w *world) playAll(p plan) []error {
	var mu sync.Mutex
	var errs []error
	var work sync.WaitGroup
	for i, t := range w.tenants {
		work.Go(func() {
			if err := t.play(w.tb.Context(), w.rng(i), p); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	work.Wait()
	return errs
}

// summary describes the faults of a run.
func (w *world) summary() string {
	w.sites.addFile(w.tb, w.faults+"/calls")
	out := ""
	for _, kind := range []string{"database", "kubernetes, server", "kubernetes, agent", "kubernetes, engine"} {
		calls, faults := w.sites.total(kind)
		out += fmt.Sprintf("%s: %d of %d calls failed; ", kind, faults, calls)
	}
	for _, f := range w.faulty {
		started, killed := f.counts()
		out += fmt.Sprintf("%s: started %d times, killed %d times; ", f.name, started, killed)
	}
	return out
}

// pushTenant returns the tenant of a seed with a push environment, or -1. A real Argo CD takes time, so only seeds with an even
// number have one. The first tenant is deleted with its namespace.
func pushTenant(seed uint64, tenant int) int {
	if seed%2 == 0 {
		return tenant
	}
	return -1
}

// covers: K10, K1, K2, K3, K4, K5, K6, K7, K8, K9
// defect: B1, B20
func TestCustomResourcesOnSQLite(t *testing.T) {
	t.Parallel()
	testkit.Seeds(t, []uint64{1}, func(t *testing.T, seed uint64) {
		run(t, plan{seed: seed, tenants: 3, steps: steps(t), limit: patience, database: newSQLite, push: pushTenant(seed, 2)})
	})
}

// covers: K10, K1, K2, K3, K4, K5, K6, K7, K8, K9
func TestCustomResourcesOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Seeds(t, []uint64{2}, func(t *testing.T, seed uint64) {
		run(t, plan{seed: seed, tenants: 3, steps: steps(t), limit: patience, database: newPostgres, push: pushTenant(seed, 0)})
	})
}

// covers: K9, K10
func TestTenTenants(t *testing.T) {
	t.Parallel()
	testkit.Seeds(t, []uint64{3}, func(t *testing.T, seed uint64) {
		run(t, plan{seed: seed, tenants: 10, steps: 4, limit: patience, database: newPostgres, push: -1})
	})
}
