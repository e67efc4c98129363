package enginetest

import (
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// keepCases are of states that somebody keeps for when the server is away.
var keepCases = []testCase{
	{"writes nothing down and takes nothing on before a state is kept", keepFirst},
	{"prunes nothing before a state is kept", keepBeforePrune},
	{"does not wait to be told that an older state is kept", keepSuperseded},
}

// keeper keeps a state when it is told to.
type keeper struct {
	asked chan struct{} // closed when the engine has asked
	done  chan struct{}
	once  sync.Once
}

func newKeeper() *keeper { return &keeper{asked: make(chan struct{}), done: make(chan struct{})} }

func (k *keeper) keep() <-chan struct{} {
	k.once.Do(func() { close(k.asked) })
	return k.done
}

// covers: D4
func keepFirst(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	mark := w.traffic.mark()
	k := newKeeper()
	d := w.desired(t, 2, configMap("a", "1")+configMap("b", "2"))
	d.Keep = k.keep
	e.Set(d)
	<-k.asked
	w.rec.status(t, w.target, 2, fleet.SyncSyncing)
	inventory, others := w.traffic.since(mark, w.agentNS)
	for _, r := range append(inventory, others...) {
		if r.write() {
			t.Errorf("sent %s before the state was kept", r)
		}
	}
	close(k.done)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if value(w.get(t, "b"), "key") != "2" {
		t.Error("b is not as desired")
	}
}

// covers: D4, A6
func keepBeforePrune(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("goes", "1"))
	mark := w.traffic.mark()
	k := newKeeper()
	d := w.desired(t, 2, configMap("a", "1"))
	d.Keep = k.keep
	e.Set(d)
	<-k.asked
	w.rec.status(t, w.target, 2, fleet.SyncSyncing)
	if !w.exists(t, "goes") {
		t.Error("it was pruned by a state that a restart would not know")
	}
	if inventory, _ := w.traffic.since(mark, w.agentNS); len(inventory) > 0 {
		t.Errorf("sent %v before the state was kept", inventory)
	}
	close(k.done)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if w.exists(t, "goes") {
		t.Error("it was not pruned")
	}
}

func keepSuperseded(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	k := newKeeper() // for ever
	d := w.desired(t, 2, configMap("a", "2")+configMap("b", "2"))
	d.Keep = k.keep
	e.Set(d)
	<-k.asked
	s := w.sync(t, e, 3, configMap("a", "3"))
	if strings.Contains(describe(s), " b ") || w.exists(t, "b") {
		t.Errorf("what was never kept is there: %s", describe(s))
	}
}
