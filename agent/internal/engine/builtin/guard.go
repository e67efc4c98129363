package builtin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
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
func (s settings) refuse(ref fleet.ObjectRef, m mapping, own string) string {
	switch {
	case m.namespaced && ref.Namespace == "":
		return "names no namespace and the deployment has none; set one in either"
	case m.namespaced && ref.Namespace == own, !m.namespaced && ref.Group == "" && ref.Kind == "Namespace" && ref.Name == own:
		return fmt.Sprintf("namespace %q is where this agent is installed; it never changes its own installation", own)
	case s.scope == fleet.ScopeNamespaced && !m.namespaced:
		return "is cluster-scoped, and this agent is limited to namespaces"
	case s.scope == fleet.ScopeNamespaced && !slices.Contains(s.namespaces, ref.Namespace):
		return fmt.Sprintf("is in namespace %q, and this agent is limited to other namespaces", ref.Namespace)
	}
	return s.policy.Refusal(ref, m.namespaced)
}

// refuse returns why an object must not be applied, or "": because this agent must not touch it, or
// because it is beyond the limits of the grant by which the deployment is here.
func (t *target) refuse(ref fleet.ObjectRef, m mapping) string {
	s := t.engine.config()
	return cmp.Or(s.refuse(ref, m, t.engine.namespace), s.policy.RefuseAs(t.desired.State.Policy.ServiceAccount),
		t.desired.State.Limits.Refusal(ref, m.namespaced))
}

// act chooses whose rights the deployment is applied with.
func (t *target) act(account string) {
	cluster, err := t.engine.cluster.as(account)
	if err != nil {
		t.saving.failure = err.Error() // and nothing is done until something newer is desired
	}
	t.cluster = cluster
}

// refusal returns why this agent must not touch an object that is to go, or not with the rights that the
// deployment has, or "". What is in the inventory is where it really is, so that its name tells whether
// its kind has namespaces.
func (t *target) refusal(ref fleet.ObjectRef) string {
	s := t.engine.config()
	return cmp.Or(s.refuse(ref, mapping{namespaced: ref.Namespace != ""}, t.engine.namespace),
		s.policy.RefuseAs(t.desired.State.Policy.ServiceAccount))
}

// beyond returns why an object must not be deleted, or "": the grant of the deployment does not reach
// that far, or the owner of the cluster lets nothing be deleted.
func (t *target) beyond(ref fleet.ObjectRef) string {
	return cmp.Or(t.desired.State.Limits.Refusal(ref, ref.Namespace != ""), t.engine.config().policy.RefuseDeletion())
}

// refusal is a decision of ours not to touch an object, as against one of the API server.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// taken is a refusal because another target has the object.
type taken struct {
	refusal
	holder fleet.TargetID
}

func (t *taken) Unwrap() error { return &t.refusal }

// owner is who an apply or a deletion is done for.
type owner struct {
	agent      fleet.AgentID
	target     fleet.TargetID
	deployment string // tenant/name
	adopt      bool
}

// belongsToAgent reports whether the labels are of a part of an agent's installation, this one or another, or of its inventory.
func belongsToAgent(labels map[string]string) bool {
	_, installed := labels[LabelInstall]
	_, kept := labels[inventory.LabelInventory]
	return installed || kept
}

// claim decides whether a live object may be applied to. uid is of the object that was applied
// last, "" when none was. adopted reports that the object comes from somebody else.
func (o owner) claim(live metav1.Object, uid string, abandoned func(fleet.TargetID) bool) (adopted bool, err error) {
	labels := live.GetLabels()
	if belongsToAgent(labels) {
		return false, &refusal{"belongs to the installation of an agent, which no deployment may change"}
	}
	holder := fleet.TargetID(labels[LabelTarget])
	switch {
	case holder == o.target:
		return false, nil
	case holder != "" && abandoned(holder):
		return false, nil
	case holder != "":
		return false, o.foreign(live, holder)
	case uid != "" && string(live.GetUID()) == uid:
		// Ours, with its labels removed.
		return false, nil
	case live.GetAnnotations()[AnnotationDeployment] == o.deployment:
		// Released when a deployment of this name was deleted or detached.
		return o.adopt, nil
	case sameFile(live.GetAnnotations()[AnnotationDeployment], o.deployment):
		// Released by another entry of the same configuration file, as when one is renamed there.
		return o.adopt, nil
	case o.adopt:
		return true, nil
	}
	return false, &refusal{"exists and is not managed by this deployment; set adopt: true to take it over"}
}

// sameFile reports whether two deployments, as tenant/name, are declared by the configuration file of one agent. Their
// names are AGENT.NAME then; nobody can give such a name to a deployment in another way.
func sameFile(a, b string) bool {
	file := func(deployment string) string {
		tenant, name, _ := strings.Cut(deployment, "/")
		agent, _, declared := strings.Cut(name, ".")
		if !declared {
			return ""
		}
		return tenant + "/" + agent
	}
	return file(a) != "" && file(a) == file(b)
}

// foreign says whose a live object is, and what can be done about it.
func (o owner) foreign(live metav1.Object, holder fleet.TargetID) error {
	by, agent := live.GetAnnotations()[AnnotationDeployment], live.GetLabels()[LabelAgent]
	if by != o.deployment {
		return &taken{refusal{fmt.Sprintf("belongs to another deployment (%s, target %s); remove it there first", by, holder)}, holder}
	}
	_, name, _ := strings.Cut(o.deployment, "/")
	return &taken{refusal{fmt.Sprintf("is held by another target of this deployment (target %s, agent %s). If both agents are in this cluster, let the environment "+
		"select one of them; if that agent is gone for good, set adopt: true to take it over, and forget what it left with: kedge deploy dismiss %s %s",
		holder, agent, name, holder)}, holder}
}
