package enginetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

var unreadyCases = []testCase{
	{"names the pods of an unready workload with their reasons and events", namesUnreadyPods},
	{"does not repeat itself while a container crashes again and again", crashLoopIsSaidOnce},
	{"says why the pods of a workload are not scheduled", saysWhyPending},
	{"says why a workload has no pods at all", saysWhyNoPods},
	{"says nothing of pods that it may not read, and fails nothing", unreadablePodsAreLeftOut},
}

var (
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	kubeEvents   = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	workloadText = `---
apiVersion: %s
kind: %s
metadata: {name: %s, namespace: $NS}
spec:
  %s
  selector: {matchLabels: {app: %[3]s}}
  template:
    metadata: {labels: {app: %[3]s}, annotations: {simulate.kedge.dev/never-ready: "yes"}}
    spec: {%[5]s containers: [{name: main, image: "example.com/%[3]s:1"}]}
`
)

// podsOf waits until a workload has n pods on nodes and returns them in the order they are reported in: the oldest first.
func (w *world) podsOf(t testing.TB, app string, n int) (out []unstructured.Unstructured) {
	t.Helper()
	testkit.Eventually(t, limit, func(ctx context.Context) error {
		list, err := w.client.Resource(pods).Namespace(w.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app, FieldSelector: "spec.nodeName!="})
		if err == nil && len(list.Items) != n {
			err = fmt.Errorf("%d pods of %s, want %d", len(list.Items), app, n)
		}
		if err == nil {
			out = list.Items
		}
		return err
	})
	slices.SortFunc(out, func(a, b unstructured.Unstructured) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), strings.Compare(a.GetName(), b.GetName()))
	})
	return out
}

// setPod writes the status of a pod as a kubelet would: whether it is ready, and one container.
func (w *world) setPod(t testing.TB, pod, ready string, container map[string]any) {
	t.Helper()
	container["name"], container["image"], container["imageID"] = "main", "example.com/web:1", ""
	container["ready"] = ready == "True"
	if container["restartCount"] == nil {
		container["restartCount"] = 0
	}
	phase := "Pending"
	if ready == "True" {
		phase = "Running"
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase": phase, "containerStatuses": []any{container},
		"conditions": []any{map[string]any{"type": "Ready", "status": ready}, map[string]any{"type": "PodScheduled", "status": "True"}},
	}})
	if err == nil {
		_, err = w.client.Resource(pods).Namespace(w.ns).Patch(t.Context(), pod, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		t.Fatalf("writing the status of pod %s: %v", pod, err)
	}
}

// warn makes a Warning event about a pod.
func (w *world) warn(t testing.TB, pod unstructured.Unstructured, name, reason, message string, count int64) {
	t.Helper()
	now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
	event := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": name, "namespace": w.ns},
		"type": "Warning", "reason": reason, "message": message, "count": count, "firstTimestamp": now, "lastTimestamp": now,
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": w.ns, "name": pod.GetName(), "uid": string(pod.GetUID())},
	}}
	if _, err := w.client.Resource(kubeEvents).Namespace(w.ns).Apply(t.Context(), name, event, metav1.ApplyOptions{FieldManager: "kubelet", Force: true}); err != nil {
		t.Fatalf("making an event: %v", err)
	}
}

func crashing(state string) map[string]any {
	ended := map[string]any{"exitCode": 3, "reason": "Error"}
	c := map[string]any{"restartCount": 4, "lastState": map[string]any{"terminated": ended}}
	switch state {
	case "waiting":
		c["state"] = map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
	case "running":
		c["state"] = map[string]any{"running": map[string]any{}, "waiting": nil, "terminated": nil}
	default:
		c["state"] = map[string]any{"terminated": ended, "running": nil}
	}
	return c
}

// says waits until the status of an object has a reason, and every text in its message.
func (w *world) says(t testing.TB, name string, reason fleet.Reason, texts ...string) engine.Status {
	t.Helper()
	return w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if find(s, name).Reason != reason {
			return fmt.Sprintf("want %s of %s", reason, name)
		}
		for _, text := range texts {
			if !strings.Contains(find(s, name).Message, text) {
				return fmt.Sprintf("want %q in what %s says", text, name)
			}
		}
		return ""
	})
}

// covers: A21
func namesUnreadyPods(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.desired(t, 1, fmt.Sprintf(workloadText, "apps/v1", "Deployment", "web", "replicas: 2", "")+
		fmt.Sprintf(workloadText, "apps/v1", "StatefulSet", "db", "replicas: 1", "")+
		fmt.Sprintf(workloadText, "apps/v1", "DaemonSet", "node", "", "")))
	web, db, node := w.podsOf(t, "web", 2), w.podsOf(t, "db", 1), w.podsOf(t, "node", 1)
	w.setPod(t, web[0].GetName(), "False", map[string]any{"state": map[string]any{"waiting": map[string]any{"reason": "ErrImagePull"}}})
	w.warn(t, web[0], "pull", "Failed", `Failed to pull image "example.com/web:1": not found`, 1)
	w.setPod(t, web[1].GetName(), "False", crashing("waiting"))
	w.setPod(t, db[0].GetName(), "False", map[string]any{"state": map[string]any{"running": map[string]any{}}})
	w.warn(t, db[0], "probe", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", 7)
	w.setPod(t, node[0].GetName(), "False", map[string]any{"state": map[string]any{"waiting": map[string]any{"reason": "CreateContainerConfigError", "message": `configmap "cfg" not found`}}})
	w.says(t, "Deployment web", fleet.ReasonImagePullBackOff, "pod "+web[0].GetName()+": ImagePullBackOff", "example.com/web:1", "Failed to pull image", "pod "+web[1].GetName()+": CrashLoopBackOff", "exit code 3")
	w.says(t, "StatefulSet db", fleet.ReasonProbeFailed, "pod "+db[0].GetName(), "Unhealthy: Readiness probe failed")
	w.says(t, "DaemonSet node", fleet.ReasonCreateContainerConfigError, "pod "+node[0].GetName()+": CreateContainerConfigError", `configmap "cfg" not found`)

	for _, pod := range slices.Concat(web, db, node) {
		w.setPod(t, pod.GetName(), "True", map[string]any{"state": map[string]any{"running": map[string]any{}, "waiting": nil}})
	}
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		for _, o := range s.Objects {
			if o.Health != fleet.HealthCurrent || o.Reason != fleet.ReasonSynced {
				return "want everything ready and nothing said"
			}
		}
		return ""
	})
}

// covers: A21, D8
func crashLoopIsSaidOnce(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.desired(t, 1, fmt.Sprintf(workloadText, "apps/v1", "Deployment", "web", "replicas: 1", "")))
	pod := w.podsOf(t, "web", 1)[0]
	w.setPod(t, pod.GetName(), "False", crashing("waiting"))
	w.warn(t, pod, "back", "BackOff", "Back-off restarting failed container main", 1)
	w.says(t, "Deployment web", fleet.ReasonCrashLoopBackOff, "exit code 3", "BackOff")
	said := w.rec.count(w.target)
	for i, state := range []string{"running", "terminated", "waiting"} {
		looks := w.looksAtPods()
		w.setPod(t, pod.GetName(), "False", crashing(state))
		w.warn(t, pod, "back", "BackOff", "Back-off restarting failed container main", int64(i+2))
		testkit.Eventually(t, limit, func(context.Context) error {
			if n := w.looksAtPods() - looks; n < 1 {
				return fmt.Errorf("the pods were looked at %d times since the change", n)
			}
			return nil
		})
	}
	w.says(t, "Deployment web", fleet.ReasonCrashLoopBackOff) // everything on its way has arrived
	if n := w.rec.count(w.target) - said; n != 0 {
		t.Errorf("%d statuses were made of a crash loop that goes on as before", n)
	}
}

// looksAtPods counts the lists of pods that the engine has asked for.
func (w *world) looksAtPods() int {
	_, requests := w.traffic.since(0, w.agentNS)
	return len(slices.DeleteFunc(requests, func(r request) bool { return !strings.HasSuffix(r.path, "/namespaces/"+w.ns+"/pods") }))
}

// covers: A21
func saysWhyPending(t *testing.T, w *world) {
	e := w.start(t)
	e.Set(w.desired(t, 1, fmt.Sprintf(workloadText, "apps/v1", "Deployment", "web", "replicas: 1", `nodeSelector: {disk: none},`)))
	w.says(t, "Deployment web", fleet.ReasonUnschedulable, "pod web-", "Pending", "node affinity/selector")
}

// covers: A21
func saysWhyNoPods(t *testing.T, w *world) {
	w.h.Cluster.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: %s}\nspec: {hard: {pods: \"0\"}}\n", w.ns))
	testkit.Eventually(t, limit, func(context.Context) error { // until it is in force
		out := w.h.Cluster.Kubectl(t, "get", "resourcequota", "none", "-n", w.ns, "-o", "jsonpath={.status.hard.pods}")
		if out != "0" {
			return fmt.Errorf("the quota is %q", out)
		}
		return nil
	})
	e := w.start(t)
	e.Set(w.desired(t, 1, fmt.Sprintf(workloadText, "apps/v1", "Deployment", "web", "replicas: 1", "")+
		"---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: once, namespace: $NS}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: i}]}}}\n"))
	w.says(t, "Deployment web", fleet.ReasonFailedCreate, "ReplicaSet web-", "exceeded quota: none")
	w.says(t, "Job once", fleet.ReasonFailedCreate, "exceeded quota: none")
}

// covers: A21
func unreadablePodsAreLeftOut(t *testing.T, w *world) {
	w.h.Cluster.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deployer, namespace: %[1]s}
rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}
subjects: [{kind: ServiceAccount, name: deployer, namespace: %[1]s}]
`, w.ns))
	w.policy.ServiceAccount = w.ns + "/deployer"
	e := w.start(t)
	e.Set(w.desired(t, 1, fmt.Sprintf(workloadText, "apps/v1", "Deployment", "web", "replicas: 1", "")))
	w.podsOf(t, "web", 1)
	testkit.Eventually(t, limit, func(context.Context) error {
		if n := w.looksAtPods(); n != 1 {
			return fmt.Errorf("the pods were asked for %d times, want once", n)
		}
		return nil
	})
	s := w.rec.status(t, w.target, 1, fleet.SyncSynced)
	if o := object(t, s, "Deployment web"); o.Health != fleet.HealthInProgress || o.Reason != fleet.ReasonProgressing {
		t.Errorf("web is %s and says %q, want what its own status says", o.Health, o.Message)
	}
}
