package enginetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
)

var crashAgainCases = []testCase{
	{"ends as without a kill when it is told the same again after a kill before any request", func(t *testing.T, w *world) { w.killedAndToldAgain(t, false) }},
	{"ends as without a kill when it is told the same again after a kill before any answer", func(t *testing.T, w *world) { w.killedAndToldAgain(t, true) }},
}

// killedAndToldAgain is killedAnywhere for an agent that is told nothing newer when it is back.
//
// covers: D6, O7
func (w *world) killedAndToldAgain(t *testing.T, after bool) {
	for n := 1; ; n++ {
		if !w.killAndTellAgain(t, n, after) {
			t.Logf("%d requests", n-1)
			return
		}
	}
}

// killAndTellAgain runs one round on a target of its own; false when there was no request number n.
func (w *world) killAndTellAgain(t *testing.T, n int, after bool) bool {
	t.Helper()
	text := configMap("stays", "1") + configMap("changes", "2") + wave("new", "2", 1)
	reached := w.killSecond(t, n, after, text)
	w.rec = newRecorder() // what the second one has said is not what the third one says
	third := w.start(t)
	s := w.sync(t, third, 2, text)
	third.stop()
	when := fmt.Sprintf("killed at request %d (after: %t)", n, after)
	w.compare(t, when, s, map[string]string{"bystander": "", "stays": "1", "changes": "2", "new": "2"})
	if got := w.remembered(t); !slices.Equal(got, []string{"changes", "new", "stays"}) {
		t.Errorf("%s: the inventory names %v", when, got)
	}
	return reached
}

// remembered is the names that the inventory of the target holds.
func (w *world) remembered(t testing.TB) []string {
	t.Helper()
	books, err := inventory.NewStore(w.client.Resource(configMaps).Namespace(w.agentNS)).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, book := range books {
		for key := range book.Record().Entries {
			if book.Record().Target == w.target {
				names[key.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
