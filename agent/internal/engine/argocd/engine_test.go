package argocd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	argocdtest "github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// The tests share one real Argo CD.
func TestEngine(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	argo := argocdtest.Start(t, argocdtest.Config{Cluster: c, Namespace: c.Namespace(t)})
	for name, run := range map[string]func(*testing.T, *argocdtest.Instance){
		"conforms":               conforms,
		"crashes at every write": crashesAtEveryWrite,
		"with its manifest":      appliesWithItsManifest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, argo)
		})
	}
}

// appliesWithItsManifest has an agent for each test, with the permissions of its manifest.
// covers: E1, E2, E3, E6
func appliesWithItsManifest(t *testing.T, argo *argocdtest.Instance) {
	for name, run := range map[string]func(*world){
		"applies a commit and reports each object":                             applies,
		"prunes what left, holds too much and protected kinds":                 prunes,
		"reverts hand edits, and creates a deleted Application again":          revertsHandEdits,
		"deletes everything except what it promises to keep, without Git":      deletes,
		"detaches without deleting":                                            detaches,
		"never touches Applications and projects of others":                    leavesForeignAlone,
		"refuses what it cannot apply, and changes nothing":                    refuses,
		"reports a failed sync and a commit that does not exist, and recovers": reportsFailures,
		"continues after a restart":                                            restarts,
		"moves to another namespace and prunes in the old one":                 movesNamespace,
		"never prunes what the server rendered":                                trustsTheServer,
		"applies a private repository whose credential Argo CD has":            appliesPrivateRepository,
		"terminates a sync that a newer commit replaces":                       terminates,
		"takes over the Application when its agent is enrolled again":          continuesForAnotherAgent,
		"leaves a newer version of another replica alone":                      yieldsToNewerReplica,
		"deletes nothing of a kind that its filter excludes":                   filtersKinds,
		"hands over an object that moves to another deployment":                handsOver,
		"hands over the objects of deleted and detached deployments":           handsOverAtTheEnd,
		"takes over the Application of an earlier target of the deployment":    continuesForAnotherTarget,
		"takes no object from an Application that needs it":                    leavesSharedObjects,
		"adopts what a detached deployment left, if the policy says so":        adoptsLeftObjects,
		"holds what it left in a namespace that the source has again":          holdsLeftObjects,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newWorld(t, argo))
		})
	}
}

func applies(w *world) {
	e := w.start()
	first := w.push(map[string]string{"a.yaml": configMap("a", "1"), "sub/b.yaml": configMap("b", "1")})
	s := w.sync(e, first)
	if len(s.Objects) != 2 || s.Observed.Health != fleet.HealthCurrent || s.Observed.Digest != "sha256:"+first || find(s, "ConfigMap "+w.ns+"/b").Sync != fleet.SyncSynced {
		w.Errorf("synced as %s", describe(s))
	}
	w.push(map[string]string{"a.yaml": configMap("a", "newer")})
	get := func() string {
		return w.cluster.Kubectl(w, "-n", w.ns, "get", "configmap", "a", "-o", "jsonpath={.data.text}")
	}
	if got := get(); got != "1" {
		w.Errorf("the object has %q: Argo CD moved to a commit that the server did not choose", got)
	}
	project := func(path string) string {
		name := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "jsonpath={.spec.project}")
		return w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "appproject", name, "-o", "jsonpath="+path)
	}
	if got := project("{.spec.sourceRepos} {.spec.destinations[*].namespace}"); got != fmt.Sprintf("[%q] %s", w.url, w.ns) {
		w.Errorf("the project allows %s", got)
	}
	second := w.push(map[string]string{"a.yaml": configMap("a", "2")})
	w.sync(e, second)
	if got := get(); got != "2" {
		w.Errorf("the object has %q after the second commit", got)
	}
	w.sync(e, first)
	if got := get(); got != "1" {
		w.Errorf("the object has %q after a rollback", got)
	}
}

func prunes(w *world) {
	e := w.start()
	files := map[string]string{"claim.yaml": claim, "a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}
	for i := range 12 {
		files[fmt.Sprintf("many-%d.yaml", i)] = configMap(fmt.Sprintf("many-%d", i), "1")
	}
	w.sync(e, w.push(files))
	// A small change is pruned, except the protected kind.
	e.Pending(1)
	next := w.push(map[string]string{"b.yaml": "", "claim.yaml": ""})
	e.Set(w.desired(next))
	s := w.await("waiting for other deployments", func(s engine.Status) bool {
		return find(s, "ConfigMap "+w.ns+"/b").Reason == fleet.ReasonWaitingForDeployments
	})
	if !w.exists("configmap", "b") {
		w.Errorf("pruned although other deployments are pending: %s", describe(s))
	}
	e.Pending(0)
	held := "PersistentVolumeClaim " + w.ns + "/data"
	s = w.await("the held claim", func(s engine.Status) bool {
		return s.Observed.Reason == fleet.ReasonPruneHeld && find(s, "ConfigMap "+w.ns+"/b").Name == ""
	})
	if o := find(s, held); o.Sync != fleet.SyncHeld || o.Reason != fleet.ReasonProtectedKind || s.Observed.Sync != fleet.SyncOutOfSync {
		w.Errorf("the claim is %+v in %s", o, describe(s))
	}
	if w.exists("configmap", "b") || !w.exists("persistentvolumeclaim", "data") {
		w.Error("pruned the wrong object")
	}
	if !w.rec.has(fleet.ReasonPruned, "ConfigMap "+w.ns+"/b") {
		w.Error("no event for the pruned object")
	}
	// Too many at once are held, also after a later commit and a restart.
	gone := map[string]string{}
	for i := range 12 {
		gone[fmt.Sprintf("many-%d.yaml", i)] = ""
	}
	next = w.push(gone)
	e.Set(w.desired(next))
	w.await("the prune limit", func(s engine.Status) bool {
		return find(s, "ConfigMap "+w.ns+"/many-1").Reason == fleet.ReasonOverPruneLimit
	})
	e.stop()
	e = w.start()
	d := w.desired(next)
	d.State.Consent = true // an edit of the deployment does not release what was held before
	e.Set(d)
	w.await("the hold after a restart", func(s engine.Status) bool {
		return find(s, "ConfigMap "+w.ns+"/many-1").Sync == fleet.SyncHeld
	})
	// Confirmed by name, they go.
	d = w.desired(next)
	d.State.Confirmed = []string{"ConfigMap " + w.ns + "/many-1", held}
	e.Set(d)
	w.await("the confirmed deletions", func(s engine.Status) bool {
		return s.Observed.Reason == fleet.ReasonPruneHeld && find(s, held).Name == "" && find(s, "ConfigMap "+w.ns+"/many-1").Name == ""
	})
	if w.exists("configmap", "many-1") || !w.exists("configmap", "many-2") || !w.exists("configmap", "a") {
		w.Error("deleted something else than what was confirmed")
	}
}

func revertsHandEdits(w *world) {
	e := w.start()
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "1")}))
	ns := w.argo.Namespace()
	w.cluster.Kubectl(w, "-n", ns, "patch", "application", w.app(), "--type=merge", "-p",
		`{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]},"spec":{"syncPolicy":{"automated":{"prune":true}},"destination":{"namespace":"default"}}}`)
	w.eventually(func() error {
		got := w.cluster.Kubectl(w, "-n", ns, "get", "application", w.app(), "-o", "jsonpath={.spec.destination.namespace} {.spec.syncPolicy.automated.prune} {.metadata.finalizers}")
		if got != w.ns+" false " {
			return fmt.Errorf("the Application has %q", got)
		}
		return nil
	})
	project := w.cluster.Kubectl(w, "-n", ns, "get", "application", w.app(), "-o", "jsonpath={.spec.project}")
	w.cluster.Kubectl(w, "-n", ns, "patch", "appproject", project, "--type=merge", "-p", `{"spec":{"destinations":[{"server":"*","namespace":"*"}],"sourceRepos":["*"]}}`)
	w.eventually(func() error {
		got := w.cluster.Kubectl(w, "-n", ns, "get", "appproject", project, "-o", "jsonpath={.spec.sourceRepos} {.spec.destinations[*].namespace}")
		if got != fmt.Sprintf("[%q] %s", w.url, w.ns) {
			return fmt.Errorf("the project allows %s", got)
		}
		return nil
	})
	w.cluster.Kubectl(w, "-n", ns, "delete", "application", w.app(), "--wait=true")
	w.eventually(func() error {
		if w.cluster.Kubectl(w, "-n", ns, "get", "application", w.app(), "--ignore-not-found", "-o", "name") == "" {
			return errStill
		}
		return nil
	})
	w.await("Synced again", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced })
	if !w.exists("configmap", "a") || !w.rec.has(fleet.ReasonArgoCDRestored, "") {
		w.Error("the object is gone, or nothing was reported")
	}
	// Drift of an object is corrected by Argo CD.
	w.cluster.Kubectl(w, "-n", w.ns, "patch", "configmap", "a", "--type=merge", "-p", `{"data":{"text":"drift"}}`)
	w.eventually(func() error {
		if got := w.cluster.Kubectl(w, "-n", w.ns, "get", "configmap", "a", "-o", "jsonpath={.data.text}"); got != "1" {
			return fmt.Errorf("the object has %q", got)
		}
		return nil
	})
}

func deletes(w *world) {
	e := w.start()
	extra := "other-" + w.ns
	w.cluster.Kubectl(w, "create", "namespace", extra)
	w.cluster.Kubectl(w, "delete", "namespace", extra, "--wait=true", "--timeout=60s")
	w.Cleanup(func() { _, _ = w.cluster.TryKubectl(w.T, "delete", "namespace", extra, "--wait=false") })
	crd := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.$NS.example.com}
spec:
  group: $NS.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
	w.source.Kept = []string{"ConfigMap " + w.ns + "/keep"}
	commit := w.push(map[string]string{
		"a.yaml": configMap("a", "1"), "keep.yaml": configMap("keep", "1"), "claim.yaml": claim, "crd.yaml": crd,
		"namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + extra + "}\n",
	})
	w.Cleanup(func() {
		_, _ = w.cluster.TryKubectl(w.T, "delete", "crd", "widgets."+w.ns+".example.com", "--wait=false")
	})
	e.Set(w.desired(commit))
	w.await("Synced", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced })
	project := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "jsonpath={.spec.project}")
	w.git.SetDown(true)
	e.Pending(1)
	e.Set(w.tombstone())
	w.await("the wait for other deployments", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonWaitingForDeployments })
	if !w.exists("configmap", "a") {
		w.Error("a tombstone was carried out while deployments are pending")
	}
	e.Pending(0)
	s := w.await("Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
	for _, name := range []string{"PersistentVolumeClaim " + w.ns + "/data", "Namespace " + extra, "ConfigMap " + w.ns + "/keep", "CustomResourceDefinition"} {
		if !strings.Contains(s.Observed.Message, name) || s.Observed.Reason != fleet.ReasonReleased {
			w.Errorf("%s is not listed in %s", name, describe(s))
		}
	}
	if w.exists("configmap", "a") {
		w.Error("the object of a deleted deployment is still there")
	}
	for kind, name := range map[string]string{"persistentvolumeclaim": "data", "configmap": "keep", "namespace": extra, "crd": "widgets." + w.ns + ".example.com"} {
		if got := w.cluster.Kubectl(w, "-n", w.ns, "get", kind, name, "-o", "jsonpath={.metadata.deletionTimestamp}"); got != "" {
			w.Errorf("%s %s is being deleted", kind, name)
		}
	}
	for kind, name := range map[string]string{"application": w.app(), "appproject": project} {
		if left := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", kind, name, "--ignore-not-found", "-o", "name"); left != "" {
			w.Errorf("%s is left", left)
		}
	}
	if w.exists("configmap", "kedge-never-applied") {
		w.Error("the manifest of the deletion was applied")
	}
}

func detaches(w *world) {
	e := w.start()
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}))
	w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "patch", "application", w.app(), "--type=merge", "-p", `{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`)
	d := w.desired("")
	d.Source, d.State.Digest, d.State.Detached = nil, "", true
	e.Set(d)
	s := w.await("Detached", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDetached })
	if len(s.Objects) != 2 {
		w.Errorf("detached as %s", describe(s))
	}
	if left := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "--ignore-not-found", "-o", "name"); left != "" {
		w.Errorf("%s is left", left)
	}
	for _, name := range []string{"a", "b"} {
		if got := w.cluster.Kubectl(w, "-n", w.ns, "get", "configmap", name, "-o", "jsonpath={.metadata.deletionTimestamp}{.data.text}"); got != "1" {
			w.Errorf("ConfigMap %s is %q after the detachment", name, got)
		}
	}
}

func leavesForeignAlone(w *world) {
	foreign := fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %s, namespace: %s, labels: {team: other}}
spec:
  project: default
  source: {repoURL: %q, path: foreign, targetRevision: HEAD}
  destination: {server: "https://kubernetes.default.svc", namespace: %s}
`, w.app(), w.argo.Namespace(), w.url, w.ns)
	w.push(map[string]string{"foreign/f.yaml": configMap("f", "1")})
	w.cluster.Apply(w, foreign)
	before := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "jsonpath={.spec}{.metadata.labels}{.metadata.uid}")
	e := w.start()
	e.Set(w.desired(w.push(map[string]string{"a.yaml": configMap("a", "1")})))
	s := w.await("the refusal", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonArgoCDNameInUse })
	if s.Observed.Sync != fleet.SyncFailed {
		w.Errorf("reported %s", describe(s))
	}
	e.Set(w.tombstone())
	s = w.await("Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
	if s.Observed.Reason != fleet.ReasonNoInventory {
		w.Errorf("reported %s", describe(s))
	}
	if after := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "jsonpath={.spec}{.metadata.labels}{.metadata.uid}"); after != before {
		w.Errorf("the foreign Application changed from %s to %s", before, after)
	}
	// An object of a foreign Application is not taken over.
	w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "delete", "application", w.app())
	w.cluster.Apply(w, strings.Replace(foreign, "name: "+w.app(), "name: foreign-"+w.app(), 1)+"  syncPolicy: {automated: {}}\n")
	w.eventually(func() error {
		status := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", "foreign-"+w.app(), "-o", "jsonpath={.status.sync.status}")
		if status != "Synced" || !w.exists("configmap", "f") {
			return errStill
		}
		return nil
	})
	w.target, w.versions = fleet.NewTargetID(), 0
	e.Set(w.desired(w.repo.Head()))
	s = w.await("the shared object", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonArgoCDSyncFailed })
	owner := w.cluster.Kubectl(w, "-n", w.ns, "get", "configmap", "f", "-o", `jsonpath={.metadata.annotations.argocd\.argoproj\.io/tracking-id}`)
	if !strings.Contains(owner, "foreign-") || !strings.Contains(s.Observed.Message, "hared") {
		w.Errorf("the object belongs to %q; reported %s", owner, describe(s))
	}
}

func refuses(w *world) {
	e := w.start()
	commit := w.push(map[string]string{"a.yaml": configMap("a", "1")})
	for reason, change := range map[fleet.Reason]func(*engine.Desired){
		fleet.ReasonBundleUnsupported: func(d *engine.Desired) { d.Source = nil },
		fleet.ReasonSourceUnsupported: func(d *engine.Desired) { d.Source.Unsupported = []string{"source.variables"} },
		fleet.ReasonPolicyUnsupported: func(d *engine.Desired) { d.State.Policy.ServiceAccount = "a/b" },
		fleet.ReasonOwnInstallation:   func(d *engine.Desired) { d.Source.Namespaces = []string{w.argo.Namespace()} },
		fleet.ReasonGrantViolation:    func(d *engine.Desired) { d.State.Limits.Namespaces = []string{"elsewhere"} },
	} {
		d := w.desired(commit)
		change(&d)
		e.Set(d)
		w.await(string(reason), func(s engine.Status) bool { return s.Observed.Reason == reason && s.Observed.Sync == fleet.SyncFailed })
	}
	if left := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "--ignore-not-found", "-o", "name"); left != "" {
		w.Errorf("%s was written for a refused state", left)
	}
}

func reportsFailures(w *world) {
	e := w.start()
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "1")}))
	broken := "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\nspec: {ports: [{port: 99999}]}\n"
	e.Set(w.desired(w.push(map[string]string{"svc.yaml": broken, "a.yaml": ""})))
	s := w.await("Failed", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonArgoCDSyncFailed })
	if o := find(s, "Service "+w.ns+"/svc"); o.Sync != fleet.SyncFailed || o.Message == "" {
		w.Errorf("the broken object is %+v", o)
	}
	if !w.exists("configmap", "a") {
		w.Error("pruned although an object failed")
	}
	e.Set(w.desired(strings.Repeat("0123456789", 4)))
	s = w.await("a comparison error", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonArgoCDComparisonFailed })
	if s.Observed.Health == fleet.HealthCurrent {
		w.Errorf("healthy although nothing is known: %s", describe(s))
	}
	w.sync(e, w.push(map[string]string{"svc.yaml": strings.Replace(broken, "99999", "80", 1)}))
	if w.exists("configmap", "a") {
		w.Error("the object that left is still there")
	}
}

func restarts(w *world) {
	e := w.start()
	first := w.push(map[string]string{"a.yaml": configMap("a", "1")})
	w.sync(e, first)
	e.stop()
	e = w.start()
	if len(e.held) != 1 || e.held[0].Target != w.target || e.held[0].Generation != w.versions || e.held[0].Digest != "sha256:"+first {
		w.Fatalf("recovered %+v", e.held)
	}
	old := w.desired(first)
	w.versions--
	old.State.Generation = 0
	e.Set(old) // an older version is ignored
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "2")}))
}

func movesNamespace(w *world) {
	e := w.start()
	commit := w.push(map[string]string{"a.yaml": configMap("a", "1")})
	w.sync(e, commit)
	old := w.ns
	w.ns = w.cluster.Namespace(w)
	w.source.Namespaces = []string{w.ns}
	d := w.desired(commit)
	d.State.Consent = true
	e.Set(d)
	w.await("Synced in the new namespace", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced && len(s.Objects) == 1 })
	if !w.exists("configmap", "a") {
		w.Error("the object is not in the new namespace")
	}
	if left := w.cluster.Kubectl(w, "-n", old, "get", "configmap", "a", "--ignore-not-found", "-o", "name"); left != "" {
		w.Errorf("%s is left in the old namespace", left)
	}
	w.eventually(func() error {
		name := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "jsonpath={.spec.project}")
		if got := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "appproject", name, "-o", "jsonpath={.spec.destinations[*].namespace}"); got != w.ns {
			return fmt.Errorf("the project allows %s", got)
		}
		return nil
	})
}

func trustsTheServer(w *world) {
	e := w.start()
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")}))
	w.source.Objects = []string{"ConfigMap " + w.ns + "/a", "ConfigMap " + w.ns + "/b"}
	s := w.sync(e, w.push(map[string]string{"b.yaml": ""}))
	if o := find(s, "ConfigMap "+w.ns+"/b"); o.Reason != fleet.ReasonPruneBlocked || !w.exists("configmap", "b") {
		w.Errorf("the object that Argo CD does not render is %+v", o)
	}
}

func appliesPrivateRepository(w *world) {
	commit := w.push(map[string]string{"a.yaml": configMap("a", "1")})
	w.git.Protect("app", map[string]string{"reader": "secret"})
	e := w.start()
	e.Set(w.desired(commit))
	w.await("the missing credential", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonArgoCDComparisonFailed })
	w.cluster.Apply(w, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: repository-%s, namespace: %s, labels: {argocd.argoproj.io/secret-type: repository}}
stringData: {type: git, url: %q, username: reader, password: secret}
`, w.ns, w.argo.Namespace(), w.url))
	w.await("Synced", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced })
}

func terminates(w *world) {
	e := w.start()
	// A hook that never ends keeps the sync running.
	hook := `
apiVersion: v1
kind: Pod
metadata: {name: stuck, annotations: {argocd.argoproj.io/hook: PreSync}}
spec: {restartPolicy: Never, nodeSelector: {never: matches}, containers: [{name: c, image: "example.invalid/c:1"}]}
`
	e.Set(w.desired(w.push(map[string]string{"hook.yaml": hook, "a.yaml": configMap("a", "1")})))
	w.eventually(func() error {
		if !w.exists("pod", "stuck") {
			return errStill
		}
		return nil
	})
	w.sync(e, w.push(map[string]string{"hook.yaml": "", "a.yaml": configMap("a", "2")}))
}
