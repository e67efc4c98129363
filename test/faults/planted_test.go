package faults_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// noSite is a focus without a call site: no call fails.
const noSite = "no site"

// plantedEnv selects one bug of the server.
const plantedEnv = "KEDGE_PLANTED"

// planted is a bug of the server, with steps that find it.
type planted struct {
	name   string // what plantedEnv says
	reason string
	finds  string // part of what the run reports
	// change has the name of the bug as a switch.
	change change
	// focus is the call site of which every call fails during script. random finds the bug with random faults.
	focus  string
	script []string
	random []string
}

var plantedBugs = []planted{
	{
		name: "missing-is-deleted", reason: "a resource that is missing deletes what it created", finds: "wrong deletion",
		change: change{
			file: "server/internal/control/kubernetes.go",
			old:  "	if err := tx.Owners().Put(ctx, o); err != nil {\n		return err\n	}\n	return s.tell(",
			new:  "	if planted == \"missing-is-deleted\" {\n		_, err := s.delete(ctx, tx, auth.Principal{Name: \"system\"}, d, placement.DeleteObjects)\n		return err\n	}\n	if err := tx.Owners().Put(ctx, o); err != nil {\n		return err\n	}\n	return s.tell(",
		},
		focus:  noSite,
		script: []string{"create", "lose"},
		random: []string{"create", "lose", "lose", "lose"},
	},
	{
		name: "early-finalizer", reason: "a resource goes although its deletion was not recorded", finds: "no resource",
		change: change{
			file: "server/internal/kubeapi/deployment_delete.go",
			old:  "	left, err := k.deleteDeployments(ctx, p, tenant, hold)\n",
			new:  "	left, err := k.deleteDeployments(ctx, p, tenant, hold)\n	if planted == \"early-finalizer\" && err != nil {\n		return k.removeFinalizers(ctx, cr, v1alpha1.ServerFinalizer, v1alpha1.ResourcesFinalizer)\n	}\n",
		},
		focus:  "database: update control.(*Service).deleteDeployment",
		script: []string{"create", "delete"},
		random: []string{"create", "delete", "create", "delete"},
	},
	{
		name: "lost-status", reason: "a status that could not be written is not written again", finds: "condition not met",
		change: change{
			file: "server/internal/kubeapi/handle.go",
			old:  "	return client.IgnoreNotFound(written)\n",
			new:  "	if planted == \"lost-status\" {\n		return nil\n	}\n	return client.IgnoreNotFound(written)\n",
		},
		focus:  "kubernetes, server: update gitopsdeployments/status",
		script: []string{"create", "edit"},
		random: []string{"create", "edit", "edit", "edit", "edit", "edit"},
	},
}

// TestPlantedBugsAreFound checks that the runs of this package can fail. Each bug gets exactly the faults that make it show,
// so that chance decides nothing. Without the bug, the same steps with the same faults find nothing.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan{seed: 1, limit: patience, database: newSQLite, push: -1})
	t.Log("seed 1")
	correct := w.addTenant(0)
	for _, bug := range plantedBugs {
		if found := w.find(t, bug, correct); len(found) > 0 {
			t.Errorf("%s: without the bug, the run found %q", bug.name, found)
		}
	}
	for i, bug := range plantedBugs {
		tenant := w.addTenant(i + 1)
		w.plant(bug.name)
		w.limit = foundLate
		var found []string
		for range 3 { // a late event can repair what a bug has left
			if found = w.find(t, bug, tenant); strings.Contains(strings.Join(found, "\n"), bug.finds) {
				break
			}
		}
		w.limit = patience
		if !strings.Contains(strings.Join(found, "\n"), bug.finds) {
			t.Errorf("%s: the runs found %q, want %q", bug.reason, found, bug.finds)
		}
		t.Logf("%s: found %.300q", bug.name, found)
		w.plant("")
	}
}

// foundLate is the time limit of a state that a bug prevents.
const foundLate = 8 * time.Second

// find lets one tenant do the steps of a bug with its faults, and returns what is wrong after that.
func (w *world) find(t *testing.T, bug planted, of *tenant) []string {
	t.Helper()
	r := &recorder{TB: t}
	all := w.tenants
	defer func() { w.tenants, w.tb = all, t }()
	w.tenants, w.tb = []*tenant{of}, r
	r.do(func() {
		p := plan{script: bug.script, focus: bug.focus}
		w.storm(p)
		errs := w.playAll(p)
		w.calm()
		if len(errs) > 0 {
			r.Fatal(errs)
		}
		if calls, faults := w.faultsIn(bug.focus); faults == 0 && bug.focus != noSite {
			t.Errorf("%s: none of %d calls failed", bug.name, calls)
		}
		w.converges()
		for _, wrong := range w.ledger.wrong() {
			r.Errorf("wrong deletion: %s", wrong)
		}
	})
	return r.found
}

// faultsIn returns the numbers of calls and faults so far of sites that contain a text.
func (w *world) faultsIn(text string) (calls, faults int) {
	now := newSites()
	now.addFile(w.tb, w.faults+"/calls")
	for _, s := range []*sites{now, w.sites} {
		s.mu.Lock()
		for site, n := range s.calls {
			if strings.Contains(site, text) {
				calls, faults = calls+n, faults+s.faults[site]
			}
		}
		s.mu.Unlock()
	}
	return calls, faults
}

// TestRandomRunsFindPlantedBugs checks the same with random faults. It takes minutes, so run it after changes of this package:
//
//	KEDGE_FAULT_PLANTED=1 go test -run TestRandomRunsFindPlantedBugs ./test/faults
func TestRandomRunsFindPlantedBugs(t *testing.T) {
	t.Parallel()
	if os.Getenv("KEDGE_FAULT_PLANTED") == "" {
		t.Skip("KEDGE_FAULT_PLANTED is not set")
	}
	for _, bug := range plantedBugs {
		t.Run(bug.name, func(t *testing.T) {
			// Chance decides whether a fault hits the bug.
			for seed := range uint64(3) {
				r := &recorder{TB: t}
				r.do(func() {
					run(r, plan{seed: seed + 1, tenants: 2, script: bug.random, database: newSQLite, planted: bug.name, limit: 20 * time.Second, push: -1})
				})
				if strings.Contains(strings.Join(r.found, "\n"), bug.finds) {
					return
				}
				t.Logf("seed %d found %q", seed+1, r.found)
			}
			t.Errorf("%s: no run found %q", bug.reason, bug.finds)
		})
	}
}

// recorder records failures instead of failing.
type recorder struct {
	testing.TB
	mu    sync.Mutex
	found []string
}

// do runs f until it returns or fails.
func (r *recorder) do(f func()) {
	var running sync.WaitGroup
	running.Go(f)
	running.Wait()
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, text)
}

// Failed reports nothing: what the programs log is not of interest.
func (r *recorder) Failed() bool                      { return false }
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any) {
	r.note(fmt.Sprintln(args...))
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.note(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
