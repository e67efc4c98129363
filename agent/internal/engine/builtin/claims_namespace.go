package builtin

import (
	"cmp"
	"fmt"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// namespaceInUse returns why a Namespace must not be deleted for target me: a target desires an object in it, which would be
// deleted with it. It returns zero if there is no such object, and for any other kind.
func (e *Engine) namespaceInUse(ref fleet.ObjectRef, me fleet.TargetID) fleet.Cause {
	if !kube.IsNamespace(ref) {
		return fleet.Cause{}
	}
	key, by, deployment := e.claims.within(ref.Name, me)
	switch by {
	case "":
		return fleet.Cause{}
	case me:
		return fleet.Cause{Reason: fleet.ReasonNotEmpty, Message: fmt.Sprintf("this deployment still desires %s in it", nameOf(key))}
	}
	return fleet.Cause{Reason: fleet.ReasonNotEmpty,
		Message: fmt.Sprintf("deployment %s (target %s) desires %s in it", cmp.Or(deployment, "unknown"), by, nameOf(key))}
}

func nameOf(key inventory.Key) string {
	return fleet.ObjectRef{Group: key.Group, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}.String()
}

// within returns an object that a target desires in a namespace, with the target and the name of its deployment; of
// targets other than me first. The target is "" when there is none.
func (c *claims) within(namespace string, me fleet.TargetID) (key inventory.Key, by fleet.TargetID, deployment string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, keys := range c.byTarget {
		if by != "" && id == me {
			continue
		}
		for _, k := range keys {
			if k.Namespace == namespace && (by == "" || by == me || k.Compare(key) < 0) {
				key, by = k, id
			}
		}
	}
	for name, id := range c.current {
		if id == by {
			deployment = name
		}
	}
	return key, by, deployment
}
