package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// move pushes one commit that moves some objects to other deployments.
func (w *movesWorld) move(rng *rand.Rand, deployments int) {
	w.tb.Helper()
	files := map[string]string{}
	for range 1 + rng.IntN(6) {
		o, to := rng.IntN(len(w.at)), rng.IntN(deployments)
		if to == w.at[o] || files[w.file(o)] != "" {
			continue
		}
		files[w.file(o)] = gitserver.Deleted
		w.note("cm-%d from %s to %s", o, app(w.at[o]), app(to))
		w.at[o] = to
		files[w.file(o)] = w.configMap(fmt.Sprintf("cm-%d", o))
	}
	if d := rng.IntN(deployments); rng.IntN(4) == 0 {
		w.note("break %s", app(d))
		files[app(d)+"/broken.yaml"], w.broken[d] = "a: [\n", true
	}
	if len(files) > 0 {
		w.push(files, rng.IntN(5) > 0)
	}
}

// hinder suspends a deployment, or makes it manual.
func (w *movesWorld) hinder(rng *rand.Rand, deployments int) {
	w.tb.Helper()
	d := rng.IntN(deployments)
	w.note("hinder %s", app(d))
	w.hindered[d] = true
	if rng.IntN(2) == 0 {
		w.host.must(http.MethodPost, movesTenant+"/deployments/"+app(d)+"/suspend", nil, nil)
		return
	}
	yes := true
	w.host.must(http.MethodPatch, movesTenant+"/deployments/"+app(d), apiv1.UpdateDeployment{Policy: apiv1.UpdatePolicy{Manual: &yes}}, nil)
}

// disturb breaks something: the connection at some frame from now on, the agent or the server.
func (w *movesWorld) disturb(rng *rand.Rand) {
	w.tb.Helper()
	frame := 1 + rng.IntN(6)
	switch rng.IntN(6) {
	case 0, 1:
		w.note("cut at frame %d", frame)
		w.wire.Arm(frame, func() bool { return false })
	case 2, 3:
		pause := time.Duration(20+rng.IntN(300)) * time.Millisecond
		w.note("stall for %s at frame %d", pause, frame)
		w.wire.Arm(frame, func() bool {
			select {
			case <-w.tb.Context().Done():
			case <-time.After(pause): // a network delay
			}
			return true
		})
	case 4:
		w.note("kill the agent")
		w.agent.Kill()
		w.startAgent()
	case 5:
		w.note("kill the server")
		w.host.kill()
		w.host.start()
	}
}

// settle removes all hindrances, and waits until everything has settled.
func (w *movesWorld) settle(deployments int) {
	w.tb.Helper()
	w.wire.Arm(0, nil)
	files := map[string]string{"rest": fmt.Sprint(len(w.log))}
	for d := range w.broken {
		files[app(d)+"/broken.yaml"] = gitserver.Deleted
	}
	w.push(files, true)
	no := false
	for d := range w.hindered {
		w.host.must(http.MethodPost, movesTenant+"/deployments/"+app(d)+"/resume", nil, nil)
		w.host.must(http.MethodPatch, movesTenant+"/deployments/"+app(d), apiv1.UpdateDeployment{Policy: apiv1.UpdatePolicy{Manual: &no}}, nil)
	}
	clear(w.broken)
	clear(w.hindered)
	for d := range deployments {
		testkit.Eventually(w.tb, patience, func(ctx context.Context) error { return w.settled(ctx, d) })
	}
	w.note("rest")
}

// settled returns what is left to do for a deployment.
func (w *movesWorld) settled(ctx context.Context, d int) error {
	a, err := w.host.send(ctx, w.host.admin, http.MethodGet, movesTenant+"/deployments/"+app(d), nil, nil)
	if err != nil {
		return err
	}
	var v apiv1.Deployment
	if err := a.into(&v); err != nil {
		return err
	}
	if v.EvaluatedCommit != w.repo.Head() || v.Sync != "Synced" || v.Health != "Current" || len(v.Targets) != 1 {
		return fmt.Errorf("%s is %s/%s at %.8s, evaluated up to %.8s of %.8s: %s %s\nafter:\n%s",
			app(d), v.Sync, v.Health, v.Commit, v.EvaluatedCommit, w.repo.Head(), v.Message, v.SourceError, strings.Join(w.log, "\n"))
	}
	return nil
}

// holders checks that every object belongs to the deployment that declares it.
func (w *movesWorld) holders() {
	w.tb.Helper()
	client := w.cluster.Dynamic(w.tb).Resource(configMaps).Namespace(w.namespace)
	for o, d := range w.at {
		live, err := client.Get(w.tb.Context(), fmt.Sprintf("cm-%d", o), metav1.GetOptions{})
		if err != nil {
			w.tb.Fatal(err)
		}
		if got, want := live.GetAnnotations()["kedge.dev/deployment"], "default/"+app(d); got != want {
			w.tb.Errorf("cm-%d belongs to %q, want %q", o, got, want)
		}
	}
}

// TestObjectsThatMoveAreNeverDeleted moves objects at random among deployments on a real API server while deployments
// are suspended, manual and broken, the connection fails, and the server and the agent are killed.
//
// covers: A14, O7
func TestObjectsThatMoveAreNeverDeleted(t *testing.T) {
	t.Parallel()
	// A late deployment loses an object to one that cannot be evaluated.
	testkit.Seeds(t, []uint64{2098971593764481049}, func(t *testing.T, seed uint64) {
		t.Parallel()
		moveObjects(t, rand.New(rand.NewPCG(seed, 0)))
	})
}

func moveObjects(t *testing.T, rng *rand.Rand) {
	t.Helper()
	const deployments, objects = 6, 14
	w := newMovesWorld(t, deployments, objects)
	w.settle(deployments)
	before := w.uids()
	w.watchDeletions()
	for i := range int(number(t, "KEDGE_CHAOS_STEPS", 40)) {
		switch n := rng.IntN(10); {
		case n < 5:
			w.move(rng, deployments)
		case n < 6:
			w.hinder(rng, deployments)
		default:
			w.disturb(rng)
		}
		if i%8 == 7 {
			w.settle(deployments)
			w.holders()
		}
		if gone := w.wasDeleted(); len(gone) > 0 || t.Failed() {
			t.Fatalf("deleted: %v, after:\n%s", gone, strings.Join(w.log, "\n"))
		}
	}
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("objects were deleted and created again (-before +after):\n%s\nafter:\n%s", diff, strings.Join(w.log, "\n"))
	}
}
