package enginetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/agentnames"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/install"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// installationCases go through every part of an installation: all that the manifest of an agent has, in both
// of its variants, and what an agent and the owner of the cluster add to it later.
var installationCases = []testCase{
	{"refuses each part of its own installation, and nothing else of the bundle", func(t *testing.T, w *world) { w.refusesParts(t) }},
	{"refuses each part of its own installation when limited to namespaces", func(t *testing.T, w *world) {
		w.scope, w.allowed = fleet.ScopeNamespaced, []string{w.ns}
		w.refusesParts(t)
	}},
	{"deletes no part of its own installation, whatever the inventory says", func(t *testing.T, w *world) { w.keepsParts(t) }},
	{"deletes no part of its own installation when limited to namespaces, whatever the inventory says", func(t *testing.T, w *world) {
		w.scope, w.allowed = fleet.ScopeNamespaced, []string{w.ns}
		w.keepsParts(t)
	}},
}

// added is what is not in the manifest: the Lease, a Secret of what is kept for when the server is away, and
// the policy of the owner of the cluster, which has no label.
const added = `---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %[1]s, namespace: %[4]s}
spec: {holderIdentity: somebody}
---
apiVersion: v1
kind: Secret
type: kedge.dev/bundle
metadata: {name: %[2]s, namespace: %[4]s, labels: {kedge.dev/install: prod}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[3]s, namespace: %[4]s}
data: {policy.yaml: "{}"}
`

// installed puts the installation of the world's agent into the cluster and returns its parts as they were
// asked for.
func (w *world) installed(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	for _, resource := range []string{"clusterroles", "clusterrolebindings"} {
		w.dropLater(t, clusterRoles.GroupVersion().WithResource(resource), w.agentNS)
	}
	text, err := install.Manifest(install.Options{
		Agent:         fleet.Agent{Name: "prod", Scope: w.scope, Namespaces: w.allowed},
		ServerAddress: "grpcs://kedge.example.com:8443", Token: "kedge-agent-secret", CAPEM: []byte("a certificate"),
		Image: "example.invalid/kedge-agent:v1", AgentNamespace: w.agentNS, WithSecret: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	whole := string(text) + fmt.Sprintf(added, agentnames.Lease, agentnames.Slot(0), agentnames.Policy, w.agentNS)
	w.h.Cluster.Apply(t, whole)
	objects, err := manifest.Parse("install.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	var parts []*unstructured.Unstructured
	for _, o := range objects {
		parts = append(parts, o.Unstructured())
	}
	return parts
}

// at is where a part is.
func (w *world) at(part *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(part.GroupVersionKind())
	if part.GetNamespace() == "" {
		return w.client.Resource(resource)
	}
	return w.client.Resource(resource).Namespace(part.GetNamespace())
}

func (w *world) live(t testing.TB, part *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	live, err := w.at(part).Get(t.Context(), part.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatalf("reading %s %s: %v", part.GetKind(), part.GetName(), err)
	}
	return live
}

func refOf(part *unstructured.Unstructured) fleet.ObjectRef {
	gvk := part.GroupVersionKind()
	return fleet.ObjectRef{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: part.GetNamespace(), Name: part.GetName()}
}

// ownInventory is a part that only shows when there is one: the first piece of the target's inventory.
func (w *world) ownInventory(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	list, err := w.client.Resource(configMaps).Namespace(w.agentNS).List(t.Context(), metav1.ListOptions{LabelSelector: inventory.LabelInventory + "=" + string(w.target)})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("no inventory: %v", err)
	}
	part := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	part.SetNamespace(w.agentNS)
	part.SetName(list.Items[0].GetName())
	return part
}

// meddling is the text of a bundle that changes every part.
func meddling(t testing.TB, parts []*unstructured.Unstructured, labelled bool) string {
	t.Helper()
	var b strings.Builder
	for _, part := range parts {
		part = part.DeepCopy()
		part.SetAnnotations(map[string]string{"example.com/changed": "yes"})
		if !labelled {
			part.SetLabels(nil)
		}
		text, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "---\n%s\n", text)
	}
	return b.String()
}

func (w *world) refusesParts(t *testing.T) {
	w.policy.Adopt, w.policy.Force, w.policy.Replace = true, true, true
	parts := w.installed(t)
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1"))
	parts = append(parts, w.ownInventory(t))
	before := make([]types.UID, len(parts))
	for i, part := range parts {
		before[i] = w.live(t, part).GetUID()
	}
	for i, labelled := range []bool{false, true} {
		generation, want := int64(2+i), fmt.Sprint(2+i)
		e.Set(w.desired(t, generation, configMap("a", want)+meddling(t, parts, labelled)))
		s := w.rec.status(t, w.target, generation, fleet.SyncFailed)
		for _, part := range parts {
			if o := object(t, s, refOf(part).String()); o.Sync != fleet.SyncFailed || o.Reason != fleet.ReasonOwnInstallation && o.Reason != fleet.ReasonOutsideScope {
				t.Errorf("%s is %s %q, want it refused", o.ObjectRef, o.Sync, o.Message)
			}
		}
		if o := object(t, s, "ConfigMap a"); o.Sync != fleet.SyncSynced || value(w.get(t, "a"), "key") != want {
			t.Errorf("a is %s, want it applied", o.Sync)
		}
	}
	w.intact(t, parts, before)
}

// intact checks that nothing was done to the parts.
func (w *world) intact(t *testing.T, parts []*unstructured.Unstructured, uids []types.UID) {
	t.Helper()
	for i, part := range parts {
		live := w.live(t, part)
		if live.GetUID() != uids[i] || live.GetDeletionTimestamp() != nil || live.GetAnnotations()["example.com/changed"] != "" {
			t.Errorf("%s %s was changed: %v", part.GetKind(), part.GetName(), live.Object["metadata"])
		}
	}
	for _, r := range w.writesAnywhere(0) {
		// All but the inventory, which the agent is there to write, is in the agent's namespace or has its name.
		if strings.Contains(r.path, w.agentNS) && !strings.HasPrefix(r.path, "/api/v1/namespaces/"+w.agentNS+"/configmaps") {
			t.Errorf("sent %s", r)
		}
	}
}

// keepsParts tries a version that prunes them, though each of them looks like an object of the target and
// somebody has confirmed its deletion by name, and then the end of the deployment.
//
// covers: A6
func (w *world) keepsParts(t *testing.T) {
	parts := w.installed(t)
	uids := make([]types.UID, len(parts))
	record := inventory.Record{
		Target: w.target, Tenant: "default", Deployment: "app", Version: fleet.Version{Epoch: 1, Generation: 1}, Digest: "x",
		Base: len(parts), Entries: map[inventory.Key]inventory.Entry{},
	}
	var confirmed []string
	for i, part := range parts {
		label := fmt.Appendf(nil, `{"metadata":{"labels":{"kedge.dev/agent":%q,"kedge.dev/target":%q}}}`, w.agent, w.target)
		live, err := w.at(part).Patch(t.Context(), part.GetName(), types.MergePatchType, label, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uids[i] = live.GetUID()
		ref := refOf(part)
		confirmed = append(confirmed, ref.String())
		record.Entries[inventory.KeyOf(ref)] = inventory.Entry{ObjectRef: ref, Hash: "x", Live: "x", UID: string(live.GetUID())}
	}
	book := inventory.NewStore(w.client.Resource(configMaps).Namespace(w.agentNS)).New(w.agent, w.target)
	if err := book.Save(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	e := w.start(t)
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.Consent, d.State.Confirmed = true, confirmed
	e.Set(d)
	w.rec.status(t, w.target, 2, fleet.SyncSynced)
	w.intact(t, parts, uids)
	d = w.tombstone(3)
	d.State.Consent, d.State.Confirmed = true, confirmed
	e.Set(d)
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 3 || s.Observed.Sync != fleet.SyncFailed || find(s, "ConfigMap a").Name != "" {
			return "want the rest of the deployment gone, and said that this is not all of it"
		}
		return ""
	})
	if w.exists(t, "a") {
		t.Error("a is there")
	}
	w.intact(t, parts, uids)
}
