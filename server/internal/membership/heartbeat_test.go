package membership

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestReplicasAreToldAliveFromDeadByTheirBeats(t *testing.T) {
	t.Parallel()
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	// The clock of b is an hour behind: only that it moves counts.
	at := func(second int) time.Time { return start.Add(-time.Hour + time.Duration(second)*time.Second) }
	type look struct {
		after int // seconds from the start
		beat  int // of b, by its own count
		self  bool
		live  []string
		dead  int
		miss  bool
	}
	both, alone := []string{"a", "b"}, []string{"a"}
	tests := []struct {
		name, reason string
		looks        []look
	}{
		{"alive", "a beat that moves is a life", []look{
			{0, 0, true, both, 0, false}, {3, 3, true, both, 0, false}, {6, 6, true, both, 0, false}, {30, 30, true, both, 0, false},
		}},
		{"dead", "passed over at once, dead after ten seconds", []look{
			{0, 0, true, both, 0, false}, {3, 0, true, both, 0, false}, {6, 0, true, alone, 0, false}, {9, 0, true, alone, 0, false}, {12, 0, true, alone, 1, false},
		}},
		{"back", "late is not dead", []look{
			{0, 0, true, both, 0, false}, {3, 0, true, both, 0, false}, {6, 0, true, alone, 0, false}, {9, 1, true, both, 0, false},
		}},
		{"we were away", "while we could not look, nobody was silent", []look{
			{0, 0, true, both, 0, false}, {60, 0, true, both, 0, false}, {63, 0, true, both, 0, false}, {66, 0, true, alone, 0, false},
		}},
		{"we were buried", "somebody took us for dead", []look{
			{0, 0, true, both, 0, false}, {3, 3, false, both, 0, true}, {6, 6, true, both, 0, false},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newBeatTracker("a", 3*time.Second)
			for _, l := range tt.looks {
				known := []fleet.ServerReplica{{ID: "b", BeatAt: at(l.beat)}}
				if l.self {
					known = append(known, fleet.ServerReplica{ID: "a"})
				}
				got := w.observe(start.Add(time.Duration(l.after)*time.Second), known)
				slices.Sort(got.live)
				if !slices.Equal(got.live, l.live) || len(got.dead) != l.dead || got.missing != l.miss {
					t.Errorf("%s: after %d s: live %v, dead %v, missing %v", tt.reason, l.after, got.live, got.dead, got.missing)
				}
			}
		})
	}
}

func TestWorkIsSpreadAndOnlyTheShareOfOneMoves(t *testing.T) {
	t.Parallel()
	crews := map[string]*replicaSet{}
	all := []string{"srv-a", "srv-b", "srv-c"}
	for _, id := range all {
		crews[id] = newReplicaSet(id)
		crews[id].set(slices.Clone(all), nil)
	}
	owner := func() map[string]string {
		out := map[string]string{}
		for i := range 3000 {
			name := fmt.Sprint("repository/", i)
			for id, c := range crews {
				if mine, _ := c.chosen(name); mine {
					if out[name] != "" {
						t.Fatalf("%s is for %s and %s", name, out[name], id)
					}
					out[name] = id
				}
			}
			if out[name] == "" {
				t.Fatalf("%s is for nobody", name)
			}
		}
		return out
	}
	before := owner()
	share := map[string]int{}
	for _, id := range before {
		share[id]++
	}
	for id, n := range share {
		if n < 900 || n > 1100 {
			t.Errorf("%s has %d of 3000", id, n)
		}
	}
	delete(crews, "srv-b")
	for _, c := range crews {
		c.set([]string{"srv-a", "srv-c"}, nil)
	}
	moved := map[string]string{}
	for name, id := range owner() {
		if before[name] != id && before[name] != "srv-b" {
			moved[name] = id
		}
	}
	if diff := cmp.Diff(map[string]string{}, moved); diff != "" {
		t.Errorf("moved although their owner is there:\n%s", diff)
	}
}

func TestAReplicaThatWasPassedOverComesBackByItsBeats(t *testing.T) {
	t.Parallel()
	c := newReplicaSet("b")
	all := func() []string { return []string{"a", "b", "c"} }
	c.set(all(), []string{"a", "c"})
	steps := []struct {
		reason string
		do     func()
		next   []string
	}{
		{"those that come after, and then from the beginning", func() {}, []string{"c", "a"}},
		{"the database says that its connection is gone", func() { c.markGone("c") }, []string{"a"}},
		{"no beat, no life", func() { c.set(all(), nil) }, []string{"a"}},
		{"it may have beaten just before it died", func() { c.set(all(), []string{"c"}) }, []string{"a"}},
		{"it is silent", func() { c.set(all(), nil) }, []string{"a"}},
		{"who beats again lives", func() { c.set(all(), []string{"a", "c"}) }, []string{"c", "a"}},
		{"one that is forgotten meanwhile", func() { c.markGone("c"); c.set([]string{"a", "b"}, nil) }, []string{"a"}},
		{"is a new one when it returns", func() { c.set(all(), nil) }, []string{"c", "a"}},
	}
	for _, step := range steps {
		step.do()
		if next, _ := c.next(4); !slices.Equal(next, step.next) {
			t.Errorf("%s: next are %v, not %v", step.reason, next, step.next)
		}
	}
	if next, _ := c.next(1); !slices.Equal(next, []string{"c"}) {
		t.Errorf("of one it is %v", next)
	}
}
