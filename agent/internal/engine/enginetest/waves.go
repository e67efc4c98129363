package enginetest

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

var waveCases = []testCase{
	{"begins a wave when the one before it is ready", waveAfterWave},
	{"applies an object when what it depends on is ready", dependentAfter},
	{"goes on with what depends on nothing that is waited for", otherChain},
	{"applies a custom resource of a later wave when its definition is established", waveOfKinds},
	{"prunes after all waves are in place, in their reverse order", pruneReverse},
	{"prunes in the reverse order of waves after a restart", pruneReverseLater},
	{"turns at once from a revision that never gets ready to its fix", neverReadyThenFixed},
	{"heals drift while a later wave waits, and delays no other target", healsWhileWaiting},
	{"says which object is not ready in time, and goes on when it is", readyTimeout},
	{"says that a wave waits for an object that was refused", refusedHoldsWave},
	{"goes on with a later wave after a restart, and applies nothing twice", waveAfterRestart},
	{"refuses an order that cannot be kept", orderRefused},
}

// annotatedMap is a ConfigMap with an annotation.
func annotatedMap(name, value, annotation, text string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, annotations: {%s: %q}}\ndata: {key: %q}\n", name, annotation, text, value)
}

func wave(name, value string, number int) string {
	return annotatedMap(name, value, "kedge.dev/wave", fmt.Sprint(number))
}

// gate is a ConfigMap that is ready when its data says so.
func gate(name, open string, wave int) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: ConfigMap
metadata:
  name: %s
  annotations: {kedge.dev/wave: "%d", kedge.dev/health-current: "has(object.data.open)"}
data: {key: %q}
`, name, wave, open)
}

// open makes a gate ready, by a field that nobody manages.
func (w *world) open(t testing.TB, name string) {
	t.Helper()
	w.edit(t, "opener", name, `{"data":{"open":"yes"}}`)
}

// waiting waits until the target says that something waits for the object.
func (w *world) waiting(t testing.TB, generation int64, name string) engine.Status {
	t.Helper()
	return w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != generation || !hasReason(s, fleet.ReasonDependencyNotReady) || !strings.Contains(s.Observed.Message, "for ConfigMap "+w.ns+"/"+name+" ") {
			return fmt.Sprintf("want generation %d to wait for %s", generation, name)
		}
		if find(s, "ConfigMap "+name).Sync != fleet.SyncSynced {
			return "want it applied"
		}
		return ""
	})
}

// writes lists the writes since mark, other than to the inventory, as "METHOD name".
func (w *world) writes(mark int) []string {
	_, requests := w.traffic.since(mark, w.agentNS)
	var out []string
	for _, r := range requests {
		if r.write() {
			out = append(out, r.method+" "+path.Base(r.path))
		}
	}
	return out
}

// covers: A3
func waveAfterWave(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.desired(t, 1, gate("first", "1", -1)+configMap("second", "1")+annotatedMap("third", "1", "argocd.argoproj.io/sync-wave", "5")))
	s := w.waiting(t, 1, "first")
	if third := object(t, s, "ConfigMap third"); s.Observed.Sync != fleet.SyncSyncing || third.Reason != fleet.ReasonDependencyNotReady || !strings.Contains(third.Message, "ConfigMap "+w.ns+"/first") {
		t.Errorf("status is %s, want Syncing, and third to say what it waits for", describe(s))
	}
	if w.exists(t, "second") || w.exists(t, "third") {
		t.Error("a later wave was applied before the first was ready")
	}
	mark := w.traffic.mark()
	w.open(t, "first")
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	if got := fmt.Sprint(w.writes(mark)); got != "[PATCH second PATCH third]" {
		t.Errorf("writes are %v, want second and then third", got)
	}
	e.stop()
	_, requests := w.traffic.since(mark, w.agentNS)
	for _, r := range requests {
		if strings.HasSuffix(r.path, "/first") {
			t.Errorf("sent %v, want readiness to be heard of, not asked for", r)
		}
	}
}

// covers: A3
func dependentAfter(t *testing.T, w *world) {
	e := w.start(t)
	text := strings.Replace(webApp, "metadata: {name: web}\nspec:\n  replicas: 1", "metadata: {name: web, annotations: {kedge.dev/depends-on: ConfigMap gate}}\nspec:\n  replicas: 1", 1)
	e.Set(w.desired(t, 1, text+gate("gate", "1", 0)+annotatedMap("last", "1", "config.kubernetes.io/depends-on", "apps/namespaces/"+w.ns+"/Deployment/web")))
	w.waiting(t, 1, "gate")
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if find(s, "Service web").Sync != fleet.SyncSynced || find(s, "Deployment web").Sync != fleet.SyncSyncing {
			return "want what depends on nothing in place, and the Deployment not"
		}
		return ""
	})
	w.open(t, "gate")
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Sync != fleet.SyncSynced || s.Observed.Health != fleet.HealthCurrent {
			return "want Synced and Current"
		}
		return ""
	})
	web, err := w.client.Resource(deployments).Namespace(w.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if last := w.get(t, "last").GetCreationTimestamp(); last.Before(new(web.GetCreationTimestamp())) {
		t.Errorf("last was created at %v, want after what it depends on, at %v", last, web.GetCreationTimestamp())
	}
	writes := w.writes(0)
	if got := writes[len(writes)-1]; got != "PATCH last" {
		t.Errorf("writes are %v, want last to be the last", writes)
	}
}

// covers: A3
func otherChain(t *testing.T, w *world) {
	e := w.start(t)
	after := func(name, on string) string { return annotatedMap(name, "1", "kedge.dev/depends-on", "ConfigMap "+on) }
	e.Set(w.desired(t, 1, gate("gate", "1", 0)+after("waits", "gate")+configMap("b1", "1")+after("b2", "b1")+after("b3", "b2")))
	w.waiting(t, 1, "gate")
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if find(s, "ConfigMap b3").Sync != fleet.SyncSynced || find(s, "ConfigMap waits").Sync != fleet.SyncSyncing {
			return "want the other chain in place"
		}
		return ""
	})
	w.open(t, "gate")
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
}

// covers: A3
func waveOfKinds(t *testing.T, w *world) {
	w.dropDefinitions(t)
	e := w.start(t)
	e.Set(w.desired(t, 1, gate("first", "1", -2)+strings.ReplaceAll(widgets, "metadata: {", "metadata: {annotations: {kedge.dev/wave: '-1'}, ")+widget))
	s := w.waiting(t, 1, "first")
	if o := object(t, s, "Widget w"); o.Sync != fleet.SyncSyncing {
		t.Errorf("the widget is %s %q, want it to wait: its kind is yet to come", o.Sync, o.Message)
	}
	w.open(t, "first")
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	for _, event := range w.rec.events {
		if event.Reason == fleet.ReasonApplyFailed {
			t.Errorf("event is %v, want no failure of a kind that comes with an earlier wave", event)
		}
	}
}

// covers: A5
func pruneReverse(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, wave("a", "1", 3)+wave("b", "1", 2)+wave("c", "1", -1)+configMap("stays", "1"))
	mark := w.traffic.mark()
	e.Set(w.desired(t, 2, gate("gate", "1", 0)+wave("stays", "1", 1)))
	w.waiting(t, 2, "gate")
	for _, name := range []string{"a", "b", "c"} {
		if !w.exists(t, name) {
			t.Errorf("%s was deleted before all waves were in place", name)
		}
	}
	w.open(t, "gate")
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	if got := fmt.Sprint(w.writes(mark)); got != "[PATCH gate PATCH stays DELETE a DELETE b DELETE c]" {
		t.Errorf("writes are %v, want the highest wave to go first", got)
	}
}

func pruneReverseLater(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, wave("a", "1", 3)+wave("b", "1", 2)+annotatedMap("c", "1", "kedge.dev/depends-on", "ConfigMap d")+configMap("d", "1"))
	e.stop()
	e = w.start(t)
	mark := w.traffic.mark()
	e.Set(w.tombstone(2))
	w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if got := fmt.Sprint(w.writes(mark)); got != "[DELETE a DELETE b DELETE c DELETE d]" {
		t.Errorf("writes are %v, want the reverse order of waves and dependencies", got)
	}
}

// covers: A9
func neverReadyThenFixed(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("app", "1"))
	never := `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: broken, annotations: {kedge.dev/wave: "-1"}}
spec:
  selector: {matchLabels: {app: broken}}
  template:
    metadata: {labels: {app: broken}, annotations: {simulate.kedge.dev/never-ready: ""}}
    spec: {containers: [{name: web, image: "example.invalid/web:1"}]}
`
	e.Set(w.desired(t, 2, never+configMap("app", "2")))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || s.Observed.Reason != fleet.ReasonDependencyNotReady || !strings.Contains(s.Observed.Message, "Deployment.apps "+w.ns+"/broken") {
			return "want it to wait for the Deployment"
		}
		return ""
	})
	begun := time.Now()
	w.sync(t, e, 3, configMap("app", "3"))
	// The target is 300 ms (B11), measured where nothing else runs; here any wait for a timeout shows.
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the fix took %v, want it at once", took)
	} else {
		t.Logf("the fix took %v", took)
	}
	if got := value(w.get(t, "app"), "key"); got != "3" {
		t.Errorf("app is %q, want 3", got)
	}
}

// covers: D1
func healsWhileWaiting(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.desired(t, 1, gate("gate", "1", 0)+configMap("beside", "1")+wave("later", "1", 1)))
	w.waiting(t, 1, "gate")
	w.edit(t, "kubectl-edit", "beside", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/beside")
	w.edit(t, "kubectl-edit", "gate", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/gate")
	w.fence(t, e)
	if w.exists(t, "later") {
		t.Error("a later wave was applied before the first was ready")
	}
	w.open(t, "gate")
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	// What is in place is healed whatever is ready.
	w.edit(t, "opener", "gate", `{"data":{"open":null}}`)
	w.edit(t, "kubectl-edit", "later", `{"data":{"key":"edited"}}`)
	w.rec.event(t, fleet.ReasonDriftHealed, "/later")
}

func readyTimeout(t *testing.T, w *world) {
	w.policy.ReadyTimeout = 300 * time.Millisecond
	e := w.start(t)
	e.Set(w.desired(t, 1, gate("gate", "1", 0)+wave("later", "1", 1)))
	s := w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Health != fleet.HealthFailed || find(s, "ConfigMap gate").Reason != fleet.ReasonReadyTimeout || !strings.Contains(s.Observed.Message, "/gate ") || !strings.Contains(s.Observed.Message, "300ms") {
			return "want it Failed, with the object and the time"
		}
		return ""
	})
	if o := object(t, s, "ConfigMap gate"); o.Health != fleet.HealthFailed || o.Sync != fleet.SyncSynced || !w.exists(t, "gate") {
		t.Errorf("status is %s, want gate failed and nothing undone", describe(s))
	}
	w.open(t, "gate")
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Sync != fleet.SyncSynced || s.Observed.Health != fleet.HealthCurrent || s.Observed.Reason != fleet.ReasonSynced {
			return "want it to go on when the object is ready after all"
		}
		return ""
	})
}

func refusedHoldsWave(t *testing.T, w *world) {
	e := w.start(t)
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/first") {
			return errInterfered
		}
		return nil
	}, nil)
	e.Set(w.desired(t, 1, configMap("first", "1")+configMap("beside", "1")+wave("later", "1", 1)))
	s := w.rec.status(t, w.target, 1, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonObjectsFailed || !hasReason(s, fleet.ReasonDependencyNotReady) || !strings.Contains(s.Observed.Message, errInterfered.Error()) || !strings.Contains(s.Observed.Message, "for ConfigMap "+w.ns+"/first ") {
		t.Errorf("message is %q, want the failure, and what waits for it", s.Observed.Message)
	}
	if w.exists(t, "later") || !w.exists(t, "beside") {
		t.Error("want the rest of the wave applied, and the later one not")
	}
	w.traffic.interfere(nil, nil)
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
}

func waveAfterRestart(t *testing.T, w *world) {
	text := gate("gate", "1", 0) + configMap("beside", "1") + wave("later", "1", 1)
	e := w.start(t)
	e.Set(w.desired(t, 1, text))
	w.waiting(t, 1, "gate")
	w.fence(t, e)
	e.stop()
	w.open(t, "gate")
	w.rec = newRecorder()
	e = w.start(t)
	mark := w.traffic.mark()
	e.Set(w.desired(t, 1, text))
	w.rec.status(t, w.target, 1, fleet.SyncSynced)
	if got := fmt.Sprint(w.writes(mark)); got != "[PATCH later]" {
		t.Errorf("writes are %v, want just the wave that was left", got)
	}
}

func orderRefused(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	d := w.desired(t, 2, configMap("b", "1"))
	var err error
	// As a server might send it that does not check.
	d.Objects, err = manifest.Decode([]byte(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"kedge.dev/depends-on":"ConfigMap b"},"name":"a"}}` + "\n" +
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"kedge.dev/depends-on":"ConfigMap a"},"name":"b"}}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	mark := w.traffic.mark()
	e.Set(d)
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonBundleInvalid || !strings.Contains(s.Observed.Message, w.ns+"/a") || !strings.Contains(s.Observed.Message, w.ns+"/b") {
		t.Errorf("message is %q, want both objects", s.Observed.Message)
	}
	if writes := w.writes(mark); len(writes) != 0 {
		t.Errorf("writes are %v, want none", writes)
	}
	w.sync(t, e, 3, configMap("b", "1"))
	if w.exists(t, "a") {
		t.Error("a is there, want the next state carried out")
	}
}
