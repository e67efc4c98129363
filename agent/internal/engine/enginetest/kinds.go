package enginetest

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// widgets is a custom kind of one test: groups are cluster-wide, so that each test has its own.
const widgets = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.$NS.example.com}
spec:
  group: $NS.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
`

const widget = "---\napiVersion: $NS.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 1}\n"

const gadgets = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.$NS.example.com}
spec:
  group: $NS.example.com
  scope: Cluster
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: $NS.example.com/v1
kind: Gadget
metadata: {name: $NS-g}
`

var kindCases = []testCase{
	{"applies a custom resource together with its definition", definitionAndResource},
	{"fails an object of an unknown kind alone, and applies it when the kind arrives", unknownKind},
	{"prunes a custom resource and keeps its definition", pruneCustomResource},
	{"leaves nothing behind when the API server does not serve a kind for a moment", halfDiscovery},
	{"keeps a confirmed CustomResourceDefinition while anybody has an object of it", occupiedDefinition},
}

func (w *world) dropDefinitions(t *testing.T) {
	for _, plural := range []string{"widgets", "gadgets"} {
		w.dropLater(t, definitions, plural+"."+w.ns+".example.com")
	}
}

// covers: A3
func definitionAndResource(t *testing.T, w *world) {
	w.dropDefinitions(t)
	e := w.start(t)
	s := w.sync(t, e, 1, widget+widgets+gadgets)
	if o := object(t, s, "Gadget "+w.ns+"-g"); o.Namespace != "" || o.Sync != fleet.SyncSynced {
		t.Errorf("the cluster-scoped resource is %s %s", o.ObjectRef, o.Sync)
	}
	if o := object(t, s, "Widget w"); o.Namespace != w.ns {
		t.Errorf("the namespaced resource is %s", o.ObjectRef)
	}
	e.stop()
	mark := w.traffic.mark()
	before := w.rec.count(w.target)
	e = w.start(t)
	e.Set(w.desired(t, 1, widget+widgets+gadgets))
	w.rec.await(t, func() string {
		if w.rec.counts[w.target] == before || w.rec.statuses[w.target].Observed.Sync != fleet.SyncSynced {
			return "want it Synced after a restart"
		}
		return ""
	})
	inventory, others := w.traffic.since(mark, w.agentNS)
	for _, r := range append(inventory, others...) {
		if r.write() {
			t.Errorf("sent %v after a restart, want no writes", r)
		}
	}
}

func unknownKind(t *testing.T, w *world) {
	w.dropDefinitions(t)
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+configMap("b", "1"))
	e.Set(w.desired(t, 2, configMap("a", "2")+widget))
	s := w.rec.status(t, w.target, 2, fleet.SyncFailed)
	if s.Observed.Reason != fleet.ReasonObjectsFailed || !hasReason(s, fleet.ReasonKindNotFound) || !strings.Contains(s.Observed.Message, "Widget") {
		t.Errorf("status is %s, want the kind that is missing", describe(s))
	}
	if !w.exists(t, "b") || value(w.get(t, "a"), "key") != "2" {
		t.Error("want a applied and b kept")
	}
	w.h.Cluster.Apply(t, strings.ReplaceAll(widgets, "$NS", w.ns))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Sync != fleet.SyncSynced {
			return "want it Synced now that the kind is known"
		}
		return ""
	})
	if w.exists(t, "b") {
		t.Error("b is there")
	}
}

func pruneCustomResource(t *testing.T, w *world) {
	w.dropDefinitions(t)
	e := w.start(t)
	w.sync(t, e, 1, widget+widgets+configMap("a", "1"))
	e.stop()
	e = w.start(t)
	s := w.sync(t, e, 2, configMap("a", "1"))
	if len(s.Objects) != 2 || !strings.Contains(s.Observed.Message, "CustomResourceDefinition") {
		t.Errorf("status is %s, want the definition kept and named", describe(s))
	}
	if left := w.h.Cluster.Kubectl(t, "-n", w.ns, "get", "widgets."+w.ns+".example.com", "-o", "name"); left != "" {
		t.Errorf("%s is left", left)
	}
}

// covers: A6
func occupiedDefinition(t *testing.T, w *world) {
	w.dropDefinitions(t)
	e := w.start(t)
	w.sync(t, e, 1, configMap("a", "1")+widgets)
	w.h.Cluster.Apply(t, strings.ReplaceAll(strings.Replace(widget, "metadata: {name: w}", "metadata: {name: theirs, namespace: $NS}", 1), "$NS", w.ns))
	name := "widgets." + w.ns + ".example.com"
	d := w.desired(t, 2, configMap("a", "1"))
	d.State.Confirmed = []string{"CustomResourceDefinition.apiextensions.k8s.io " + name}
	e.Set(d)
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || !hasReason(s, fleet.ReasonNotEmpty) || !strings.Contains(s.Observed.Message, name+` "`+w.ns+`/theirs"`) {
			return "want the definition kept, and said for what"
		}
		return ""
	})
	w.h.Cluster.Kubectl(t, "-n", w.ns, "delete", name, "theirs")
	d.State.Generation = 3 // it is looked at once more at once
	e.Set(d)
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 3 || s.Observed.Sync != fleet.SyncSynced || len(s.Objects) != 1 {
			return "want the definition gone"
		}
		return ""
	})
	if left := w.h.Cluster.Kubectl(t, "get", "customresourcedefinitions", "-o", "name", "--field-selector=metadata.name="+name); left != "" {
		t.Errorf("%s is left, want it deleted once nothing is of its kind", left)
	}
}

// covers: A6 (a failed discovery never leads to a deletion, nor to an object that nobody knows of)
func halfDiscovery(t *testing.T, w *world) {
	w.dropDefinitions(t)
	proxy := apiproxy.New(t, w.rest)
	w.rest = proxy.Config()
	e := w.start(t)
	w.sync(t, e, 1, widget+widgets+configMap("a", "1"))
	e.stop()
	group := w.ns + ".example.com/v1"
	var asked atomic.Int32
	proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if r.URL.Path != "/apis/"+group || asked.Add(1) > 2 {
			return nil
		}
		return &apiproxy.Fault{Status: http.StatusOK, Body: `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + group + `","resources":[]}`}
	})
	e = w.start(t)
	e.Set(w.desired(t, 2, widgets+configMap("a", "1")))
	w.rec.statusWith(t, w.target, func(s engine.Status) string {
		if s.Observed.Generation != 2 || len(s.Objects) != 2 {
			return "want the object pruned"
		}
		return ""
	})
	if left := w.h.Cluster.Kubectl(t, "-n", w.ns, "get", "widgets."+w.ns+".example.com", "-o", "name"); left != "" || asked.Load() < 3 {
		t.Errorf("%q is left behind after %d questions for its kind", left, asked.Load())
	}
}
