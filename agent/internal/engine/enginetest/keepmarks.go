package enginetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// keepMarkCases are of annotations, Kedge's own and those of other tools, that keep an object.
var keepMarkCases = []testCase{
	{"keeps what other tools have marked to be kept when it leaves the source", keepMarksPruned},
	{"keeps what was applied with a mark although the mark was taken off since", keepMarksApplied},
	{"keeps what other tools have marked when the deployment is deleted, and says why", keepMarksDeleted},
	{"shows in a dry run that what is marked would be kept", keepMarksDryRun},
}

// keepMarked are annotations, by the name of the ConfigMap that has them in these cases.
var keepMarked = map[string]string{
	"kedge": "kedge.dev/prune: disabled",
	"helm":  "helm.sh/resource-policy: keep",
	"flux":  "kustomize.toolkit.fluxcd.io/prune: disabled",
	"argo":  "argocd.argoproj.io/sync-options: ServerSideApply=true, Prune=false",
}

// deleteOnly keeps an object when its deployment is deleted, and not when it is pruned.
const deleteOnly = "argocd.argoproj.io/sync-options: Delete=false"

func annotated(name, annotation string) string {
	key, value, _ := strings.Cut(annotation, ": ")
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, annotations: {%q: %q}}\n", name, key, value)
}

func allMarked() string {
	text := annotated("whole", deleteOnly) + annotated("plain", "argocd.argoproj.io/sync-options: Prune=true") + annotated("other", "helm.sh/resource-policy: delete")
	for name, annotation := range keepMarked {
		text += annotated(name, annotation)
	}
	return text
}

// keptWith asserts that every marked object is there and says why.
func (w *world) keptWith(t *testing.T, s engine.Status) {
	t.Helper()
	for name, annotation := range keepMarked {
		if o := object(t, s, "ConfigMap "+name); !w.exists(t, name) || o.Reason != fleet.ReasonPruneDisabled || !strings.Contains(o.Message, annotation) {
			t.Errorf("%s says %q, want it kept because of %q", name, o.Message, annotation)
		}
	}
}

// covers: A5, A20
func keepMarksPruned(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, allMarked()+configMap("a", "1"))
	w.keptWith(t, w.sync(t, e, 2, configMap("a", "1")))
	for _, name := range []string{"whole", "plain", "other"} {
		if w.exists(t, name) {
			t.Errorf("%s is there, and nothing keeps it", name)
		}
	}
	e.stop()
	e = w.start(t)
	w.keptWith(t, w.sync(t, e, 3, configMap("a", "2")))
	w.keptWith(t, w.sync(t, e, 4, configMap("a", "2")))
}

// covers: A20
func keepMarksApplied(t *testing.T, w *world) {
	w.policy.Drift = fleet.DriftIgnore
	e := w.start(t)
	w.sync(t, e, 1, allMarked()+configMap("a", "1"))
	e.stop()
	for name, annotation := range keepMarked {
		key, _, _ := strings.Cut(annotation, ": ")
		w.edit(t, "somebody", name, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, key))
	}
	e = w.start(t)
	w.keptWith(t, w.sync(t, e, 2, configMap("a", "1")))
	// Who takes the mark out of the source first lets it go.
	w.sync(t, e, 3, configMap("a", "1")+configMap("helm", "1"))
	w.sync(t, e, 4, configMap("a", "1"))
	if w.exists(t, "helm") {
		t.Error("it is there although its last manifest had no mark")
	}
}

// covers: A20
func keepMarksDeleted(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, allMarked())
	e.Set(w.tombstone(2))
	s := w.rec.status(t, w.target, 2, fleet.SyncDeleted)
	if s.Observed.Reason != fleet.ReasonReleased {
		t.Errorf("the reason is %s, want %s", s.Observed.Reason, fleet.ReasonReleased)
	}
	for name, annotation := range keepMarked {
		if !w.exists(t, name) || !strings.Contains(s.Observed.Message, "ConfigMap "+w.ns+"/"+name) || !strings.Contains(s.Observed.Message, annotation) {
			t.Errorf("%s: message is %q, want it kept and named with its reason", name, s.Observed.Message)
		}
	}
	if !w.exists(t, "whole") || !strings.Contains(s.Observed.Message, "Delete=false") {
		t.Errorf("message is %q, want what asks to be kept in a deletion kept", s.Observed.Message)
	}
	if w.exists(t, "plain") || w.exists(t, "other") {
		t.Error("what nothing keeps is there")
	}
}

func keepMarksDryRun(t *testing.T, w *world) {
	e := w.start(t)
	w.sync(t, e, 1, allMarked()+configMap("a", "1"))
	w.policy.DryRun = true
	e.Set(w.desired(t, 2, configMap("a", "1")))
	s := w.rec.status(t, w.target, 2, fleet.SyncOutOfSync)
	w.keptWith(t, s)
	if o := object(t, s, "ConfigMap whole"); o.Reason != fleet.ReasonDryRun || o.Message != "would be deleted" {
		t.Errorf("whole says %q, want that it would be deleted", o.Message)
	}
}
