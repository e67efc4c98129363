package testkit_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// The flag belongs to the whole process, so this test does not run in parallel.
func TestSeedsAreFixedAndNewOrTheOneThatIsAskedFor(t *testing.T) {
	seeds := func() []uint64 {
		var out []uint64
		testkit.Seeds(t, []uint64{1, 2}, func(_ *testing.T, seed uint64) { out = append(out, seed) })
		return out
	}
	t.Setenv("KEDGE_NEW_SEEDS", "")
	if got := seeds(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("the seeds are %v, want the fixed ones", got)
	}
	t.Setenv("KEDGE_NEW_SEEDS", "1")
	first, second := seeds(), seeds()
	if len(first) != 3 || !slices.Equal(first[:2], []uint64{1, 2}) || first[2] == 0 || first[2] == second[2] {
		t.Errorf("the seeds are %v and then %v, want 1, 2 and another new one each time", first, second)
	}
	before := flag.Lookup("seed").Value.String()
	t.Cleanup(func() { _ = flag.Set("seed", before) })
	if err := flag.Set("seed", "42"); err != nil {
		t.Fatal(err)
	}
	if got := seeds(); !slices.Equal(got, []uint64{42}) {
		t.Errorf("with -seed=42 the seeds are %v", got)
	}
}
