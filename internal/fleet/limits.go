package fleet

import (
	"regexp"
	"slices"
	"strings"
)

// MaxLimits is the maximum length of each list of Limits.
const MaxLimits = 256

// kindPattern matches a kind, or *, with its group unless it is the core group.
var kindPattern = regexp.MustCompile(`^(\*|[A-Z][A-Za-z0-9]*)(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)

// Limits restricts the objects that a deployment may touch. Empty fields mean no restriction.
type Limits struct {
	Namespaces []string // sorted; if set, cluster-scoped kinds are not allowed
	// Kinds are "Deployment.apps", "ConfigMap" (of the core group), "*.example.com" (every kind of exactly that
	// group), or "*"; sorted.
	Kinds []string
}

// None reports whether nothing is limited.
func (l Limits) None() bool { return len(l.Namespaces) == 0 && len(l.Kinds) == 0 }

// Check returns an InvalidError unless every namespace and kind is well-formed and the lists are
// within MaxLimits.
func (l Limits) Check(field string) error {
	if n := max(len(l.Namespaces), len(l.Kinds)); n > MaxLimits {
		return Invalid(field, "%d entries are more than %d", n, MaxLimits)
	}
	for _, namespace := range l.Namespaces {
		if err := CheckName(field+".namespaces", namespace); err != nil {
			return err
		}
	}
	for _, kind := range l.Kinds {
		if len(kind) > 253 || !kindPattern.MatchString(kind) {
			return Invalid(field+".kinds", `%q is not a kind: write "ConfigMap", "Deployment.apps", "*.example.com" or "*"`, kind)
		}
	}
	return nil
}

// Allows reports whether an object is within the limits. The namespace of ref is the one that the object gets;
// namespaced tells whether its kind has namespaces.
func (l Limits) Allows(ref ObjectRef, namespaced bool) bool {
	return l.allowsNamespace(ref, namespaced) && l.allowsKind(ref)
}

func (l Limits) allowsNamespace(ref ObjectRef, namespaced bool) bool {
	return len(l.Namespaces) == 0 || namespaced && slices.Contains(l.Namespaces, ref.Namespace)
}

func (l Limits) allowsKind(ref ObjectRef) bool {
	return len(l.Kinds) == 0 || matchingRule(l.Kinds, ref) != ""
}

// Refusal returns the message why Allows refuses an object, or "".
func (l Limits) Refusal(ref ObjectRef, namespaced bool) string {
	switch {
	case !l.allowsKind(ref):
		return "kind is beyond the limits of the grant: it allows " + strings.Join(l.Kinds, ", ")
	case l.allowsNamespace(ref, namespaced):
		return ""
	case !namespaced:
		return "kind is cluster-scoped, and the grant is limited to the namespaces " + strings.Join(l.Namespaces, ", ")
	default:
		return "namespace " + ref.Namespace + " is beyond the limits of the grant: it allows " + strings.Join(l.Namespaces, ", ")
	}
}
