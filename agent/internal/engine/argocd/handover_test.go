package argocd_test

import (
	"fmt"
	"strings"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// other is the desired state of another deployment, in a folder with one ConfigMap.
func (w *world) other(folder, object, text string) engine.Desired {
	w.Helper()
	d := w.desired(w.push(map[string]string{folder + "/cm.yaml": configMap(object, text)}))
	w.versions--
	d.Target, d.Deployment, d.State.Generation = fleet.NewTargetID(), folder, 1
	d.Source.Path, d.Source.Objects = folder, []string{w.configMap(object)}
	return d
}

// app sets the source to the folder app with some ConfigMaps.
func (w *world) appFolder(objects ...string) string {
	w.Helper()
	files := map[string]string{"app/a.yaml": "", "app/b.yaml": ""}
	w.source.Path, w.source.Objects = "app", nil
	for _, name := range objects {
		files["app/"+name+".yaml"] = configMap(name, "1")
		w.source.Objects = append(w.source.Objects, w.configMap(name))
	}
	return w.push(files)
}

func (w *world) configMap(name string) string { return "ConfigMap " + w.ns + "/" + name }

// uid returns the UID of a ConfigMap and its text.
func (w *world) uid(name string) (uid, text string) {
	w.Helper()
	uid, text, _ = strings.Cut(w.cluster.Kubectl(w, "-n", w.ns, "get", "configmap", name, "-o", "jsonpath={.metadata.uid} {.data.text}"), " ")
	return uid, text
}

func (w *world) awaitSynced(d engine.Desired) engine.Status {
	w.Helper()
	return w.rec.await(w.T, d.Target, "Synced", func(s engine.Status) bool {
		return s.Observed.Generation == d.State.Generation && s.Observed.Sync == fleet.SyncSynced
	})
}

// handsOver moves an object to another deployment of the agent, once with each of both first.
func handsOver(w *world) {
	e := w.start()
	w.sync(e, w.appFolder("a", "b"))
	before, _ := w.uid("b")
	// The other deployment comes first. It gets the object when this one does not contain it any more.
	taker := w.other("taker", "b", "2")
	e.Set(taker)
	w.rec.await(w.T, taker.Target, "a failed sync", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonArgoCDSyncFailed })
	w.sync(e, w.appFolder("a"))
	w.awaitSynced(taker)
	if after, text := w.uid("b"); after != before || text != "2" {
		w.Errorf("the object is %s with %q, and was %s", after, text, before)
	}
	if !w.rec.has(fleet.ReasonTakenOver, w.configMap("b")) {
		w.Error("no event for the object")
	}
	// And back, held until the other deployment is there.
	d := w.desired(w.push(map[string]string{"taker/cm.yaml": configMap("unrelated", "1")}))
	w.versions--
	d.Target, d.Deployment, d.State.Generation = taker.Target, taker.Deployment, 2
	d.Source.Path, d.Source.Objects = "taker", []string{w.configMap("unrelated")}
	d.State.HandOvers = []fleet.HandOver{{Objects: []string{w.configMap("b")}, Deployment: "app"}}
	e.Set(d)
	w.rec.await(w.T, taker.Target, "the hand-over", func(s engine.Status) bool {
		return s.Observed.Generation == 2 && find(s, w.configMap("b")).Reason == fleet.ReasonHandOverPending
	})
	w.sync(e, w.appFolder("a", "b"))
	if s := w.awaitSynced(d); len(s.Objects) != 1 {
		w.Errorf("the deployment that gave the object has %s", describe(s))
	}
	if after, text := w.uid("b"); after != before || text != "1" {
		w.Errorf("the object is %s with %q, and was %s", after, text, before)
	}
}

// handsOverAtTheEnd deletes or detaches the deployment of an object at the moment when another one desires it.
func handsOverAtTheEnd(w *world) {
	e := w.start()
	for i, end := range []fleet.SyncState{fleet.SyncDeleted, fleet.SyncDetached} {
		w.target = fleet.NewTargetID()
		w.sync(e, w.appFolder("a", "b"))
		before, _ := w.uid("b")
		last := w.tombstone()
		if end == fleet.SyncDetached {
			last.State.Tombstone, last.State.Detached = false, true
		}
		taker := w.other(fmt.Sprintf("taker-%d", i), "b", "2")
		e.Set(taker)
		e.Set(last)
		w.awaitSynced(taker)
		w.await(string(end), func(s engine.Status) bool { return s.Observed.Sync == end })
		if after, text := w.uid("b"); after != before || text != "2" {
			w.Errorf("the object is %s with %q after its deployment was %s, and was %s", after, text, end, before)
		}
		if got := w.exists("configmap", "a"); got != (end == fleet.SyncDetached) {
			w.Errorf("%s, and the object that nothing else desires exists: %v", end, got)
		}
		if w.exists("configmap", "kedge-never-applied") {
			w.Error("the manifest of the deletion was applied")
		}
		taker.Source, taker.State.Tombstone, taker.State.Consent, taker.State.Generation = nil, true, true, 2
		e.Set(taker)
		w.rec.await(w.T, taker.Target, "Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
	}
}

// leavesSharedObjects has two deployments that contain the same object.
func leavesSharedObjects(w *world) {
	e := w.start()
	w.sync(e, w.appFolder("a", "b"))
	second := w.other("second", "b", "2")
	second.State.Policy.Adopt = true
	e.Set(second)
	failed := func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonArgoCDSyncFailed }
	w.rec.await(w.T, second.Target, "a failed sync", failed)
	// Another commit of the first one, and another version of the second one, change nothing.
	w.sync(e, w.appFolder("a", "b"))
	second.State.Generation = 2
	e.Set(second)
	s := w.rec.await(w.T, second.Target, "a failed sync", func(s engine.Status) bool { return s.Observed.Generation == 2 && failed(s) })
	if _, text := w.uid("b"); text != "1" || !strings.Contains(s.Observed.Message, w.app()) {
		w.Errorf("the object has %q, and the second deployment is %s", text, describe(s))
	}
	// The deletion of the second deployment deletes nothing that the first one has.
	before, _ := w.uid("b")
	second.Source, second.State.Tombstone, second.State.Consent, second.State.Generation = nil, true, true, 3
	e.Set(second)
	w.rec.await(w.T, second.Target, "Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
	if after, text := w.uid("b"); after != before || text != "1" {
		w.Errorf("the object is %s with %q, and was %s", after, text, before)
	}
}

// adoptsLeftObjects deploys an object that is tracked for an Application that does not exist any more.
func adoptsLeftObjects(w *world) {
	e := w.start()
	commit := w.appFolder("a", "b")
	w.sync(e, commit)
	d := w.desired("")
	d.Source, d.State.Digest, d.State.Detached = nil, "", true
	e.Set(d)
	w.await("Detached", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDetached })
	before, _ := w.uid("b")
	w.target = fleet.NewTargetID()
	e.Set(w.desired(commit))
	w.await("a failed sync", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonArgoCDSyncFailed })
	w.policy.Adopt = true
	w.sync(e, commit)
	if after, _ := w.uid("b"); after != before {
		w.Errorf("the object is %s, and was %s", after, before)
	}
}

// An earlier Application of the target left an object in a namespace. Argo CD shows it only when the source has that namespace
// again, long after the first comparison. It is held, and confirmed like others.
// covers: A14
func holdsLeftObjects(w *world) {
	e := w.start()
	other := w.cluster.Namespace(w)
	elsewhere := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: " + other + "}\n"
	}
	left := "ConfigMap " + other + "/left"
	exists := func() bool {
		return w.cluster.Kubectl(w, "-n", other, "get", "configmap", "left", "--ignore-not-found", "-o", "name") != ""
	}
	both := []string{w.ns, other}
	w.source.Namespaces = both
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "1"), "left.yaml": elsewhere("left")}))
	d := w.desired("")
	d.Source, d.State.Digest, d.State.Detached = nil, "", true
	e.Set(d)
	w.await("Detached", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDetached })

	w.source.Namespaces = []string{w.ns}
	w.sync(e, w.push(map[string]string{"left.yaml": ""}))
	w.source.Namespaces = both
	commit := w.push(map[string]string{"new.yaml": elsewhere("new")})
	e.Set(w.desired(commit))
	held := func(s engine.Status) bool { return find(s, left).Sync == fleet.SyncHeld }
	w.await("what was left is held", held)
	// A later change deletes its own objects only.
	d = w.desired(w.push(map[string]string{"new.yaml": "", "newer.yaml": elsewhere("newer")}))
	e.Set(d)
	w.await("the next change is applied", func(s engine.Status) bool {
		return held(s) && find(s, "ConfigMap "+other+"/new").Name == "" && find(s, "ConfigMap "+other+"/newer").Sync == fleet.SyncSynced
	})
	if !exists() {
		w.Fatal("an object was deleted that an earlier Application had left")
	}
	d = w.desired(d.State.Commit)
	d.State.Confirmed = []string{left}
	e.Set(d)
	w.await("Synced", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced })
	if exists() {
		w.Error("the confirmed object is not deleted")
	}
}
