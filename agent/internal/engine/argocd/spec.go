package argocd

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// specOf returns the spec of the Application of a desired state that refuse accepts.
func specOf(d engine.Desired, project, server string) map[string]any {
	spec := map[string]any{
		"project":     project,
		"source":      sourceOf(d),
		"destination": destination(server, d.State.Namespace),
		"syncPolicy":  syncPolicy(d.State.Policy),
	}
	if rules := ignoreDifferences(d.State.Policy.Ignore); len(rules) > 0 {
		spec["ignoreDifferences"] = rules
	}
	return spec
}

// destination returns where a namespace is, in Applications and AppProjects alike.
func destination(server, namespace string) map[string]any {
	return map[string]any{"server": server, "namespace": namespace}
}

func sourceOf(d engine.Desired) map[string]any {
	source := map[string]any{"repoURL": d.Source.RepoURL, "path": d.Source.Path, "targetRevision": d.State.Commit}
	switch d.Source.Kind {
	case fleet.SourceHelm:
		source["helm"] = helmOf(d.Source.Helm)
	case fleet.SourcePlain:
		// Without a setting of this kind, Argo CD would detect a kustomization or a chart, and read no folders below the path.
		source["directory"] = map[string]any{"recurse": true, "exclude": "*.jsonnet"}
	}
	return source
}

func helmOf(h fleet.Helm) map[string]any {
	out := map[string]any{"releaseName": h.ReleaseName}
	if len(h.ValuesFiles) > 0 {
		out["valueFiles"] = anyList(h.ValuesFiles)
	}
	if h.Values != "" {
		out["values"] = h.Values
	}
	if h.SkipCRDs {
		out["skipCrds"] = true
	}
	var parameters []any
	for _, set := range h.Set {
		name, value, _ := strings.Cut(set.Expression, "=")
		parameter := map[string]any{"name": name, "value": value}
		if set.Type == fleet.HelmSetString {
			parameter["forceString"] = true
		}
		parameters = append(parameters, parameter)
	}
	if parameters != nil {
		out["parameters"] = parameters
	}
	return out
}

// settable reports whether a parameter of Argo CD can express a setting. Argo CD escapes the value of a parameter, so that
// an expression with several values or with escapes would mean something else.
func settable(set fleet.HelmSet) bool {
	name, value, ok := strings.Cut(set.Expression, "=")
	return ok && name != "" && set.Type != fleet.HelmSetJSON && !strings.ContainsAny(value, `,{}\`) && !strings.ContainsAny(name, `,{}\`)
}

// syncPolicy lets Argo CD sync and correct drift by itself, also while the agent is away. It never prunes by itself.
func syncPolicy(p fleet.Policy) map[string]any {
	out := map[string]any{"syncOptions": anyList(syncOptions(p))}
	if !p.DryRun {
		automated := map[string]any{"prune": false}
		if p.Drift.OrDefault() == fleet.DriftCorrect {
			automated["selfHeal"] = true
		}
		out["automated"] = automated
	}
	return out
}

// failOnShared keeps Argo CD from taking objects over from another Application.
const failOnShared = "FailOnSharedResource=true"

func syncOptions(p fleet.Policy) []string {
	options := []string{failOnShared, propagation(p)}
	if p.CreateNamespace {
		options = append(options, "CreateNamespace=true")
	}
	if len(p.Ignore) > 0 {
		options = append(options, "RespectIgnoreDifferences=true")
	}
	return options
}

func propagation(p fleet.Policy) string {
	return "PrunePropagationPolicy=" + strings.ToLower(string(p.Propagation.OrDefault()))
}

// ignoreDifferences translates field rules, "KIND[/NAME]:/json/pointer". Rules that Argo CD cannot express are refused
// before.
func ignoreDifferences(rules []string) []any {
	var out []any
	for _, rule := range rules {
		object, pointer, _ := strings.Cut(rule, ":")
		kind, name, _ := strings.Cut(object, "/")
		item := kindItem(kind)
		if name != "" {
			item["name"] = name
		}
		item["jsonPointers"] = []any{pointer}
		out = append(out, item)
	}
	return out
}

// kindItem translates a kind pattern of fleet.Limits.
func kindItem(pattern string) map[string]any {
	if pattern == "*" {
		return map[string]any{"group": "*", "kind": "*"}
	}
	kind, group, _ := strings.Cut(pattern, ".")
	return map[string]any{"group": group, "kind": kind}
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, text := range list {
		out[i] = text
	}
	return out
}

// sameSpec compares specs without what Argo CD normalizes.
func sameSpec(a, b map[string]any) bool {
	return reflect.DeepEqual(without(a), without(b)) && automated(a) == automated(b)
}

// automated reports whether Argo CD syncs by itself. An empty setting differs from an absent one.
func automated(spec map[string]any) bool {
	_, found, _ := unstructured.NestedMap(spec, "syncPolicy", "automated")
	return found
}

// unsupported returns the settings of a desired state that Argo CD cannot apply.
func unsupported(d engine.Desired) fleet.Cause {
	p := d.State.Policy
	policy := func(setting, why string) fleet.Cause {
		return fleet.Cause{Reason: fleet.ReasonPolicyUnsupported, Message: fmt.Sprintf("Argo CD cannot apply policy.%s: %s", setting, why)}
	}
	switch {
	case d.Source == nil:
		return fleet.Cause{Reason: fleet.ReasonBundleUnsupported,
			Message: "this agent has Argo CD apply, and the server sent rendered objects: enroll it with the namespace of Argo CD, or install it without"}
	case len(d.Source.Unsupported) > 0:
		return fleet.Cause{Reason: fleet.ReasonSourceUnsupported, Message: "Argo CD cannot apply " + strings.Join(d.Source.Unsupported, ", ")}
	case len(jsonText(d.Source.Kept))+len(jsonText(d.Source.Namespaces)) > annotationLimit/2:
		return fleet.Cause{Reason: fleet.ReasonSourceUnsupported, Message: "the source has too many objects that annotations keep, or too many namespaces, for one Application: split the deployment"}
	case p.ServiceAccount != "":
		return policy("serviceAccount", "it applies with its own permissions")
	case p.Replace:
		return policy("replace", "it cannot replace only the objects whose immutable fields change")
	case d.State.Namespace == "":
		return fleet.Cause{Reason: fleet.ReasonNamespaceRequired, Message: "an Application needs the namespace of the deployment"}
	}
	for _, set := range d.Source.Helm.Set {
		if !settable(set) {
			return fleet.Cause{Reason: fleet.ReasonSourceUnsupported, Message: fmt.Sprintf("Argo CD cannot set the chart value %q: write it in source.helm.values", set.Expression)}
		}
	}
	for _, rule := range p.Ignore {
		object, pointer, _ := strings.Cut(rule, ":")
		_, name, _ := strings.Cut(object, "/")
		if strings.Contains(pointer, "*") || strings.Contains(name, "*") {
			return policy("ignore", fmt.Sprintf("the rule %q has a * in its path or in the name of the object", rule))
		}
	}
	return fleet.Cause{}
}
