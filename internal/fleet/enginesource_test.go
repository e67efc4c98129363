package fleet_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestAnnotationsKeepObjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, name, value string
		want                bool
	}{
		{"of Kedge", "kedge.dev/prune", "disabled", true},
		{"of Helm", "helm.sh/resource-policy", "keep", true},
		{"of Flux", "kustomize.toolkit.fluxcd.io/prune", "disabled", true},
		{"of Argo CD, for pruning", "argocd.argoproj.io/sync-options", "Validate=false, Prune=false", true},
		{"of Argo CD, for the deletion of the Application", "argocd.argoproj.io/sync-options", "Delete=false", true},
		{"another option", "argocd.argoproj.io/sync-options", "Prune=true", false},
		{"another annotation", "kedge.dev/wave", "disabled", false},
	} {
		if got := fleet.KeepsObject(map[string]string{c.name: c.value}); got != c.want {
			t.Errorf("%s: %s: %s keeps: %v", c.reason, c.name, c.value, got)
		}
	}
}
