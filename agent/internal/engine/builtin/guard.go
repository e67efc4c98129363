package builtin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/ownerpolicy"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// settings is what the server says of this agent. The zero value is "not known yet".
type settings struct {
	agent      fleet.AgentID
	scope      fleet.Scope
	namespaces []string
	policy     ownerpolicy.Policy // of the owner of the cluster; no server can change it
}

func (s settings) known() bool { return s.agent != "" && s.scope != "" }

// refuse returns why this agent must not touch the object at all, or "". It looks at the name
// only; what the live object says is the business of claim.
func (s settings) refuse(ref fleet.ObjectRef, m kube.Mapping, own string) string {
	switch {
	case m.Namespaced && ref.Namespace == "":
		return "names no namespace and the deployment has none; set one in either"
	case m.Namespaced && ref.Namespace == own, !m.Namespaced && ref.Group == "" && ref.Kind == "Namespace" && ref.Name == own:
		return fmt.Sprintf("namespace %q is where this agent is installed; it never changes its own installation", own)
	case s.scope == fleet.ScopeNamespaced && !m.Namespaced:
		return "is cluster-scoped, and this agent is limited to namespaces"
	case s.scope == fleet.ScopeNamespaced && !slices.Contains(s.namespaces, ref.Namespace):
		return fmt.Sprintf("is in namespace %q, and this agent is limited to other namespaces", ref.Namespace)
	}
	return s.policy.Refusal(ref, m.Namespaced)
}

// refuse returns why an object must not be applied, or "": because this agent must not touch it, or
// because it is beyond the limits of the grant by which the deployment is here.
func (t *target) refuse(ref fleet.ObjectRef, m kube.Mapping) string {
	s := t.engine.config()
	return cmp.Or(s.refuse(ref, m, t.engine.namespace), s.policy.RefuseAs(t.work.desired.State.Policy.ServiceAccount),
		t.work.desired.State.Limits.Refusal(ref, m.Namespaced))
}

// impersonate chooses whose rights the deployment is applied with.
func (t *target) impersonate(account string) {
	cluster, err := t.engine.cluster.As(account)
	if err != nil {
		t.inv.failure = err.Error() // and nothing is done until something newer is desired
	}
	t.work.client = cluster
}

// refusal returns why this agent must not touch an object that is to go, or not with the rights that the
// deployment has, or "". What is in the inventory is where it really is, so that its name tells whether
// its kind has namespaces.
func (t *target) refusal(ref fleet.ObjectRef) string {
	s := t.engine.config()
	return cmp.Or(s.refuse(ref, kube.Mapping{Namespaced: ref.Namespace != ""}, t.engine.namespace),
		s.policy.RefuseAs(t.work.desired.State.Policy.ServiceAccount))
}

// beyond returns why an object must not be deleted, or "": the grant of the deployment does not reach
// that far, or the owner of the cluster lets nothing be deleted.
func (t *target) beyond(ref fleet.ObjectRef) string {
	return cmp.Or(t.work.desired.State.Limits.Refusal(ref, ref.Namespace != ""), t.engine.config().policy.RefuseDeletion())
}
