package builtin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// settings is what the server and the owner of the cluster say about this agent. The zero value is "not known yet".
type settings struct {
	agent      fleet.AgentID
	scope      fleet.Scope
	namespaces []string
	kinds      fleet.KindFilter
	policy     ownerpolicy.Policy // of the owner of the cluster; no server can change it
}

func (s settings) known() bool { return s.agent != "" && s.scope != "" }

// refuse returns why this agent must not touch an object at all; zero when it may. It checks the name only;
// kube.Owner.MayApply checks the live object.
func (s settings) refuse(ref fleet.ObjectRef, m kube.Mapping, own string) fleet.Cause {
	switch {
	case m.Namespaced && ref.Namespace == "":
		return fleet.Cause{Reason: fleet.ReasonNamespaceRequired, Message: "names no namespace and the deployment has none; set one in either"}
	case m.Namespaced && ref.Namespace == own, !m.Namespaced && ref.Group == "" && ref.Kind == "Namespace" && ref.Name == own:
		return fleet.Cause{Reason: fleet.ReasonOwnInstallation,
			Message: fmt.Sprintf("namespace %q is where this agent is installed; it never changes its own installation", own)}
	case s.scope == fleet.ScopeNamespaced && !m.Namespaced:
		return fleet.Cause{Reason: fleet.ReasonOutsideScope, Message: "is cluster-scoped, and this agent is limited to namespaces"}
	case s.scope == fleet.ScopeNamespaced && !slices.Contains(s.namespaces, ref.Namespace):
		return fleet.Cause{Reason: fleet.ReasonOutsideScope,
			Message: fmt.Sprintf("is in namespace %q, and this agent is limited to other namespaces", ref.Namespace)}
	}
	if why := s.kinds.Refusal(ref); why != "" {
		return fleet.Cause{Reason: fleet.ReasonKindNotAllowed, Message: why}
	}
	return s.policy.Refusal(ref, m.Namespaced)
}

// refuse returns why an object must not be applied; zero when it may. This agent must not touch it, or it is outside the
// limits of the grant.
func (t *target) refuse(ref fleet.ObjectRef, m kube.Mapping) fleet.Cause {
	s := t.engine.config()
	return cmp.Or(s.refuse(ref, m, t.engine.namespace), s.policy.RefuseAs(t.work.desired.State.Policy.ServiceAccount),
		t.grantRefusal(ref, m.Namespaced))
}

// grantRefusal returns why an object is outside the limits of the grant; zero when it is within them.
func (t *target) grantRefusal(ref fleet.ObjectRef, namespaced bool) fleet.Cause {
	limits := t.work.desired.State.Limits
	if limits.Allows(ref, namespaced) {
		return fleet.Cause{}
	}
	return fleet.Cause{Reason: fleet.ReasonGrantViolation, Message: limits.Refusal(ref, namespaced)}
}

// impersonate sets the rights with which the deployment is applied.
func (t *target) impersonate(account string) {
	client, err := t.engine.client.As(account)
	if err != nil {
		// Nothing is applied until something newer is desired.
		t.inv.failure = fleet.Cause{Reason: fleet.ReasonApplyFailed, Message: err.Error()}
	}
	t.work.client = client
}

// refusal returns why this agent must not touch a leaving object, or not with the rights of the deployment; zero when it
// may. The inventory has the real namespace of an object, so its name tells whether its kind is namespaced.
func (t *target) refusal(ref fleet.ObjectRef) fleet.Cause {
	s := t.engine.config()
	return cmp.Or(s.refuse(ref, kube.Mapping{Namespaced: ref.Namespace != ""}, t.engine.namespace),
		s.policy.RefuseAs(t.work.desired.State.Policy.ServiceAccount))
}

// beyond returns why an object must not be deleted; zero when it may. It is outside the grant of the deployment, or the
// owner of the cluster forbids deletions.
func (t *target) beyond(ref fleet.ObjectRef) fleet.Cause {
	return cmp.Or(t.grantRefusal(ref, ref.Namespace != ""), t.engine.config().policy.RefuseDeletion())
}
