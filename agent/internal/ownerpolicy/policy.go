package ownerpolicy

import (
	"fmt"
	"path"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxBytes bounds the file.
const maxBytes = 128 << 10

// Policy is the policy of a cluster's owner. The zero value allows everything except the built-in exclusions.
type Policy struct {
	Namespaces      Patterns        `json:"namespaces"`
	ClusterScoped   *bool           `json:"clusterScoped"`
	Kinds           Kinds           `json:"kinds"`
	ServiceAccounts ServiceAccounts `json:"serviceAccounts"`
	Deletions       *bool           `json:"deletions"`
}

// Patterns are patterns of names, in which * matches any characters.
type Patterns struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// Kinds are patterns as in fleet.Limits.
type Kinds struct {
	Include []string `json:"include"`
	Exclude []string `json:"exclude"`
}

// ServiceAccounts are patterns of the ServiceAccounts ("namespace/name") that a deployment may be applied as.
type ServiceAccounts struct {
	Require bool     `json:"require"`
	Allow   []string `json:"allow"`
}

// builtinExclusions are kinds that the cluster creates by itself. Managing them would conflict with the cluster.
var builtinExclusions = fleet.Limits{Kinds: []string{
	"*.events.k8s.io", "*.metrics.k8s.io", "Endpoints", "EndpointSlice.discovery.k8s.io", "Event", "Lease.coordination.k8s.io", "Node",
}}

// Parse parses a policy. Unknown fields are errors, so that a typing error does not allow more than intended.
func Parse(text []byte) (Policy, error) {
	var p Policy
	if len(text) > maxBytes {
		return Policy{}, fmt.Errorf("the file has %d bytes, more than %d", len(text), maxBytes)
	}
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		return Policy{}, err
	}
	for field, patterns := range map[string][]string{
		"namespaces.allow": p.Namespaces.Allow, "namespaces.deny": p.Namespaces.Deny, "serviceAccounts.allow": p.ServiceAccounts.Allow,
	} {
		for _, pattern := range patterns {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return Policy{}, fmt.Errorf("%s: %q is not a valid pattern", field, pattern)
			}
		}
	}
	for field, kinds := range map[string][]string{"kinds.include": p.Kinds.Include, "kinds.exclude": p.Kinds.Exclude} {
		if err := (fleet.Limits{Kinds: kinds}).Check(field); err != nil {
			return Policy{}, err
		}
	}
	return p, nil
}

// Refusal returns why an object must not be managed, or a zero Cause. namespaced is whether the kind of ref is namespaced.
func (p Policy) Refusal(ref fleet.ObjectRef, namespaced bool) fleet.Cause {
	switch {
	case !p.allowsKind(ref):
		return refused("the owner of this cluster does not allow kind " + kindOf(ref))
	case !namespaced && p.ClusterScoped != nil && !*p.ClusterScoped:
		return refused("is cluster-scoped, which the owner of this cluster does not allow")
	case namespaced && !p.allowsNamespace(ref.Namespace), !namespaced && kindOf(ref) == "Namespace" && !p.allowsNamespace(ref.Name):
		return refused("the owner of this cluster does not allow namespace " + namespaceOf(ref) + " to be managed")
	}
	return fleet.Cause{}
}

func refused(message string) fleet.Cause {
	return fleet.Cause{Reason: fleet.ReasonOwnerPolicy, Message: message}
}

func (p Policy) allowsKind(ref fleet.ObjectRef) bool {
	if matchesKind(p.Kinds.Include, ref) {
		return true
	}
	return !matchesKind(builtinExclusions.Kinds, ref) && !matchesKind(p.Kinds.Exclude, ref)
}

// matchesKind reports whether one of the patterns matches the kind of ref. An empty list matches nothing.
func matchesKind(kinds []string, ref fleet.ObjectRef) bool {
	return len(kinds) > 0 && fleet.Limits{Kinds: kinds}.Allows(ref, true)
}

func (p Policy) allowsNamespace(name string) bool {
	return (len(p.Namespaces.Allow) == 0 || matches(p.Namespaces.Allow, name)) && !matches(p.Namespaces.Deny, name)
}

// RefuseAs returns why a deployment may not be applied as a ServiceAccount, or a zero Cause. An empty account means the agent itself.
func (p Policy) RefuseAs(account string) fleet.Cause {
	switch {
	case account == "" && p.ServiceAccounts.Require:
		return refused("the owner of this cluster requires a ServiceAccount for each deployment (policy.serviceAccount)")
	case account != "" && len(p.ServiceAccounts.Allow) > 0 && !matches(p.ServiceAccounts.Allow, account):
		return refused("the owner of this cluster does not allow deployments to be applied as ServiceAccount " + account)
	}
	return fleet.Cause{}
}

// RefuseNamespace returns why the objects of a namespace must not be managed, or a zero Cause.
func (p Policy) RefuseNamespace(name string) fleet.Cause {
	if !p.allowsNamespace(name) {
		return refused("the owner of this cluster does not allow namespace " + name + " to be managed")
	}
	return fleet.Cause{}
}

// RefuseDeletion returns why deletions are not allowed, or a zero Cause.
func (p Policy) RefuseDeletion() fleet.Cause {
	if p.Deletions != nil && !*p.Deletions {
		return refused("the owner of this cluster does not allow deletions")
	}
	return fleet.Cause{}
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	})
}

func kindOf(ref fleet.ObjectRef) string {
	if ref.Group == "" {
		return ref.Kind
	}
	return ref.Kind + "." + ref.Group
}

func namespaceOf(ref fleet.ObjectRef) string {
	if ref.Namespace == "" {
		return ref.Name
	}
	return ref.Namespace
}
