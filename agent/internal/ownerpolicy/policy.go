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

// Policy is the policy of a cluster's owner. The zero value allows everything.
type Policy struct {
	Namespaces      Patterns        `json:"namespaces"`
	ClusterScoped   *bool           `json:"clusterScoped"`
	Kinds           Kinds           `json:"kinds"`
	ServiceAccounts ServiceAccounts `json:"serviceAccounts"`
	Deletions       *bool           `json:"deletions"`
	Tunnel          Tunnel          `json:"tunnel"`
}

// Patterns are patterns of names, in which * matches any characters.
type Patterns struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// Kinds are rules as in fleet.KindFilter, without the built-in exclusions: these are part of the filter of the agent.
type Kinds struct {
	Include []string `json:"include"`
	Exclude []string `json:"exclude"`
}

// ServiceAccounts are patterns of the ServiceAccounts ("namespace/name") that a deployment may be applied as.
type ServiceAccounts struct {
	Require bool     `json:"require"`
	Allow   []string `json:"allow"`
}

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
		"tunnel.namespaces.allow": p.Tunnel.Namespaces.Allow, "tunnel.namespaces.deny": p.Tunnel.Namespaces.Deny,
	} {
		for _, pattern := range patterns {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return Policy{}, fmt.Errorf("%s: %q is not a valid pattern", field, pattern)
			}
		}
	}
	if err := fleet.KindFilter(p.Kinds).Check("kinds"); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// Refusal returns why an object must not be managed, or a zero Cause. namespaced is whether the kind of ref is namespaced.
func (p Policy) Refusal(ref fleet.ObjectRef, namespaced bool) fleet.Cause {
	switch {
	case fleet.KindFilter(p.Kinds).ExclusionOf(ref) != "":
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

func (p Policy) allowsNamespace(name string) bool { return p.Namespaces.allow(name) }

func (p Patterns) allow(name string) bool {
	return (len(p.Allow) == 0 || matches(p.Allow, name)) && !matches(p.Deny, name)
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
