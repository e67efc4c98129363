package builtin

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/fieldset"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// adoption is what an object was before a deployment took it over that says adopt.
type adoption struct {
	tools    []string // that mark it as theirs
	managers []string // that had fields of it
}

// marks are the labels and annotations by which other tools know what is theirs. Their values name what there.
var marks = []struct{ key, tool string }{
	{"meta.helm.sh/release-name", "Helm release"},
	{"argocd.argoproj.io/tracking-id", "Argo CD application"},
	{"argocd.argoproj.io/instance", "Argo CD application"},
	{"kustomize.toolkit.fluxcd.io/name", "Flux Kustomization"},
	{"helm.toolkit.fluxcd.io/name", "Flux HelmRelease"},
	{"objectset.rio.cattle.io/owner-name", "Fleet bundle"},
	{"config.k8s.io/owning-inventory", "inventory of kpt or Config Sync"},
}

// adoptionOf reads off a live object whose it was.
func adoptionOf(live metav1.Object) *adoption {
	out := &adoption{}
	labels, annotations := live.GetLabels(), live.GetAnnotations()
	for _, mark := range marks {
		if name := labels[mark.key] + annotations[mark.key]; name != "" {
			out.tools = append(out.tools, fmt.Sprintf("%s %q", mark.tool, name))
		}
	}
	if controller := metav1.GetControllerOf(live); controller != nil {
		out.tools = append(out.tools, fmt.Sprintf("%s %q, which controls it", controller.Kind, controller.Name))
	}
	for _, entry := range live.GetManagedFields() {
		if !fieldset.IsOwn(entry) && entry.Subresource == "" && !slices.Contains(out.managers, entry.Manager) {
			out.managers = append(out.managers, entry.Manager)
		}
	}
	return out
}

// tellAdopted says of an object that was taken over whose it was: nothing is taken from another tool in silence.
func (t *target) tellAdopted(o *object, a *adoption) {
	switch {
	case a == nil:
	case len(a.tools) > 0:
		t.event(fleet.EventWarning, "Adopted", o, fmt.Sprintf("was taken over although it belongs to %s: have that let go of it, or both will change it", strings.Join(a.tools, " and ")))
	case len(a.managers) > 0:
		t.event(fleet.EventNormal, "Adopted", o, fmt.Sprintf("was taken over as it was found; fields of it were set by %q", a.managers))
	default:
		t.event(fleet.EventNormal, "Adopted", o, "was taken over as it was found")
	}
}
