package argocd_test

import (
	"errors"
	"strings"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/argocd"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// covers: A1 (kind filters with Argo CD), A6
func filtersKinds(w *world) {
	e := w.start()
	filter := func(include, exclude string) {
		e.Engine.(*argocd.Engine).Configure(w.agent, fleet.ScopeCluster, nil, fleet.NewKindFilter(strings.Fields(include), strings.Fields(exclude)))
	}
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: svc}\nspec: {ports: [{port: 80}]}\n"
	objects := func(names ...string) {
		w.source.Objects = nil
		for _, name := range names {
			kind, object, _ := strings.Cut(name, " ")
			w.source.Objects = append(w.source.Objects, kind+" "+w.ns+"/"+object)
		}
	}
	refused := func(s engine.Status) bool {
		return s.Observed.Sync == fleet.SyncFailed && s.Observed.Reason == fleet.ReasonKindNotAllowed
	}
	objects("ConfigMap a", "Service svc")
	w.sync(e, w.push(map[string]string{"a.yaml": configMap("a", "1"), "svc.yaml": service}))

	filter("", "Service")
	if s := w.await("the refusal", refused); !strings.Contains(s.Observed.Message, "Service "+w.ns+"/svc") || !strings.HasSuffix(s.Observed.Message, "rule Service") {
		w.Errorf("refused as %s, want the object and the rule", describe(s))
	}
	w.eventually(func() error {
		name := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "jsonpath={.spec.project}")
		if got := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "appproject", name, "-o", "jsonpath={.spec.namespaceResourceBlacklist[*].kind}"); got != "Service" {
			return errors.New("the project excludes " + got)
		}
		return nil
	})
	// The object leaves the source while its kind is excluded.
	objects("ConfigMap a")
	s := w.sync(e, w.push(map[string]string{"svc.yaml": "", "a.yaml": configMap("a", "2")}))
	if o := find(s, "Service "+w.ns+"/svc"); o.Reason != fleet.ReasonKindNotAllowed || !w.exists("service", "svc") {
		w.Fatalf("an object of an excluded kind has left: %s, want it kept and reported", describe(s))
	}
	// A wider filter does not delete it either.
	filter("", "")
	s = w.await("the hold", func(s engine.Status) bool { return s.Observed.Reason == fleet.ReasonPruneHeld })
	if o := find(s, "Service "+w.ns+"/svc"); o.Sync != fleet.SyncHeld || o.Reason != fleet.ReasonHeldByKindFilter || !w.exists("service", "svc") {
		w.Fatalf("after the filter was widened: %s", describe(s))
	}
	// A confirmation deletes it, and ends the hold.
	d := w.desired(w.repo.Head())
	d.State.Confirmed = []string{"Service " + w.ns + "/svc"}
	e.Set(d)
	w.await("the confirmed deletion", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced && len(s.Objects) == 1 })
	w.eventually(func() error {
		if left := w.cluster.Kubectl(w, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", `jsonpath={.metadata.annotations.kedge\.dev/held}`); left != "" || w.exists("service", "svc") {
			return errors.New("the hold is " + left)
		}
		return nil
	})
	filter("", "Service")
	// It comes back, and the filter is widened.
	objects("ConfigMap a", "Service svc")
	e.Set(w.desired(w.push(map[string]string{"svc.yaml": service})))
	w.await("the refusal", refused)
	filter("Service", "*.rbac.authorization.k8s.io Service")
	w.await("Synced", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncSynced && len(s.Objects) == 2 })

	// A deployment that is deleted leaves what its agent must not touch.
	filter("ConfigMap", "*")
	w.await("the refusal", refused)
	e.Set(w.tombstone())
	w.await("Deleted", func(s engine.Status) bool { return s.Observed.Sync == fleet.SyncDeleted })
	if !w.exists("service", "svc") || w.exists("configmap", "a") {
		w.Error("want the excluded kind kept, and the rest deleted")
	}
}
