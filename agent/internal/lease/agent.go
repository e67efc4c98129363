package lease

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kedge-dev/kedge/internal/obs"
)

// AnnotationAgent names, at the Lease, the agent that its holder is a replica of.
const AnnotationAgent = "kedge.dev/agent"

// Identify says which agent this is a replica of; a leader writes it down with its next renewal. Two
// agents in one namespace would wait for each other for ever, and look like replicas of one.
func (e *Elector) Identify(agent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.agent = agent
	e.meetLocked()
}

// sign writes the agent down. What a holder before wrote is not left to one that does not know its own.
func (e *Elector) sign(object *unstructured.Unstructured, changesHands bool) {
	e.mu.Lock()
	agent := e.agent
	e.mu.Unlock()
	annotations := object.GetAnnotations()
	switch {
	case agent != "" && annotations == nil:
		annotations = map[string]string{AnnotationAgent: agent}
	case agent != "":
		annotations[AnnotationAgent] = agent
	case changesHands:
		delete(annotations, AnnotationAgent)
	}
	object.SetAnnotations(annotations)
}

// meetLocked warns, once, when the Lease is held by a replica of another agent.
func (e *Elector) meetLocked() {
	other := e.strangerLocked()
	if other != "" && other != e.warned {
		e.cfg.Log.Warn("another agent lives in this namespace and leads here: this one waits and does nothing until that one is gone; "+
			"give each agent a namespace of its own", "other", other, obs.KeyAgent, e.agent, "holder", e.seen.holder())
	}
	e.warned = other
}

// strangerLocked is the agent that holds the Lease, if it is another one than this.
func (e *Elector) strangerLocked() string {
	if e.seen.object == nil || e.agent == "" || e.seen.holder() == "" || e.seen.holder() == e.holder {
		return ""
	}
	if agent := e.seen.object.GetAnnotations()[AnnotationAgent]; agent != e.agent {
		return agent
	}
	return ""
}
