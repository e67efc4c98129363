package builtin

import (
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// keepMark is an annotation by which an object asks not to be deleted.
type keepMark struct {
	annotation string
	// says reports whether the value asks for that.
	says func(value string) bool
	// whole: it asks for that only when the whole deployment is deleted.
	whole bool
}

// keepMarks are Kedge's own annotation and those of the tools that people bring manifests along from. They are in
// the order in which they are looked for: those that keep an object in every case come first.
var keepMarks = []keepMark{
	{annotation: AnnotationPrune, says: is("disabled")},
	{annotation: "helm.sh/resource-policy", says: is("keep")},
	{annotation: "kustomize.toolkit.fluxcd.io/prune", says: is("disabled")},
	{annotation: "argocd.argoproj.io/sync-options", says: lists("Prune=false")},
	{annotation: "argocd.argoproj.io/sync-options", says: lists("Delete=false"), whole: true},
}

// is compares as Helm and Flux do: without regard to case and surrounding space.
func is(want string) func(string) bool {
	return func(value string) bool { return strings.EqualFold(strings.TrimSpace(value), want) }
}

// lists looks for one item of a list that is parted by commas.
func lists(want string) func(string) bool {
	return func(value string) bool { return slices.ContainsFunc(strings.Split(value, ","), is(want)) }
}

// keepMarkOf returns the annotation, as "name: value", by which an object is kept; "" when there is none. whole
// says that the whole deployment is deleted, and not just what has left its source.
func keepMarkOf(annotations map[string]string, whole bool) string {
	for _, mark := range keepMarks {
		if value, ok := annotations[mark.annotation]; ok && mark.says(value) && (whole || !mark.whole) {
			return mark.annotation + ": " + value
		}
	}
	return ""
}

// keepMarkIn is keepMarkOf a manifest, in every case. It looks up what it needs: there may be many manifests.
func keepMarkIn(m manifest.Object) string {
	metadata, _ := m.Content["metadata"].(map[string]any)
	written, _ := metadata["annotations"].(map[string]any)
	if len(written) == 0 {
		return ""
	}
	annotations := map[string]string{}
	for _, mark := range keepMarks {
		if value, ok := written[mark.annotation].(string); ok {
			annotations[mark.annotation] = value
		}
	}
	return keepMarkOf(annotations, true)
}

// keptByLive says why a live object with these annotations is kept, or "".
func keptByLive(annotations map[string]string, whole bool) string {
	if mark := keepMarkOf(annotations, whole); mark != "" {
		return "it is annotated " + mark
	}
	return ""
}

// keptByManifest says why an object is kept whose last applied manifest had this keepMarkOf, or "". Somebody may
// have taken the annotation off the live object since.
func keptByManifest(mark string, whole bool) string {
	name, value, _ := strings.Cut(mark, ": ")
	if keepMarkOf(map[string]string{name: value}, whole) == "" {
		return ""
	}
	return "its last applied manifest is annotated " + mark
}

// keepMarked keeps an object that has left the source, if its last applied manifest asks for that.
func (t *target) keepMarked(o *object) {
	if why := keptByManifest(o.keepMark, t.desired.State.Tombstone); why != "" {
		o.keep, o.held, o.kept = true, why, why
	}
}
