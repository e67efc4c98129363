package argocd

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// endingApplication has a Namespace with objects in it, and a CustomResourceDefinition.
func endingApplication(annotations map[string]string) *application {
	resource := func(group, kind, namespace, name string) any {
		return map[string]any{"group": group, "version": "v1", "kind": kind, "namespace": namespace, "name": name, "status": argoSynced}
	}
	raw := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "kedge-tgt-own"}, "status": map[string]any{"resources": []any{
		resource("", "Namespace", "", "shop"), resource("", "ConfigMap", "shop", "web"), resource("", "PersistentVolumeClaim", "shop", "data"),
		resource("apiextensions.k8s.io", "CustomResourceDefinition", "", "widgets.example.com"),
	}}}}
	setAnnotations(raw, annotations)
	return parse(raw)
}

// covers: K2, A6
func TestADeletedDeploymentHoldsProtectedKinds(t *testing.T) {
	t.Parallel()
	const ns, cm, pvc, crd = "Namespace shop", "ConfigMap shop/web", "PersistentVolumeClaim shop/data", "CustomResourceDefinition.apiextensions.k8s.io widgets.example.com"
	all := []string{ns, cm, pvc, crd}
	other := testApplication("kedge-tgt-other", argoSynced, false, annotationNamespaces, `["shop"]`)
	elsewhere := testApplication("kedge-tgt-other", argoSynced, false, annotationNamespaces, `["shop"]`, annotationServer, stagingURL)
	for name, test := range map[string]struct {
		release            bool
		confirmed          []string
		kept               string // of an annotation
		other              *application
		remove, held, keep string
	}{
		"nothing is confirmed":                                       {remove: cm, held: ns + "+" + pvc, keep: crd},
		"without a hold, all of them are released":                   {release: true, remove: cm, keep: ns + "+" + pvc + "+" + crd},
		"without a hold, no confirmation deletes them":               {release: true, confirmed: all, remove: cm, keep: ns + "+" + pvc + "+" + crd},
		"a claim is confirmed":                                       {confirmed: []string{pvc}, remove: cm + "+" + pvc, held: ns, keep: crd},
		"a Namespace is confirmed, with a held claim":                {confirmed: []string{ns}, remove: cm, held: pvc + "+" + ns, keep: crd},
		"all are confirmed, and Argo CD does not delete definitions": {confirmed: all, remove: ns + "+" + cm + "+" + pvc, keep: crd},
		"an object in the Namespace is kept":                         {confirmed: all, kept: cm, remove: pvc, held: ns, keep: cm + "+" + crd},
		"a kept object in the Namespace is not listed":               {confirmed: all, kept: "Secret shop/key", remove: cm + "+" + pvc, held: ns, keep: crd},
		"another Application has objects in the Namespace":           {confirmed: all, other: other, remove: cm + "+" + pvc, held: ns, keep: crd},
		"another Application has a namespace of the same name in another cluster": {
			confirmed: all, other: elsewhere, remove: ns + "+" + cm + "+" + pvc, keep: crd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := New(Config{Namespace: "kedge-agent", EngineNamespace: "argocd", REST: &rest.Config{}, Reporter: noReporter{}})
			if err != nil {
				t.Fatal(err)
			}
			if test.other != nil {
				e.cache.applications[test.other.raw.GetName()] = test.other
			}
			annotations := map[string]string{}
			if test.kept != "" {
				annotations[annotationKept] = jsonText([]string{test.kept})
			}
			own := newTarget(e, "tgt-own", fleet.Version{})
			own.work = &engine.Desired{Target: "tgt-own", Tenant: "team", Deployment: "app", State: fleet.Desired{
				Tombstone: true, Consent: true, HoldProtected: !test.release, Confirmed: test.confirmed,
			}}
			end := own.decideEnd(endingApplication(annotations))
			var remove []string
			for _, ref := range end.remove {
				remove = append(remove, ref.String())
			}
			for what, lists := range map[string][2]string{
				"removes": {strings.Join(remove, "+"), test.remove}, "holds": {strings.Join(names(end.held), "+"), test.held}, "keeps": {strings.Join(names(end.keep), "+"), test.keep},
			} {
				if lists[0] != lists[1] {
					t.Errorf("%s %q, want %q", what, lists[0], lists[1])
				}
			}
		})
	}
}
