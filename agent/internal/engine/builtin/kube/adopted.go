package kube

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
)

// Adoption describes an object before a deployment adopted it.
type Adoption struct {
	Tools    []string // that mark it as managed by them
	Managers []string // that owned fields of it
}

// toolMarks are the labels and annotations by which other tools mark their objects. The values name the release or application.
var toolMarks = []struct{ key, tool string }{
	{"meta.helm.sh/release-name", "Helm release"},
	{"argocd.argoproj.io/tracking-id", "Argo CD application"},
	{"argocd.argoproj.io/instance", "Argo CD application"},
	{"kustomize.toolkit.fluxcd.io/name", "Flux Kustomization"},
	{"helm.toolkit.fluxcd.io/name", "Flux HelmRelease"},
	{"objectset.rio.cattle.io/owner-name", "Fleet bundle"},
	{"config.k8s.io/owning-inventory", "inventory of kpt or Config Sync"},
}

// adoptionOf reads the tools and managers of a live object.
func adoptionOf(live metav1.Object) *Adoption {
	out := &Adoption{}
	labels, annotations := live.GetLabels(), live.GetAnnotations()
	for _, mark := range toolMarks {
		if name := labels[mark.key] + annotations[mark.key]; name != "" {
			out.Tools = append(out.Tools, fmt.Sprintf("%s %q", mark.tool, name))
		}
	}
	if controller := metav1.GetControllerOf(live); controller != nil {
		out.Tools = append(out.Tools, fmt.Sprintf("%s %q, which controls it", controller.Kind, controller.Name))
	}
	for _, entry := range live.GetManagedFields() {
		if !fieldset.IsOwn(entry) && entry.Subresource == "" && !slices.Contains(out.Managers, entry.Manager) {
			out.Managers = append(out.Managers, entry.Manager)
		}
	}
	return out
}
