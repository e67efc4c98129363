package lease

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/obs"
)

// AnnotationAgent is the annotation of the Lease that names the agent of its holder.
const AnnotationAgent = "kedge.dev/agent"

// Identify sets the agent that this replica belongs to. A leader writes it to the Lease with the next renewal. Two agents in
// one namespace compete for the same Lease as if they were replicas of one, so that one of them never leads. The annotation
// makes that visible.
func (e *Elector) Identify(agent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.agent = agent
	e.warnOtherAgentLocked()
}

// annotate sets the agent of the holder. A new holder that does not know its agent yet removes that of the previous holder.
func (e *Elector) annotate(object *unstructured.Unstructured, newHolder bool) {
	e.mu.Lock()
	agent := e.agent
	e.mu.Unlock()
	annotations := object.GetAnnotations()
	switch {
	case agent != "" && annotations == nil:
		annotations = map[string]string{AnnotationAgent: agent}
	case agent != "":
		annotations[AnnotationAgent] = agent
	case newHolder:
		delete(annotations, AnnotationAgent)
	}
	object.SetAnnotations(annotations)
}

// warnOtherAgentLocked logs one warning when a replica of another agent holds the Lease.
func (e *Elector) warnOtherAgentLocked() {
	other := e.otherAgentLocked()
	if other != "" && other != e.warnedOf {
		e.cfg.Log.Warn("another agent in this namespace holds the Lease: this agent does nothing until the other one is removed; "+
			"use a separate namespace for each agent", "other", other, obs.KeyAgent, e.agent, "holder", e.lease.holder())
	}
	e.warnedOf = other
}

// otherAgentLocked returns the agent that holds the Lease, or "" if it is this agent or not known.
func (e *Elector) otherAgentLocked() string {
	if e.lease.object == nil || e.agent == "" || e.lease.holder() == "" || e.lease.holder() == e.identity {
		return ""
	}
	if agent := e.lease.object.GetAnnotations()[AnnotationAgent]; agent != e.agent {
		return agent
	}
	return ""
}
