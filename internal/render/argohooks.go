package render

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kedge-dev/kedge/internal/manifest"
)

// argoHook is the annotation that makes Argo CD apply an object in another phase.
const argoHook = "argocd.argoproj.io/hook"

// hookPhase is the phase in which Kedge applies an object with argoHook.
type hookPhase int

const (
	hookDuring hookPhase = iota // with the other objects
	hookBefore                  // in waves before all others
	hookAfter                   // in waves after all others
	hookNever                   // omitted: Argo CD applies it when a sync fails or on deletion, or never
)

// argoPhases are the hooks of Argo CD.
var argoPhases = map[string]hookPhase{
	"PreSync": hookBefore, "Sync": hookDuring, "PostSync": hookAfter,
	"SyncFail": hookNever, "Skip": hookNever, "PreDelete": hookNever, "PostDelete": hookNever,
}

// placeHooks handles hooks of Argo CD like those of Helm: PreSync and PostSync become waves, and hooks that
// Argo CD does not apply in a successful sync are omitted. Each is noted.
func (r *Result) placeHooks(objects []manifest.Object) []manifest.Object {
	names := map[string][]string{}
	for _, o := range objects {
		if hook := annotationOf(o, argoHook); hook != "" {
			names[hook] = append(names[hook], nameOf(o))
		}
	}
	if len(names) == 0 {
		return objects
	}
	for _, hook := range slices.Sorted(maps.Keys(names)) {
		r.note("Argo CD hooks of %s %s: %s", hook, phaseWords[phaseOf(hook)], some(names[hook]))
	}
	kept := slices.DeleteFunc(slices.Clone(objects), func(o manifest.Object) bool { return phaseOf(annotationOf(o, argoHook)) == hookNever })
	setHookWaves(kept)
	return kept
}

// phaseWords describe how hooks are handled.
var phaseWords = map[hookPhase]string{
	hookBefore: "are applied as a wave before everything else, each time that they change, and are not deleted afterwards",
	hookAfter:  "are applied as a wave after everything else, each time that they change, and are not deleted afterwards",
	hookDuring: "are applied like any other object, each time that they change, and are not deleted afterwards",
	hookNever:  "are left out",
}

// phaseOf returns the first phase of an annotation: an object is applied once.
func phaseOf(hook string) hookPhase {
	phase, known := hookNever, false
	for name := range strings.SplitSeq(hook, ",") {
		p, ok := argoPhases[strings.TrimSpace(name)]
		if ok && (!known || p == hookBefore || phase == hookNever) {
			phase, known = p, true
		}
	}
	if !known {
		return hookDuring // Argo CD treats an object with an unknown hook as an ordinary one
	}
	return phase
}

// setHookWaves assigns hooks to waves before or after those of all other objects, in the order of their own
// waves. It changes the list but not the objects, which may be shared.
func setHookWaves(objects []manifest.Object) {
	phases := make([]hookPhase, len(objects))
	var before, after []int // waves
	lowest, highest := 0, 0
	for i, o := range objects {
		if annotationOf(o, manifest.AnnotationWave) == "" {
			phases[i] = phaseOf(annotationOf(o, argoHook))
		}
		switch wave := ownWave(o); phases[i] {
		case hookBefore:
			before = append(before, wave)
		case hookAfter:
			after = append(after, wave)
		default:
			lowest, highest = min(lowest, wave), max(highest, wave)
		}
	}
	before, after = distinct(before), distinct(after)
	first := lowest - len(before)
	for i, o := range objects {
		switch {
		case phases[i] == hookBefore:
			objects[i] = withWave(o, first+slices.Index(before, ownWave(o)))
		case phases[i] == hookAfter:
			objects[i] = withWave(o, highest+1+slices.Index(after, ownWave(o)))
		case len(before) > 0 && (o.Ref.Kind == "Namespace" && o.Ref.Group == "" || o.Ref.Kind == "CustomResourceDefinition"):
			objects[i] = withWave(o, first-1) // a hook needs its namespace
		}
	}
}

func distinct(waves []int) []int {
	slices.Sort(waves)
	return slices.Compact(waves)
}

// ownWave returns the wave of an object; default 0. An invalid number is refused later.
func ownWave(o manifest.Object) int {
	text := annotationOf(o, manifest.AnnotationWave)
	if text == "" {
		text = annotationOf(o, argoWave)
	}
	wave, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0
	}
	return int(wave)
}

// argoWave is the wave annotation of Argo CD; Kedge's takes precedence.
const argoWave = "argocd.argoproj.io/sync-wave"

func annotationOf(o manifest.Object, name string) string {
	metadata, _ := o.Content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, _ := annotations[name].(string)
	return text
}

// withWave returns a copy of an object in a wave.
func withWave(o manifest.Object, wave int) manifest.Object {
	metadata, _ := o.Content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	o.Content, metadata, annotations = maps.Clone(o.Content), maps.Clone(metadata), maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[manifest.AnnotationWave] = strconv.Itoa(wave)
	metadata["annotations"] = annotations
	o.Content["metadata"] = metadata
	return o
}
