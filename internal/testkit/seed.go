package testkit

import (
	"flag"
	"fmt"
	"math/rand/v2"
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

// Seeds runs a test with each of the fixed seeds, which have found a bug once, and with a new one. With -seed
// it runs only with that one.
func Seeds(t *testing.T, fixed []uint64, test func(t *testing.T, seed uint64)) {
	t.Helper()
	if *seedFlag == 0 {
		for _, seed := range fixed {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { test(t, seed) })
		}
	}
	t.Run("new seed", func(t *testing.T) { test(t, Seed(t)) })
}
