package enginetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var dryRunCases = []testCase{
	{"says what would change in a dry run, and writes nothing", dryRunWritesNothing},
	{"applies what a dry run has shown when that is turned off", dryRunOff},
	{"shows in a dry run what would be deleted, and what would be kept", dryRunPrune},
	{"shows in a dry run what would fail", dryRunFails},
	{"shows a dry run of a namespace and a kind that come with the bundle", dryRunNew},
	{"compares again in a dry run when an object is changed", dryRunFollows},
}

// writesAnywhere lists what was written since mark, the inventory included.
func (w *world) writesAnywhere(mark int) []request {
	inventory, others := w.traffic.since(mark, w.agentNS)
	var out []request
	for _, r := range append(inventory, others...) {
		if r.write() {
			out = append(out, r)
		}
	}
	return out
}

const secretPair = `---
apiVersion: v1
kind: Secret
metadata: {name: token}
stringData: {password: %q, user: admin}
`

// covers: A11
func dryRunWritesNothing(t *testing.T, w *world) {
	w.policy.DryRun = true
	e := w.start(t)
	text := configMap("a", "1") + fmt.Sprintf(secretPair, "old-password")
	e.Set(w.desired(t, 1, text))
	s := w.rec.status(t, w.target, 1, fleet.SyncOutOfSync)
	if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncOutOfSync || o.Reason != fleet.ReasonDryRun || o.Message != "would be created" {
		t.Errorf("a is %s %q, want it to be created", o.Sync, o.Message)
	}
	w.fence(t, e.Engine)
	e.stop()
	if w.exists(t, "a") || w.inventoryExists(t) {
		t.Error("a dry run has written something")
	}

	w.policy.DryRun = false
	e = w.start(t)
	w.sync(t, e, 2, text+configMap("same", "1"))
	w.policy.DryRun = true
	mark := w.traffic.mark()
	e.Set(w.desired(t, 3, configMap("a", "2")+configMap("same", "1")+fmt.Sprintf(secretPair, "new-password")))
	s = w.rec.status(t, w.target, 3, fleet.SyncOutOfSync)
	if o := object(t, s, "ConfigMap a"); o.Message != `would be changed: .data.key: "1" → "2"` {
		t.Errorf("a says %q, want the field with its old and new value", o.Message)
	}
	if o := object(t, s, "ConfigMap same"); o.Sync != fleet.SyncSynced || o.Reason != fleet.ReasonSynced {
		t.Errorf("same is %s %q, want nothing to change", o.Sync, o.Message)
	}
	secret := object(t, s, "Secret token")
	if !strings.Contains(secret.Message, ".data.password: (hidden) → (hidden)") {
		t.Errorf("the Secret says %q, want the field without its value", secret.Message)
	}
	if s.Observed.Reason != fleet.ReasonDryRun || !strings.Contains(s.Observed.Message, "2 of 3 objects") {
		t.Errorf("message is %q, want how many would change", s.Observed.Message)
	}
	if writes := w.writesAnywhere(mark); len(writes) != 0 {
		t.Errorf("writes are %v, want none", writes)
	}
	e.Set(w.desired(t, 4, text+configMap("same", "1")))
	s = w.rec.status(t, w.target, 4, fleet.SyncSynced)
	if writes := w.writesAnywhere(mark); len(writes) != 0 || s.Observed.Reason != fleet.ReasonSynced {
		t.Errorf("writes are %v, the reason %s, want neither when nothing would change", writes, s.Observed.Reason)
	}
}

func (w *world) inventoryExists(t testing.TB) bool {
	t.Helper()
	return strings.Contains(w.h.Cluster.Kubectl(t, "-n", w.agentNS, "get", "configmaps", "-o", "name"), "kedge-inventory-"+string(w.target))
}

// covers: A11
func dryRunOff(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("goes", "1"))
	w.policy.DryRun = true
	e.Set(w.desired(t, 2, configMap("a", "2")+configMap("b", "2")))
	w.rec.status(t, w.target, 2, fleet.SyncOutOfSync)
	e.stop() // and nothing of it is remembered
	w.policy.DryRun = false
	e = w.start(t)
	w.sync(t, e, 3, configMap("a", "2")+configMap("b", "2"))
	if value(w.get(t, "a"), "key") != "2" || !w.exists(t, "b") || w.exists(t, "goes") {
		t.Error("want the bundle applied, and what has left it gone")
	}
	w.policy.DryRun = true
	e.Set(w.desired(t, 4, configMap("a", "3")))
	w.rec.status(t, w.target, 4, fleet.SyncOutOfSync)
	w.policy.DryRun = false
	w.sync(t, e, 5, configMap("a", "3"))
	if value(w.get(t, "a"), "key") != "3" || w.exists(t, "b") {
		t.Error("want it applied without a restart as well")
	}
}

// covers: A11
func dryRunPrune(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("goes", "1")+
		"---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n")
	w.policy.DryRun = true
	mark := w.traffic.mark()
	e.Set(w.desired(t, 2, configMap("a", "1")))
	s := w.rec.status(t, w.target, 2, fleet.SyncOutOfSync)
	if o := object(t, s, "ConfigMap goes"); o.Message != "would be deleted" {
		t.Errorf("goes says %q, want that it would be deleted", o.Message)
	}
	if o := object(t, s, "PersistentVolumeClaim data"); o.Sync == fleet.SyncOutOfSync || o.Reason != fleet.ReasonProtectedKind {
		t.Errorf("the claim is %s %q, want it kept", o.Sync, o.Message)
	}
	if writes := w.writesAnywhere(mark); len(writes) != 0 {
		t.Errorf("writes are %v, want none", writes)
	}
}

func dryRunFails(t *testing.T, w *world) {
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "theirs")
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, job("j", "example.invalid/a:1"))
	w.policy.DryRun = true
	mark := w.traffic.mark()
	e.Set(w.desired(t, 2, configMap("theirs", "1")+configMap("fine", "1")+job("j", "example.invalid/a:2")))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if o := object(t, s, "ConfigMap theirs"); o.Reason != fleet.ReasonNotAdopted {
		t.Errorf("theirs says %q, want why it would fail", o.Message)
	}
	if o := object(t, s, "ConfigMap fine"); o.Message != "would be created" {
		t.Errorf("fine says %q, want it to be created", o.Message)
	}
	if o := object(t, s, "Job j"); !strings.Contains(o.Message, "would be deleted and created again") {
		t.Errorf("the Job says %q, want it replaced", o.Message)
	}
	w.policy.Replace = false
	e.Set(w.desired(t, 3, job("j", "example.invalid/a:2")))
	s = w.rec.status(t, w.target, 3, fleet.SyncFailed)
	if o := object(t, s, "Job j"); o.Reason != fleet.ReasonImmutableField {
		t.Errorf("the Job says %q, want why it would fail", o.Message)
	}
	if writes := w.writesAnywhere(mark); len(writes) != 0 {
		t.Errorf("writes are %v, want none", writes)
	}
}

func dryRunNew(t *testing.T, w *world) {
	w.policy.DryRun = true
	e := w.start(t)
	e.Set(w.desired(t, 1, widgets+strings.Replace(widget, "{name: w}", "{name: w, annotations: {kedge.dev/depends-on: Namespace $NS-more}}", 1)+
		"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-more}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: $NS-more}\n"))
	s := w.rec.status(t, w.target, 1, fleet.SyncOutOfSync)
	for _, o := range s.Objects {
		if o.Message != "would be created" {
			t.Errorf("%s says %q, want it to be created", o.ObjectRef, o.Message)
		}
	}
	if writes := w.writesAnywhere(0); len(writes) != 0 {
		t.Errorf("writes are %v, want none", writes)
	}
}

func dryRunFollows(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	w.policy.DryRun = true
	e.Set(w.desired(t, 2, configMap("a", "2")+configMap("b", "1")))
	w.rec.status(t, w.target, 2, fleet.SyncOutOfSync)
	says := func(name, text string) {
		t.Helper()
		w.rec.statusWith(t, w.target, func(s engine.Status) string {
			if got := find(s, "ConfigMap "+name).Message; !strings.Contains(got, text) {
				return fmt.Sprintf("want %q of %s", text, name)
			}
			return ""
		})
	}
	w.edit(t, "kubectl-edit", "a", `{"data":{"key":"edited"}}`)
	says("a", `.data.key: "edited" → "2"`)
	w.edit(t, "kubectl-edit", "b", `{"data":{"key":"edited"}}`)
	says("b", `.data.key: "edited" → "1"`)
	w.delete(t, "b")
	says("b", "would be created")
	if value(w.get(t, "a"), "key") != "edited" || w.exists(t, "b") {
		t.Error("a dry run has changed something")
	}
}
