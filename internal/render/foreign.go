package render

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// controllerKinds are objects that configure other GitOps tools, by group; no kinds means all.
var controllerKinds = map[string][]string{
	"kustomize.toolkit.fluxcd.io": nil,
	"helm.toolkit.fluxcd.io":      nil,
	"argoproj.io":                 {"Application", "ApplicationSet", "AppProject"},
}

// kustomizeGroup is the group of Kustomize configuration, which no cluster serves.
const kustomizeGroup = "kustomize.config.k8s.io"

// checkForeign handles objects that other tools would treat specially. It returns the objects to deploy.
func (r *Result) checkForeign(objects []manifest.Object) ([]manifest.Object, error) {
	var controllers, embedded []string
	for _, o := range objects {
		kinds, known := controllerKinds[o.Ref.Group]
		switch {
		case o.Ref.Group == kustomizeGroup:
			return nil, &manifest.Error{Source: o.Source, Problem: fmt.Sprintf("%s is a Kustomize file, not an object for a cluster: "+
				"deploy its folder with a separate deployment, or exclude it with globs", o.Ref.Kind)}
		case isEncrypted(o):
			return nil, &manifest.Error{Source: o.Source, Problem: fmt.Sprintf("%s is encrypted with SOPS, which is not supported yet: "+
				"the cluster would get the encrypted text. Exclude the file with globs and create the Secret by other means, "+
				"such as External Secrets or Sealed Secrets", o.Ref)}
		case known && (len(kinds) == 0 || slices.Contains(kinds, o.Ref.Kind)):
			controllers = append(controllers, nameOf(o))
		case holdsEncrypted(o):
			embedded = append(embedded, nameOf(o))
		}
	}
	if len(controllers) > 0 {
		r.note("objects of Flux or Argo CD are applied like any other: Kedge does not act on them, but their controllers do if the cluster has them; "+
			"create deployments for their sources: %s", some(controllers))
	}
	if len(embedded) > 0 {
		r.note("a value contains text that is encrypted with SOPS, and it is applied unchanged: %s", some(embedded))
	}
	return r.placeHooks(objects), nil
}

// note adds a note without changing the list, which may be shared with other results.
func (r *Result) note(format string, args ...any) {
	r.Notes = append(slices.Clip(r.Notes), fmt.Sprintf(format, args...))
}

// encryptedPrefix is the prefix of each value that SOPS encrypted.
const encryptedPrefix = "ENC[AES256_GCM,"

// isEncrypted reports whether an object is encrypted with SOPS. Kinds of other groups may have a controller
// that decrypts them.
func isEncrypted(o manifest.Object) bool {
	if strings.Contains(o.Ref.Group, ".") && !strings.HasSuffix(o.Ref.Group, ".k8s.io") {
		return false
	}
	if metadata, ok := o.Content["sops"].(map[string]any); ok && metadata["mac"] != nil {
		return true
	}
	return hasValue(o, func(text string) bool { return strings.HasPrefix(text, encryptedPrefix) })
}

// holdsEncrypted reports whether a Secret contains a complete file that SOPS encrypted, as from a Kustomize
// generator.
func holdsEncrypted(o manifest.Object) bool {
	return hasValue(o, func(text string) bool {
		if strings.Contains(text, encryptedPrefix) {
			return true
		}
		data, err := base64.StdEncoding.DecodeString(text)
		return err == nil && strings.Contains(string(data), encryptedPrefix)
	})
}

// hasValue reports whether a Secret has such a value.
func hasValue(o manifest.Object, is func(string) bool) bool {
	if o.Ref.Group != "" || o.Ref.Kind != "Secret" {
		return false
	}
	for _, field := range []string{"data", "stringData"} {
		values, _ := o.Content[field].(map[string]any)
		for _, value := range values {
			if text, ok := value.(string); ok && is(text) {
				return true
			}
		}
	}
	return false
}

// nameOf returns the name of an object in a note.
func nameOf(o manifest.Object) string {
	return (fleet.ObjectRef{Group: o.Ref.Group, Kind: o.Ref.Kind, Namespace: o.Ref.Namespace, Name: o.Ref.Name}).String()
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
