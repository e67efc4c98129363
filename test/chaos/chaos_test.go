package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// restEvery is how many steps there are between two rests.
const restEvery = 8

// plan defines one run.
type plan struct {
	seed   uint64
	steps  int
	script []string      // names of the first steps; the seed determines the others
	limit  time.Duration // time limit for the system to settle
	binary string
	store  newDatabase
	// planted is the bug of the server; "" for none.
	planted string
}

// run drives a world through the steps of a seed, and returns what it found with its log. It stops at the first
// find, because later ones are consequences.
func run(tb testing.TB, p plan) ([]violation, string) {
	tb.Helper()
	tb.Logf("KEDGE_CHAOS_STEPS=%d -seed=%d", p.steps, p.seed)
	w := newWorld(tb, p)
	for i := range p.steps {
		// Each step has its own random numbers, independent of those of the step before.
		rng := rand.New(rand.NewPCG(p.seed, uint64(i)))
		switch {
		case i < len(p.script):
			w.play(p.script[i], rng)
		default:
			if s := stepAt(i, p.steps, rng); !s.do(w, rng) {
				w.stepCreate(rng)
			}
		}
		w.look()
		if last := i == p.steps-1; last || i%restEvery == restEvery-1 {
			w.rest(rng, last)
		}
		if len(w.ledger.found()) > 0 {
			break
		}
	}
	return w.ledger.found(), fmt.Sprintf("seed %d, steps:\n%s", p.seed, strings.Join(w.log, "\n"))
}

// stepAt chooses step i of n. Every run restores a backup that lacks an edit of a source, pushes during a
// freeze, and lets agents leave environments: chance alone combines these too rarely.
func stepAt(i, n int, rng *rand.Rand) step {
	always := map[int]string{n/2 - 2: "freeze the fleet", n/2 - 1: "push", n / 2: "push", n/2 + 1: "push", n/2 + 4: "relabel", n/2 + 5: "relabel"}
	always[n/3], always[n/3+1], always[n/3+2], always[2*n/3] = "back up", "edit the source", "edit the source", "restore"
	if at := slices.IndexFunc(steps, func(s step) bool { return s.name == always[i] }); at >= 0 {
		return steps[at]
	}
	return draw(rng)
}

// play does the step of a name.
func (w *world) play(name string, rng *rand.Rand) {
	w.tb.Helper()
	if name == "rest" {
		w.rest(rng, false)
		return
	}
	i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
	if i < 0 || !steps[i].do(w, rng) {
		w.tb.Fatalf("step %q is unknown, or impossible now", name)
	}
}

// check fails the test with the finds of a run.
func check(t *testing.T, p plan) {
	t.Helper()
	found, how := run(t, p)
	for _, v := range found {
		t.Errorf("seed %d: %s", p.seed, v)
	}
	if len(found) > 0 || testing.Verbose() {
		t.Log(how)
	}
}

// covers: T3, O5, O7, A6
func TestChaosOnSQLite(t *testing.T) {
	t.Parallel()
	testkit.Seeds(t, []uint64{1, 2, 3}, func(t *testing.T, seed uint64) {
		t.Parallel()
		check(t, plan{seed: seed, steps: int(number(t, "KEDGE_CHAOS_STEPS", 40)), limit: patience, binary: server(t), store: newSQLite})
	})
}

// covers: T3, O5, O7, A6
func TestChaosOnPostgreSQL(t *testing.T) {
	t.Parallel()
	testkit.Seeds(t, []uint64{1, 2, 5325695645643054756}, func(t *testing.T, seed uint64) {
		t.Parallel()
		check(t, plan{seed: seed, steps: int(number(t, "KEDGE_CHAOS_STEPS", 40)), limit: patience, binary: server(t), store: newPostgres})
	})
}
