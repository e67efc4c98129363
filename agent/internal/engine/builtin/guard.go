package builtin

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// settings is what the server says of this agent. The zero value is "not known yet".
type settings struct {
	agent      fleet.AgentID
	scope      fleet.Scope
	namespaces []string
}

func (s settings) known() bool { return s.agent != "" && s.scope != "" }

// refuse returns why this agent must not touch the object at all, or "". It looks at the name
// only; what the live object says is the business of claim.
func (s settings) refuse(ref fleet.ObjectRef, m mapping, own string) string {
	switch {
	case m.namespaced && ref.Namespace == "":
		return "names no namespace and the deployment has none; set one in either"
	case m.namespaced && ref.Namespace == own, !m.namespaced && ref.Group == "" && ref.Kind == "Namespace" && ref.Name == own:
		return fmt.Sprintf("namespace %q is where this agent is installed; it never changes its own installation", own)
	case s.scope != fleet.ScopeNamespaced:
		return ""
	case !m.namespaced:
		return "is cluster-scoped, and this agent is limited to namespaces"
	case !slices.Contains(s.namespaces, ref.Namespace):
		return fmt.Sprintf("is in namespace %q, and this agent is limited to other namespaces", ref.Namespace)
	}
	return ""
}

// refuse returns why an object must not be applied, or "": because this agent must not touch it, or
// because it is beyond the limits of the grant by which the deployment is here.
func (t *target) refuse(ref fleet.ObjectRef, m mapping) string {
	return cmp.Or(t.engine.config().refuse(ref, m, t.engine.namespace), t.desired.State.Limits.Refusal(ref, m.namespaced))
}

// refusal returns why this agent must not touch an object that is to go, or "". What is in the
// inventory is where it really is, so that its name tells whether its kind has namespaces.
func (t *target) refusal(ref fleet.ObjectRef) string {
	return t.engine.config().refuse(ref, mapping{namespaced: ref.Namespace != ""}, t.engine.namespace)
}

// beyond returns why the grant of the deployment does not let it delete an object, or "".
func (t *target) beyond(ref fleet.ObjectRef) string {
	return t.desired.State.Limits.Refusal(ref, ref.Namespace != "")
}

// refusal is a decision of ours not to touch an object, as against one of the API server.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// owner is who an apply or a deletion is done for.
type owner struct {
	agent      fleet.AgentID
	target     fleet.TargetID
	deployment string // tenant/name
	adopt      bool
}

// claim decides whether a live object may be applied to. uid is of the object that was applied
// last, "" when none was. adopted reports that the object comes from somebody else.
func (o owner) claim(live metav1.Object, uid string, abandoned func(fleet.TargetID) bool) (adopted bool, err error) {
	labels := live.GetLabels()
	if _, ok := labels[LabelInstall]; ok {
		return false, &refusal{"belongs to the installation of an agent, which no deployment may change"}
	}
	holder := fleet.TargetID(labels[LabelTarget])
	switch {
	case holder == o.target:
		return false, nil
	case holder != "" && abandoned(holder):
		return false, nil
	case holder != "":
		by := live.GetAnnotations()[AnnotationDeployment]
		return false, &refusal{fmt.Sprintf("belongs to another deployment (%s, target %s); remove it there first", by, holder)}
	case uid != "" && string(live.GetUID()) == uid:
		// Ours, with its labels removed.
		return false, nil
	case live.GetAnnotations()[AnnotationDeployment] == o.deployment:
		// Released when a deployment of this name was deleted or detached.
		return o.adopt, nil
	case o.adopt:
		return true, nil
	}
	return false, &refusal{"exists and is not managed by this deployment; set adopt: true to take it over"}
}
