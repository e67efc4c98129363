package testkit

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "seed of random tests, to repeat a run; 0 means a new one")

// Seed returns the seed of a random test: that of -seed, or a new one. A failed test prints how to repeat it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := *seedFlag
	for seed == 0 {
		seed = rand.Uint64()
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("repeat it with: go test -run '%s' -seed=%d", tb.Name(), seed)
		}
	})
	return seed
}

// newSeedsEnv is the number of new seeds of Seeds.
const newSeedsEnv = "KEDGE_NEW_SEEDS"

// Seeds runs a test with each of the fixed seeds, some of which have found a bug once, and with KEDGE_NEW_SEEDS new ones (make
// soak): without them, a failed run can be repeated and is due to a change. With -seed it runs only with that one.
func Seeds(t *testing.T, fixed []uint64, test func(t *testing.T, seed uint64)) {
	t.Helper()
	if *seedFlag != 0 {
		t.Run("seed of the flag", func(t *testing.T) { test(t, Seed(t)) })
		return
	}
	for _, seed := range fixed {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { test(t, seed) })
	}
	for n := range newSeeds(t) {
		t.Run(fmt.Sprint("new seed ", n+1), func(t *testing.T) { test(t, Seed(t)) })
	}
}

func newSeeds(tb testing.TB) int {
	tb.Helper()
	text := os.Getenv(newSeedsEnv)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		tb.Fatalf("%s is %q, want a number", newSeedsEnv, text)
	}
	return n
}
