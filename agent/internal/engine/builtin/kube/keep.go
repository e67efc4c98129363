package kube

import (
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// keepAnnotation is an annotation that keeps an object from being deleted.
type keepAnnotation struct {
	annotation string
	// says reports whether the value keeps the object.
	says func(value string) bool
	// whole: it keeps the object only when the whole deployment is deleted.
	whole bool
}

// keepAnnotations are the annotation of Kedge and those of other tools. They are tried in this order: those that keep
// an object in every case come first.
var keepAnnotations = []keepAnnotation{
	{annotation: AnnotationPrune, says: is("disabled")},
	{annotation: "helm.sh/resource-policy", says: is("keep")},
	{annotation: "kustomize.toolkit.fluxcd.io/prune", says: is("disabled")},
	{annotation: "argocd.argoproj.io/sync-options", says: lists("Prune=false")},
	{annotation: "argocd.argoproj.io/sync-options", says: lists("Delete=false"), whole: true},
}

// is compares as Helm and Flux do: it ignores case and surrounding space.
func is(want string) func(string) bool {
	return func(value string) bool { return strings.EqualFold(strings.TrimSpace(value), want) }
}

// lists finds one item of a comma-separated list.
func lists(want string) func(string) bool {
	return func(value string) bool { return slices.ContainsFunc(strings.Split(value, ","), is(want)) }
}

// KeepAnnotation returns the annotation that keeps an object, as "name: value"; "" when there is none. whole
// says that the whole deployment is deleted, not only objects that left its source.
func KeepAnnotation(annotations map[string]string, whole bool) string {
	for _, mark := range keepAnnotations {
		if value, ok := annotations[mark.annotation]; ok && mark.says(value) && (whole || !mark.whole) {
			return mark.annotation + ": " + value
		}
	}
	return ""
}

// KeepAnnotationIn is KeepAnnotation for a manifest, with whole set. It copies only the annotations that it needs, since
// there may be many manifests.
func KeepAnnotationIn(m manifest.Object) string {
	metadata, _ := m.Content["metadata"].(map[string]any)
	written, _ := metadata["annotations"].(map[string]any)
	if len(written) == 0 {
		return ""
	}
	annotations := map[string]string{}
	for _, mark := range keepAnnotations {
		if value, ok := written[mark.annotation].(string); ok {
			annotations[mark.annotation] = value
		}
	}
	return KeepAnnotation(annotations, true)
}

// KeptByLive returns why a live object with these annotations is kept; zero when they do not keep it.
func KeptByLive(annotations map[string]string, whole bool) fleet.Cause {
	if mark := KeepAnnotation(annotations, whole); mark != "" {
		return fleet.Cause{Reason: fleet.ReasonPruneDisabled, Message: "it is annotated " + mark}
	}
	return fleet.Cause{}
}

// KeptByManifest returns why an object is kept whose last applied manifest had this KeepAnnotation; zero when that does not
// keep it. Somebody may have removed the annotation from the live object since.
func KeptByManifest(mark string, whole bool) fleet.Cause {
	name, value, _ := strings.Cut(mark, ": ")
	if KeepAnnotation(map[string]string{name: value}, whole) == "" {
		return fleet.Cause{}
	}
	return fleet.Cause{Reason: fleet.ReasonPruneDisabled, Message: "its last applied manifest is annotated " + mark}
}
