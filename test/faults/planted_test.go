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

// plantedEnv selects one bug of the server.
const plantedEnv = "KEDGE_PLANTED"

// planted is a bug of the server, with steps that find it.
type planted struct {
	name   string // what plantedEnv says
	reason string
	finds  string // part of what the run reports
	// change has the name of the bug as a switch.
	change change
	script []string
}

var plantedBugs = []planted{
	{
		name: "missing-is-deleted", reason: "a resource that is missing deletes what it created", finds: "wrong deletion",
		change: change{
			file: "server/internal/control/kubernetes.go",
			old:  "	if err := tx.Owners().Put(ctx, o); err != nil {\n		return err\n	}\n	return s.tell(",
			new:  "	if planted == \"missing-is-deleted\" {\n		_, err := s.delete(ctx, tx, auth.Principal{Name: \"system\"}, d, placement.DeleteObjects)\n		return err\n	}\n	if err := tx.Owners().Put(ctx, o); err != nil {\n		return err\n	}\n	return s.tell(",
		},
		script: []string{"create", "lose", "lose", "lose"},
	},
	{
		name: "early-finalizer", reason: "a resource goes although its deletion was not recorded", finds: "no resource",
		change: change{
			file: "server/internal/kubeapi/deployment_delete.go",
			old:  "	left, err := k.deleteDeployments(ctx, p, tenant, hold)\n",
			new:  "	left, err := k.deleteDeployments(ctx, p, tenant, hold)\n	if planted == \"early-finalizer\" && err != nil {\n		return k.removeFinalizers(ctx, cr, v1alpha1.ServerFinalizer, v1alpha1.ResourcesFinalizer)\n	}\n",
		},
		script: []string{"create", "delete", "create", "delete"},
	},
	{
		name: "lost-status", reason: "a status that could not be written is not written again", finds: "condition not met",
		change: change{
			file: "server/internal/kubeapi/handle.go",
			old:  "	return client.IgnoreNotFound(written)\n",
			new:  "	if planted == \"lost-status\" {\n		return nil\n	}\n	return client.IgnoreNotFound(written)\n",
		},
		script: []string{"create", "edit", "edit", "edit", "edit", "edit"},
	},
}

// TestPlantedBugsAreFound checks that the runs of this package can fail. It takes minutes, so run it after changes of this
// package:
//
//	KEDGE_FAULT_PLANTED=1 go test -run TestPlantedBugsAreFound ./test/faults
func TestPlantedBugsAreFound(t *testing.T) {
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
					run(r, plan{seed: seed + 1, tenants: 2, script: bug.script, database: newSQLite, planted: bug.name, limit: 20 * time.Second})
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
