package gateway

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// Kustomize adds a namespace to custom resources, of which only the cluster knows whether they have one. Argo CD lists such an
// object without it, and must find it among those that are kept.
// covers: A20
func TestObjectsOfASourceHaveEveryNameThatArgoCDMayList(t *testing.T) {
	t.Parallel()
	objects, err := manifest.Parse("app.yaml", []byte(`
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: issuer, namespace: shop, annotations: {kedge.dev/prune: disabled}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop, annotations: {helm.sh/resource-policy: keep}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: here}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, "")
	if err != nil {
		t.Fatal(err)
	}
	var got fleet.EngineSource
	addObjects(&got, set, "default")
	want := fleet.EngineSource{
		Objects: []string{
			"ClusterIssuer.cert-manager.io issuer", "ClusterIssuer.cert-manager.io shop/issuer", "ClusterRole.rbac.authorization.k8s.io reader",
			"ConfigMap default/here", "ConfigMap shop/web",
		},
		Kept:       []string{"ClusterIssuer.cert-manager.io issuer", "ClusterIssuer.cert-manager.io shop/issuer", "ConfigMap shop/web"},
		Namespaces: []string{"shop"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
