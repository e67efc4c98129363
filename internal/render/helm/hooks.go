package helm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// argoWave is the other annotation for waves, see package manifest.
const argoWave = "argocd.argoproj.io/sync-wave"

// hookObject is an object that Helm would apply as a hook.
type hookObject struct {
	object manifest.Object
	weight int
}

// hookPlan assigns hooks to waves. Helm applies hooks by weight, before or after everything else; waves have
// the same effect.
type hookPlan struct {
	objects []manifest.Object // that are not hooks
	before  []hookObject
	after   []hookObject
	mapped  map[release.HookEvent][]string // names of objects, by hook event
	left    map[release.HookEvent][]string // names of omitted objects
}

func (p *hookPlan) add(h *release.Hook, objects []manifest.Object) {
	if p.mapped == nil {
		p.mapped, p.left = map[release.HookEvent][]string{}, map[release.HookEvent][]string{}
	}
	before := slices.Contains(h.Events, release.HookPreInstall) || slices.Contains(h.Events, release.HookPreUpgrade)
	after := slices.Contains(h.Events, release.HookPostInstall) || slices.Contains(h.Events, release.HookPostUpgrade)
	for _, o := range objects {
		switch {
		case before:
			p.before = append(p.before, hookObject{o, h.Weight})
		case after:
			p.after = append(p.after, hookObject{o, h.Weight})
		}
		for _, event := range h.Events {
			switch {
			case before || after:
				if isDeployed(event) {
					p.mapped[event] = append(p.mapped[event], o.Ref.Kind+" "+o.Ref.Name)
				}
			default:
				p.left[event] = append(p.left[event], o.Ref.Kind+" "+o.Ref.Name)
			}
		}
	}
}

func isDeployed(event release.HookEvent) bool {
	switch event {
	case release.HookPreInstall, release.HookPreUpgrade, release.HookPostInstall, release.HookPostUpgrade:
		return true
	}
	return false
}

// dropTwins omits hooks that also exist as another object: Helm applies and deletes hooks separately, so charts
// may define an object twice, but a deployment has each object once.
func (p *hookPlan) dropTwins(b *builder) {
	namespace := cmp.Or(b.req.Namespace, DefaultNamespace)
	seen := map[fleet.ObjectRef]bool{}
	isTwin := func(o manifest.Object) bool {
		ref := o.Ref
		ref.Version, ref.Namespace = "", cmp.Or(ref.Namespace, namespace)
		twin := seen[ref]
		seen[ref] = true
		return twin
	}
	for _, o := range p.objects {
		isTwin(o)
	}
	drop := func(h hookObject) bool {
		twin := isTwin(h.object)
		if twin {
			b.note("the hook %s %s of %s is left out: the chart also defines the same object elsewhere", h.object.Ref.Kind, h.object.Ref.Name, h.object.Source)
		}
		return twin
	}
	p.before = slices.DeleteFunc(p.before, drop)
	p.after = slices.DeleteFunc(p.after, drop)
}

// arrange returns all objects, with waves where needed, and adds notes.
func (p *hookPlan) arrange(b *builder) []manifest.Object {
	p.dropTwins(b)
	for _, event := range slices.Sorted(maps.Keys(p.mapped)) {
		when := "before"
		if event == release.HookPostInstall || event == release.HookPostUpgrade {
			when = "after"
		}
		b.note("hooks of %s are applied as a wave %s everything else, each time that they change: %s", event, when, some(p.mapped[event]))
	}
	for _, event := range slices.Sorted(maps.Keys(p.left)) {
		b.note("hooks of %s are left out: %s", event, some(p.left[event]))
	}
	lowest, highest := p.ownWaves()
	first := placeHooks(p.before, func(groups, i int) int { return lowest - groups + i })
	placeHooks(p.after, func(_, i int) int { return highest + 1 + i })
	if len(p.before) > 0 {
		// Helm applies the folder crds before any hook, and a hook needs its namespace.
		for _, o := range p.objects {
			if o.Ref.Kind == "Namespace" && o.Ref.Group == "" || o.Ref.Kind == "CustomResourceDefinition" {
				setWave(o, first-1)
			}
		}
	}
	out := p.objects
	for _, h := range slices.Concat(p.before, p.after) {
		out = append(out, h.object)
	}
	return out
}

// placeHooks assigns a wave to each weight and returns the lowest one.
func placeHooks(hooks []hookObject, wave func(groups, i int) int) (first int) {
	var weights []int
	for _, h := range hooks {
		weights = append(weights, h.weight)
	}
	slices.Sort(weights)
	weights = slices.Compact(weights)
	for _, h := range hooks {
		setWave(h.object, wave(len(weights), slices.Index(weights, h.weight)))
	}
	return wave(len(weights), 0)
}

// ownWaves returns the lowest and the highest wave of the objects; lowest at most 0, highest at least 0.
func (p *hookPlan) ownWaves() (lowest, highest int) {
	for _, o := range p.objects {
		if text, ok := waveOf(o); ok {
			// An invalid number is refused later.
			if wave, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32); err == nil {
				lowest, highest = min(lowest, int(wave)), max(highest, int(wave))
			}
		}
	}
	return lowest, highest
}

func waveOf(o manifest.Object) (string, bool) {
	metadata, _ := o.Content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for _, name := range []string{manifest.AnnotationWave, argoWave} {
		if text, ok := annotations[name].(string); ok {
			return text, true
		}
	}
	return "", false
}

// setWave assigns a wave to an object unless it has one.
func setWave(o manifest.Object, wave int) {
	if _, ok := waveOf(o); ok {
		return
	}
	metadata, _ := o.Content["metadata"].(map[string]any)
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[manifest.AnnotationWave] = strconv.Itoa(wave)
}

// noteUnknownHooks adds a note for objects that Helm drops silently: those with an unknown hook.
func (b *builder) noteUnknownHooks(rendered map[string]string, known []*release.Hook) {
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if !strings.Contains(rendered[name], release.HookAnnotation) {
			continue
		}
		for _, text := range releaseutil.SplitManifests(rendered[name]) {
			var head releaseutil.SimpleHead
			if yaml.Unmarshal([]byte(text), &head) != nil || head.Metadata == nil || head.Metadata.Annotations[release.HookAnnotation] == "" {
				continue
			}
			if !slices.ContainsFunc(known, func(h *release.Hook) bool { return h.Path == name && h.Manifest == text }) {
				b.note("hooks of the unknown type %q are left out", head.Metadata.Annotations[release.HookAnnotation])
			}
		}
	}
}

// some lists a few names.
func some(names []string) string {
	const most = 5
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
