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
	policy     ownerpolicy.Policy // of the owner of the cluster; no server can change it
}

func (s settings) known() bool { return s.agent != "" && s.scope != "" }

// refuse returns why this agent must not touch an object at all, or "". It checks the name only; kube.Owner.MayApply
// checks the live object.
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

// refuse returns why an object must not be applied, or "": this agent must not touch it, or it is outside the limits of
// the grant.
func (t *target) refuse(ref fleet.ObjectRef, m kube.Mapping) string {
	s := t.engine.config()
	return cmp.Or(s.refuse(ref, m, t.engine.namespace), s.policy.RefuseAs(t.work.desired.State.Policy.ServiceAccount),
		t.work.desired.State.Limits.Refusal(ref, m.Namespaced))
}

// impersonate sets the rights with which the deployment is applied.
func (t *target) impersonate(account string) {
	client, err := t.engine.client.As(account)
	if err != nil {
		t.inv.failure = err.Error() // nothing is applied until something newer is desired
	}
	t.work.client = client
}

// refusal returns why this agent must not touch a leaving object, or not with the rights of the deployment, or "". The
// inventory has the real namespace of an object, so its name tells whether its kind is namespaced.
func (t *target) refusal(ref fleet.ObjectRef) string {
	s := t.engine.config()
	return cmp.Or(s.refuse(ref, kube.Mapping{Namespaced: ref.Namespace != ""}, t.engine.namespace),
		s.policy.RefuseAs(t.work.desired.State.Policy.ServiceAccount))
}

// beyond returns why an object must not be deleted, or "": it is outside the grant of the deployment, or the owner of
// the cluster forbids deletions.
func (t *target) beyond(ref fleet.ObjectRef) string {
	return cmp.Or(t.work.desired.State.Limits.Refusal(ref, ref.Namespace != ""), t.engine.config().policy.RefuseDeletion())
}
