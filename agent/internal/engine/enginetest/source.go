package enginetest

import (
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// sourceCases are of an engine that applies by itself, and is handed a source to let others apply.
var sourceCases = []testCase{
	{"refuses a source that others would have to apply, and leaves what is there as it is", sourceRefused},
	{"refuses a source after a restart as well, and deletes nothing", sourceRefusedAgain},
}

func (w *world) source(t testing.TB, generation int64) engine.Desired {
	t.Helper()
	d := w.desired(t, generation, configMap("a", "1"))
	d.Objects, d.State.Commit = nil, "c0ffee"
	d.Source = &fleet.EngineSource{RepoURL: "https://git.example.com/shop.git", Path: "deploy", Kind: fleet.SourceKustomize}
	return d
}

func (w *world) refused(t *testing.T, generation int64, mark int) {
	t.Helper()
	s := w.rec.status(t, w.target, generation, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonSourceUnsupported || !strings.Contains(s.Observed.Message, "https://git.example.com/shop.git") {
		t.Errorf("the target is %s %q, want what cannot be fetched", s.Observed.Reason, s.Observed.Message)
	}
	inventory, others := w.traffic.since(mark, w.agentNS)
	for _, r := range append(inventory, others...) {
		if r.write() {
			t.Errorf("sent %s for a source that is refused", r)
		}
	}
}

func sourceRefused(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	mark := w.traffic.mark()
	e.Set(w.source(t, 2))
	w.refused(t, 2, mark)
	// The target has what it had: nobody else gets it, and a bundle goes on with it.
	other := fleet.NewTargetID()
	d := w.other(t, other, 1, configMap("b", "2"))
	d.Deployment = "other"
	e.Set(d)
	w.rec.status(t, other, 1, fleet.SyncFailed)
	s := w.sync(t, e, 3, configMap("a", "2")+configMap("b", "1"))
	w.rec.status(t, w.target, 3, fleet.SyncSynced)
	if len(s.Objects) != 2 || value(w.get(t, "a"), "key") != "2" || value(w.get(t, "b"), "key") != "1" {
		t.Errorf("after a bundle: %s", describe(s))
	}
}

func sourceRefusedAgain(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	e.stop()
	e = w.start(t)
	mark := w.traffic.mark()
	e.Set(w.source(t, 2))
	w.refused(t, 2, mark)
	w.sync(t, e, 3, configMap("a", "1"))
	if w.exists(t, "b") {
		t.Error("the bundle that came after the source did not prune")
	}
}
