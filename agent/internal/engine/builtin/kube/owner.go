package kube

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// Refusal is the error of a request that Kedge itself refuses; the API server was not asked.
type Refusal struct{ Cause fleet.Cause }

func (r *Refusal) Error() string { return r.Cause.Message }

// NotAdopted is the Refusal of an object that exists and that no deployment of Kedge manages.
func NotAdopted() *Refusal {
	return &Refusal{fleet.Cause{Reason: fleet.ReasonNotAdopted, Message: "exists and is not managed by this deployment; set adopt: true to take it over"}}
}

// OwnedError is a refusal because another target owns the object.
type OwnedError struct {
	Refusal
	Target fleet.TargetID
}

// Unwrap returns the Refusal.
func (t *OwnedError) Unwrap() error { return &t.Refusal }

// Owner identifies the target that a request is for.
type Owner struct {
	Agent      fleet.AgentID
	Target     fleet.TargetID
	Deployment string // tenant/name
	Adopt      bool
}

// belongsToAgent reports whether the labels mark a part of the installation of an agent, or of an inventory.
func belongsToAgent(labels map[string]string) bool {
	_, installed := labels[LabelInstall]
	_, kept := labels[inventory.LabelInventory]
	return installed || kept
}

// MayApply decides whether an apply may change a live object. uid is the UID of the object that was last applied, or "".
// abandoned reports whether a target of this engine no longer desires the object. adopted reports that the object comes
// from somebody else.
func (o Owner) MayApply(live metav1.Object, uid string, abandoned func(fleet.TargetID) bool) (adopted bool, err error) {
	labels := live.GetLabels()
	if belongsToAgent(labels) {
		return false, &Refusal{fleet.Cause{Reason: fleet.ReasonOwnInstallation, Message: "belongs to the installation of an agent, which no deployment may change"}}
	}
	holder := fleet.TargetID(labels[LabelTarget])
	switch {
	case holder == o.Target:
		return false, nil
	case holder != "" && abandoned(holder):
		return false, nil
	case holder != "":
		return false, o.foreign(live, holder)
	case uid != "" && string(live.GetUID()) == uid:
		// It is the object that was applied last; somebody removed its labels.
		return false, nil
	case live.GetAnnotations()[AnnotationDeployment] == o.Deployment:
		// Released when a deployment of this name was deleted or detached.
		return o.Adopt, nil
	case sameFile(live.GetAnnotations()[AnnotationDeployment], o.Deployment):
		// Released by another entry of the same configuration file, as when one is renamed there.
		return o.Adopt, nil
	case o.Adopt:
		return true, nil
	}
	return false, NotAdopted()
}

// sameFile reports whether the configuration file of one agent declares both deployments, given as tenant/name. Only
// such deployments have names of the form AGENT.NAME.
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

// foreign returns an error that names the owner of a live object and the remedy.
func (o Owner) foreign(live metav1.Object, holder fleet.TargetID) error {
	by, agent := live.GetAnnotations()[AnnotationDeployment], live.GetLabels()[LabelAgent]
	if by != o.Deployment {
		return owned(holder, "belongs to another deployment (%s, target %s); remove it there first", by, holder)
	}
	_, name, _ := strings.Cut(o.Deployment, "/")
	return owned(holder, "is held by another target of this deployment (target %s, agent %s). If both agents are in this cluster, let the environment "+
		"select one of them; if that agent is gone for good, set adopt: true to take it over, and forget what it left with: kedge deploy dismiss %s %s",
		holder, agent, name, holder)
}

func owned(by fleet.TargetID, format string, args ...any) error {
	return &OwnedError{Refusal{fleet.Cause{Reason: fleet.ReasonOwnedByOther, Message: fmt.Sprintf(format, args...)}}, by}
}
