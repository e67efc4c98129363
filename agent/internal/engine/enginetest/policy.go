package enginetest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

var policyCases = []testCase{
	{"takes a field over from another manager when the policy says force, and says so", forces},
	{"leaves the replicas to an autoscaler even when the policy says force", forceYields},
	{"fails a change of an immutable field clearly, and leaves the object alone", immutableFails},
	{"replaces an object whose immutable field changes, when the policy says so", replaces},
	{"finds out that a field is immutable whatever words the API server uses", immutableInOtherWords},
	{"waits until an object that is replaced is gone", replaceWaits},
	{"does not delete an object that could not be created again", replaceRefused},
	{"never replaces a protected kind", replaceProtected},
	{"does not replace what an admission policy refuses to have changed", replaceAdmission},
	{"does not replace what a rule of its definition refuses to have changed", replaceTransition},
	{"does not replace where the owner of the cluster forbids deletions", replaceForbidden},
	{"does not replace a StatefulSet whose claims would be deleted with it", replaceWithClaims},
	{"creates an object again after a kill in the middle of replacing it", replaceKilled},
}

var jobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

// job is the text of a Job, whose template cannot be changed.
func job(name, image string) string {
	return fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: %q}]}}
`, name, image)
}

func (w *world) jobImage(t testing.TB, name string) (uid, image string) {
	t.Helper()
	live, err := w.client.Resource(jobs).Namespace(w.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(live.GetUID()), w.h.Cluster.Kubectl(t, "-n", w.ns, "get", "job", name, "-o", "jsonpath={..image}")
}

// covers: A4
func forces(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	w.edit(t, "another-tool", "a", `{"data":{"new":"theirs"}}`)
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {key: \"1\", new: ours}\n"
	e.Set(w.desired(t, 2, text))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if object(t, s, "ConfigMap a").Reason != fleet.ReasonFieldConflict || !strings.Contains(s.Observed.Message, ".data.new") || !strings.Contains(s.Observed.Message, "another-tool") {
		t.Errorf("status is %s, want the field and the manager", describe(s))
	}
	w.policy.Force = true
	w.sync(t, e, 3, text)
	if got := value(w.get(t, "a"), "new"); got != "ours" {
		t.Errorf("the field is %q, want ours", got)
	}
	w.rec.event(t, fleet.ReasonForced, `.data.new from "another-tool"`)
}

// covers: A4
func forceYields(t *testing.T, w *world) {
	w.policy.Force = true
	e := w.start(t)
	w.sync(t, e, 1, webApp)
	e.stop()
	w.scale(t, "kube-controller-manager", 3)
	e = w.start(t)
	w.sync(t, e, 2, strings.Replace(webApp, "web:1", "web:2", 1))
	if got := w.h.Cluster.Kubectl(t, "-n", w.ns, "get", "deploy", "web", "-o", "jsonpath={.spec.replicas} {..image}"); got != "3 example.invalid/web:2" {
		t.Errorf("replicas and image are %q, want those of the autoscaler and of the manifest", got)
	}
}

// covers: A13
func immutableFails(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, job("a", "example.invalid/a:1"))
	uid, _ := w.jobImage(t, "a")
	e.Set(w.desired(t, 2, job("a", "example.invalid/a:2")+configMap("b", "1")))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	o := object(t, s, "Job a")
	if o.Reason != fleet.ReasonImmutableField || !strings.Contains(o.Message, "spec.template") {
		t.Errorf("a is %s %q, want the immutable field", o.Reason, o.Message)
	}
	if len(o.Message) > 300 {
		t.Errorf("a says %q: too long", o.Message)
	}
	if now, image := w.jobImage(t, "a"); now != uid || image != "example.invalid/a:1" || !w.exists(t, "b") {
		t.Errorf("a is %s with %s, want it left alone and the rest applied", now, image)
	}
}

// covers: A13
func replaces(t *testing.T, w *world) {
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, job("a", "example.invalid/a:1"))
	uid, _ := w.jobImage(t, "a")
	mark := w.traffic.mark()
	w.sync(t, e, 2, job("a", "example.invalid/a:2"))
	if now, image := w.jobImage(t, "a"); now == uid || image != "example.invalid/a:2" {
		t.Errorf("a is %s with %s, want a new one", now, image)
	}
	w.rec.event(t, fleet.ReasonReplaced, "spec.template")
	if got := fmt.Sprint(w.writes(mark)); got != "[PATCH a DELETE a PATCH a]" {
		t.Errorf("writes are %s, want it tried, deleted and created", got)
	}
	// What is changeable is changed.
	w.sync(t, e, 3, strings.Replace(job("a", "example.invalid/a:2"), "suspend: true", "suspend: true\n  parallelism: 2", 1))
	if got := fmt.Sprint(w.writes(mark)); got != "[PATCH a DELETE a PATCH a PATCH a]" {
		t.Errorf("writes are %s, want one PATCH more", got)
	}
}

// A StatefulSet is refused with "updates to statefulset spec for fields other than … are forbidden".
//
// covers: A13
func immutableInOtherWords(t *testing.T, w *world) {
	text := func(service string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 0
  serviceName: %s
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "example.invalid/db:1"}]}
`, service)
	}
	e := w.start(t)
	w.sync(t, e, 1, text("one"))
	e.Set(w.desired(t, 2, text("two")))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if o := object(t, s, "StatefulSet db"); o.Reason != fleet.ReasonImmutableField {
		t.Errorf("db says %q, want it told that it cannot be changed", o.Message)
	}
	// What is wrong in itself is not taken for that.
	e.Set(w.desired(t, 3, strings.Replace(text("one"), "{app: db}}\n    spec", "{app: other}}\n    spec", 1)))
	s = w.rec.status(t, w.target, 3, fleet.SyncFailed)
	if o := object(t, s, "StatefulSet db"); o.Reason != fleet.ReasonInvalid {
		t.Errorf("db says %q, want what the API server said", o.Message)
	}
	w.policy.Replace = true
	w.sync(t, e, 4, text("two"))
	w.rec.event(t, fleet.ReasonReplaced, "db")
}

func replaceWaits(t *testing.T, w *world) {
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, job("a", "example.invalid/a:1"))
	w.h.Cluster.Kubectl(t, "-n", w.ns, "patch", "job", "a", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	e.Set(w.desired(t, 2, job("a", "example.invalid/a:2")+configMap("b", "1")))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || s.Observed.Sync != fleet.SyncSyncing || find(s, "ConfigMap b").Sync != fleet.SyncSynced ||
			find(s, "Job a").Reason != fleet.ReasonReplacing || !strings.Contains(find(s, "Job a").Message, "example.com/hold") {
			return "want a to wait for its finalizer, and b in place"
		}
		return ""
	})
	mark := w.traffic.mark()
	e.Set(w.desired(t, 3, job("a", "example.invalid/a:2")+configMap("b", "2")))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 3 || find(s, "ConfigMap b").Sync != fleet.SyncSynced || !strings.Contains(find(s, "Job a").Message, "example.com/hold") {
			return "want a to wait in the next version too"
		}
		return ""
	})
	w.fence(t, e)
	if writes := w.writes(mark); slices.ContainsFunc(writes, func(s string) bool { return strings.HasSuffix(s, " a") }) {
		t.Errorf("writes are %s, want what is on its way out left alone", writes)
	}
	w.h.Cluster.Kubectl(t, "-n", w.ns, "patch", "job", "a", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	w.rec.status(t, w.target, 3, fleet.SyncSynced)
	if _, image := w.jobImage(t, "a"); image != "example.invalid/a:2" {
		t.Errorf("a has %s, want the new one", image)
	}
	w.rec.event(t, fleet.ReasonReplaced, "spec.template")
}

func replaceRefused(t *testing.T, w *world) {
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, job("a", "example.invalid/a:1"))
	uid, _ := w.jobImage(t, "a")
	// Both immutable and wrong in itself: a new one would be refused when the old is gone.
	e.Set(w.desired(t, 2, strings.Replace(job("a", "example.invalid/a:2"), "Never", "Sometimes", 1)))
	w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if now, _ := w.jobImage(t, "a"); now != uid {
		t.Error("the object was deleted for one that nobody accepts")
	}
	w.h.Cluster.Kubectl(t, "-n", w.ns, "annotate", "job", "a", "kedge.dev/prune=disabled")
	e.Set(w.desired(t, 3, job("a", "example.invalid/a:2")))
	s := w.rec.status(t, w.target, 3, fleet.SyncFailed)
	if now, _ := w.jobImage(t, "a"); now != uid || !strings.Contains(s.Observed.Message, "kedge.dev/prune") {
		t.Errorf("message is %q, want the object kept for its annotation", s.Observed.Message)
	}
}

func replaceProtected(t *testing.T, w *world) {
	claim := func(class string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, class)
	}
	w.policy.Replace = true
	e := w.start(t)
	w.sync(t, e, 1, claim("one"))
	e.Set(w.desired(t, 2, claim("two")))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if !hasReason(s, fleet.ReasonImmutableField) || strings.Contains(s.Observed.Message, "replace: true") {
		t.Errorf("status is %s, want no advice to replace a claim", describe(s))
	}
	for _, write := range w.writes(0) {
		if strings.HasPrefix(write, http.MethodDelete) {
			t.Errorf("sent %s", write)
		}
	}
}

func replaceKilled(t *testing.T, w *world) {
	w.policy.Replace = true
	for _, after := range []bool{false, true} {
		w.target, w.rec = fleet.NewTargetID(), newRecorder()
		name := fmt.Sprintf("killed-%t", after)
		e := w.start(t)
		w.sync(t, e, 1, job(name, "example.invalid/a:1"))
		dead := make(chan struct{})
		kill := func(r *http.Request) {
			if r.Method == http.MethodDelete {
				close(dead)
				<-r.Context().Done()
			}
		}
		if after {
			w.traffic.interfere(nil, func(_ int, r *http.Request) { kill(r) })
		} else {
			w.traffic.interfere(func(_ int, r *http.Request) error { kill(r); return context.Cause(r.Context()) }, nil)
		}
		e.Set(w.desired(t, 2, job(name, "example.invalid/a:2")))
		<-dead
		e.stop()
		w.traffic.interfere(nil, nil)
		e = w.start(t)
		w.sync(t, e, 2, job(name, "example.invalid/a:2"))
		if _, image := w.jobImage(t, name); image != "example.invalid/a:2" {
			t.Errorf("%s has %s, want the new one", name, image)
		}
		e.stop()
	}
}
