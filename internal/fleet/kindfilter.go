package fleet

import (
	"regexp"
	"slices"
	"strings"
)

// MaxKindRules is the maximum number of rules in each list of a KindFilter. The filter travels with each connection of its
// agent and is stored with each target.
const MaxKindRules = 64

// maxKindRule is the maximum length of a rule, and about the length of the longest kind with the longest group.
const maxKindRule = 253

// kindRule matches a rule of a KindFilter. Unlike in Limits, the group may be *.
var kindRule = regexp.MustCompile(`^(\*|[A-Z][A-Za-z0-9]*)(\.(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?))?$`)

// builtinExclusions are kinds that an agent does not manage unless its filter includes them:
//
//   - The cluster writes them about itself: events and metrics.
//   - Controllers and kubelets create and change them all the time: endpoints, leases, nodes, revisions. Managing them would
//     conflict with their writers.
//   - They are requests that are answered and not stored: reviews of tokens and permissions, and bindings.
var builtinExclusions = []string{
	"*.events.k8s.io", "Event", "*.metrics.k8s.io", "*.custom.metrics.k8s.io", "*.external.metrics.k8s.io", "ComponentStatus",
	"Endpoints", "EndpointSlice.discovery.k8s.io", "*.coordination.k8s.io", "Node", "CSINode.storage.k8s.io", "ControllerRevision.apps",
	"*.authentication.k8s.io", "*.authorization.k8s.io", "Binding",
}

// BuiltinKindExclusions returns the kinds that an agent does not manage unless its filter includes them.
func BuiltinKindExclusions() []string { return slices.Clone(builtinExclusions) }

// KindFilter selects the kinds of objects that an agent manages. The order of the rules in a list has no meaning. The lists
// are evaluated in this order, and the first that matches decides:
//
//	Include              allowed, even if it is a built-in exclusion or in Exclude
//	built-in exclusions  refused, see BuiltinKindExclusions
//	Exclude              refused
//	nothing matches      allowed
//
// To allow only some kinds, exclude "*" and include these. The zero value allows everything except the built-in exclusions.
//
// A rule is "ConfigMap" (of the core group), "Deployment.apps", "Ingress.*" (of every group), "*.example.com" (every kind of
// exactly that group), or "*".
type KindFilter struct {
	Include, Exclude []string // sorted, without duplicates
}

// NewKindFilter returns a filter in its stored form.
func NewKindFilter(include, exclude []string) KindFilter {
	sorted := func(rules []string) []string { return slices.Compact(slices.Sorted(slices.Values(rules))) }
	return KindFilter{Include: sorted(include), Exclude: sorted(exclude)}
}

// IsZero reports whether the filter has no rules.
func (f KindFilter) IsZero() bool { return len(f.Include) == 0 && len(f.Exclude) == 0 }

// Equal reports whether two filters in their stored form have the same rules.
func (f KindFilter) Equal(o KindFilter) bool {
	return slices.Equal(f.Include, o.Include) && slices.Equal(f.Exclude, o.Exclude)
}

// Check returns an InvalidError for the first rule that is not valid, or for a list that is too long.
func (f KindFilter) Check(field string) error {
	for _, list := range []struct {
		name  string
		rules []string
	}{{field + ".include", f.Include}, {field + ".exclude", f.Exclude}} {
		if len(list.rules) > MaxKindRules {
			return Invalid(list.name, "%d rules are more than %d: use * to match several kinds", len(list.rules), MaxKindRules)
		}
		for _, rule := range list.rules {
			if len(rule) > maxKindRule || !kindRule.MatchString(rule) {
				return Invalid(list.name, `%.300q is not a kind: write "ConfigMap", "Deployment.apps", "Ingress.*", "*.example.com" or "*"`, rule)
			}
		}
	}
	return nil
}

// Refusal returns why the filter refuses an object, with the rule, or "".
func (f KindFilter) Refusal(ref ObjectRef) string {
	if matchingRule(f.Include, ref) != "" {
		return ""
	}
	if rule := matchingRule(builtinExclusions, ref); rule != "" {
		return "the kind filter of the agent excludes it by the built-in rule " + rule
	}
	if rule := matchingRule(f.Exclude, ref); rule != "" {
		return "the kind filter of the agent excludes it by the rule " + rule
	}
	return ""
}

// ExclusionOf returns the rule of Exclude that refuses an object which Include does not allow, or "". It does not regard the
// built-in exclusions.
func (f KindFilter) ExclusionOf(ref ObjectRef) string {
	if matchingRule(f.Include, ref) != "" {
		return ""
	}
	return matchingRule(f.Exclude, ref)
}

// matchingRule returns the first rule that matches the kind of an object, or "".
func matchingRule(rules []string, ref ObjectRef) string {
	for _, rule := range rules {
		if kindMatches(rule, ref) {
			return rule
		}
	}
	return ""
}

// kindMatches reports whether a rule of KindFilter or of Limits matches the kind of an object.
func kindMatches(rule string, ref ObjectRef) bool {
	if rule == "*" {
		return true
	}
	kind, group, _ := strings.Cut(rule, ".")
	return (group == "*" || group == ref.Group) && (kind == "*" || kind == ref.Kind)
}

// ParseObjectKind returns the kind and group of an object from its name, as from ObjectRef.String.
func ParseObjectKind(object string) ObjectRef {
	name, _, _ := strings.Cut(object, " ")
	kind, group, _ := strings.Cut(name, ".")
	return ObjectRef{Group: group, Kind: kind}
}
