package enginetest

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

const webApp = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "example.invalid/web:1"}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $NS-reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {password: secret}
`

var applyCases = []testCase{
	{"applies every object and reports the health of each", appliesEverything},
	{"asks nothing of the cluster when a bundle has not changed", unchangedCostsNothing},
	{"sends one PATCH when one object has changed", oneChangeOnePatch},
	{"writes nothing after a restart when nothing has changed", restartWritesNothing},
	{"makes namespaces before what lives in them", namespaceFirst},
	{"turns to a newer version at once", newerSupersedes},
	{"ignores an older version", olderIgnored},
	{"does not report a status twice", noRepeatedStatus},
}

// covers: A1
// covers: A8
func appliesEverything(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.desired(t, 1, webApp))
	s := w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Sync != fleet.SyncSynced || s.Observed.Health != fleet.HealthCurrent {
			return "want Synced and Current"
		}
		return ""
	})
	if len(s.Objects) != 4 || s.Observed.Digest == "" || s.Observed.AsOf.IsZero() {
		t.Errorf("status is %s, want 4 objects, a digest and a time", describe(s))
	}
	live, err := w.client.Resource(deployments).Namespace(w.ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if live.GetLabels()["kedge.dev/target"] != string(w.target) || live.GetLabels()["kedge.dev/agent"] != string(w.agent) ||
		live.GetAnnotations()["kedge.dev/deployment"] != "default/app" {
		t.Errorf("labels are %v, annotations %v", live.GetLabels(), live.GetAnnotations())
	}
	w.rec.event(t, fleet.ReasonSynced, "")
}

func unchangedCostsNothing(t *testing.T, w *world) {
	e := w.start(t)
	text := configMap("a", "1") + configMap("b", "1")
	w.sync(t, e, 1, text)
	mark := w.traffic.mark()
	e.Set(w.desired(t, 1, text))
	w.sync(t, e, 2, text)
	inventory, others := w.traffic.since(mark, w.agentNS)
	if len(others) != 0 {
		t.Errorf("requests are %v, want none", others)
	}
	if len(inventory) > 1 {
		t.Errorf("requests for the inventory are %v, want at most the one that notes the version", inventory)
	}
}

func oneChangeOnePatch(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1")+configMap("c", "1"))
	mark := w.traffic.mark()
	w.sync(t, e, 2, configMap("a", "1")+configMap("b", "2")+configMap("c", "1"))
	if got := value(w.get(t, "b"), "key"); got != "2" {
		t.Errorf("b is %q, want 2", got)
	}
	e.stop()
	inventory, others := w.traffic.since(mark, w.agentNS)
	if len(others) != 1 || others[0].method != http.MethodPatch || !strings.HasSuffix(others[0].path, "/b") {
		t.Errorf("requests are %v, want one PATCH of b", others)
	}
	if len(inventory) != 1 {
		t.Errorf("requests for the inventory are %v, want one", inventory)
	}
}

func restartWritesNothing(t *testing.T, w *world) {
	text := webApp + configMap("a", "1")
	first := w.start(t)
	w.sync(t, first, 1, text)
	first.stop()

	mark := w.traffic.mark()
	second := w.start(t)
	if len(second.held) != 1 || second.held[0].Target != w.target || second.held[0].Generation != 1 || second.held[0].Digest == "" {
		t.Errorf("held is %v, want the target with its generation and digest", second.held)
	}
	before := w.rec.count(w.target)
	second.Set(w.desired(t, 1, text))
	w.rec.await(t, func() string {
		if w.rec.counts[w.target] == before || w.rec.statuses[w.target].Observed.Sync != fleet.SyncSynced {
			return "want a new status that is Synced"
		}
		return ""
	})
	inventory, others := w.traffic.since(mark, w.agentNS)
	for _, r := range append(inventory, others...) {
		if r.write() {
			t.Errorf("sent %v, want no writes", r)
		}
	}
}

// covers: A3
func namespaceFirst(t *testing.T, w *world) {
	w.dropLater(t, namespaces, w.ns+"-more")
	e := w.start(t)
	w.sync(t, e, 1, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: $NS-more}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-more}\n")
}

// covers: A9
func newerSupersedes(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	hanging := make(chan struct{}, 1)
	w.traffic.interfere(func(_ int, r *http.Request) error {
		if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/slow") {
			return nil
		}
		hanging <- struct{}{}
		<-r.Context().Done() // as a webhook would that does not answer
		return r.Context().Err()
	}, nil)
	e.Set(w.desired(t, 2, configMap("a", "2")+configMap("slow", "2")))
	<-hanging
	s := w.sync(t, e, 3, configMap("a", "3"))
	if got := value(w.get(t, "a"), "key"); got != "3" {
		t.Errorf("a is %q, want 3", got)
	}
	if len(s.Objects) != 1 || w.exists(t, "slow") {
		t.Errorf("status is %s, want nothing of the version that was replaced", describe(s))
	}
}

func olderIgnored(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 5, configMap("a", "5"))
	e.Set(w.desired(t, 4, configMap("a", "4")))
	w.fence(t, e)
	e.stop()
	e = w.start(t)
	e.Set(w.desired(t, 3, configMap("b", "3")))
	w.fence(t, e)
	w.sync(t, e, 6, configMap("a", "5")+configMap("b", "6"))
	for _, generation := range []int64{3, 4} {
		if w.rec.generations[w.target][generation] {
			t.Errorf("generation %d was worked on after 5", generation)
		}
	}
	if got := value(w.get(t, "a"), "key"); got != "5" {
		t.Errorf("a is %q, want 5", got)
	}
}

// fence waits until an engine that was given something before has had the time to work on it: until
// another target that is given now is done.
func (w *world) fence(t testing.TB, e engine.Engine) {
	t.Helper()
	d := w.desired(t, 1, configMap("fence", "1"))
	d.Target, d.Deployment = fleet.NewTargetID(), "fence"
	d.State.Policy = fleet.Policy{Prune: true, Adopt: true}
	e.Set(d)
	w.rec.status(t, d.Target, 1, fleet.SyncSynced)
	e.Set(engine.Desired{Target: d.Target, State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: 2}, Tombstone: true}})
	w.rec.status(t, d.Target, 2, fleet.SyncDeleted)
}

func noRepeatedStatus(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	before := w.rec.count(w.target)
	// An edit of something that is not ours changes the object and nothing that is said of it.
	w.edit(t, "somebody", "a", `{"data":{"theirs":"x"}}`)
	w.fence(t, e)
	if after := w.rec.count(w.target); after != before {
		t.Errorf("%d statuses more, want none", after-before)
	}
}
