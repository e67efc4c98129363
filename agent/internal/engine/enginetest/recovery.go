package enginetest

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// recoveryCases are of a server that has recovered: a backup was restored, or the agent was enrolled again.
var recoveryCases = []testCase{
	{"holds what a recovery has missed through later versions and restarts, until it is confirmed", recoveryHolds},
	{"holds what a recovery has missed although pruning was off or an object failed meanwhile", recoveryHoldsInDoubt},
	{"calls a recovery done only when what it holds is written down", recoveryWrittenDown},
	{"prunes again what comes back after a recovery and leaves once more", recoveryForgotten},
	{"measures a change without what a recovery has missed", recoveryMeasure},
}

// confirmed is what is desired with some deletions confirmed.
func (w *world) confirmed(t *testing.T, generation int64, text string, names ...string) engine.Desired {
	t.Helper()
	d := w.desired(t, generation, text)
	d.State.Confirmed = names
	return d
}

// recover hands over a version of a server that has recovered.
func (w *world) recover(t *testing.T, e *running, generation int64, text string) {
	t.Helper()
	d := w.desired(t, generation, text)
	d.State.HoldPrune = true
	e.Set(d)
}

// stillHeld asserts that a version settles with an object that is held and exists.
func (w *world) stillHeld(t *testing.T, generation int64, name string) {
	t.Helper()
	s := w.rec.status(t, w.target, generation, fleet.SyncOutOfSync)
	if o := object(t, s, "ConfigMap "+name); o.Sync != fleet.SyncHeld || !w.exists(t, name) {
		t.Fatalf("generation %d: %s is %+v, want it there and held", generation, name, o)
	}
}

// covers: A6 (restored old backup, agent rejoin)
func recoveryHolds(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("lost", "1"))
	w.recover(t, e, 2, configMap("a", "1"))
	w.stillHeld(t, 2, "lost")
	w.rec.event(t, fleet.ReasonPruneHeld, "")
	e.Set(w.desired(t, 3, configMap("a", "2")))
	w.stillHeld(t, 3, "lost")
	edit := w.desired(t, 4, configMap("a", "3"))
	edit.State.Consent = true
	e.Set(edit)
	w.stillHeld(t, 4, "lost")
	e.stop()
	e = w.start(t)
	e.Set(w.desired(t, 5, configMap("a", "4")))
	w.stillHeld(t, 5, "lost")
	e.Set(w.confirmed(t, 6, configMap("a", "4"), "ConfigMap "+w.ns+"/other"))
	w.stillHeld(t, 6, "lost")
	e.Set(w.confirmed(t, 7, configMap("a", "4"), "ConfigMap "+w.ns+"/lost"))
	w.rec.status(t, w.target, 7, fleet.SyncSynced)
	if w.exists(t, "lost") {
		t.Error("it is there although its deletion was confirmed")
	}
}

// covers: A6
func recoveryHoldsInDoubt(t *testing.T, w *world) {
	refused := "---\napiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec: {ports: [{port: 99999}]}\n"
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("lost", "1"))
	w.policy.Prune = false
	w.recover(t, e, 2, configMap("a", "1")+refused)
	w.rec.status(t, w.target, 2, fleet.SyncFailed)
	e.stop()
	w.policy.Prune = true
	e = w.start(t)
	edit := w.desired(t, 3, configMap("a", "2"))
	edit.State.Consent = true // pruning was turned on
	e.Set(edit)
	w.stillHeld(t, 3, "lost")
}

func recoveryWrittenDown(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("lost", "1"))
	k := newKeeper()
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.HoldPrune, d.Keep = true, k.keep
	e.Set(d)
	<-k.asked
	w.rec.status(t, w.target, 2, fleet.SyncSyncing)
	close(k.done)
	w.stillHeld(t, 2, "lost")
	var held bool
	for _, part := range w.inventoryNames(t) {
		text := value(part.DeepCopy(), "inventory.json")
		held = held || strings.Contains(text, `"held":"AfterRecovery"`)
	}
	if !held {
		t.Error("the status says that it is held, and the inventory does not")
	}
}

func recoveryForgotten(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.recover(t, e, 2, configMap("a", "1"))
	w.stillHeld(t, 2, "b")
	w.sync(t, e, 3, configMap("a", "1")+configMap("b", "1"))
	w.sync(t, e, 4, configMap("a", "1"))
	if w.exists(t, "b") {
		t.Error("what came back into the source is held for ever")
	}
}

func recoveryMeasure(t *testing.T, w *world) {
	w.policy.PruneLimit = fleet.PruneLimit{Objects: 2, Percent: 10}
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1")+configMap("lost-1", "1")+configMap("lost-2", "1")+configMap("lost-3", "1"))
	w.recover(t, e, 2, configMap("a", "1")+configMap("b", "1"))
	w.stillHeld(t, 2, "lost-3")
	e.Set(w.desired(t, 3, configMap("a", "1")))
	w.stillHeld(t, 3, "lost-1")
	if w.exists(t, "b") {
		t.Error("one object of a small commit is held because of what a recovery has missed")
	}
}
