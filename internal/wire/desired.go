package wire

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Desired is the newest desired state of one target.
type Desired struct {
	Target     fleet.TargetID
	Tenant     string // name
	Deployment string // name
	State      fleet.Desired
	// Bundle is the compressed bundle. It is empty when the agent has to fetch it, and for a tombstone or a detached
	// target.
	Bundle []byte
	// Source is set instead of Bundle for an agent that has Argo CD apply the objects.
	Source *fleet.EngineSource
}

// StateOf returns the state of a target after an agent has received d. A detached target needs no bundle, even if d has a
// digest.
func StateOf(target fleet.TargetID, d fleet.Desired) TargetState {
	state := TargetState{Target: target, Version: d.Version, Digest: d.Digest}
	if d.Detached {
		state.Digest = ""
	}
	return state
}

// Proto returns the message for d. For a detached target it has neither a bundle nor a digest.
func (d Desired) Proto() *agentv1.Desired {
	if d.State.Detached {
		d.State.Digest, d.Bundle, d.Source = "", nil, nil
	}
	return &agentv1.Desired{
		Target: string(d.Target), Tenant: d.Tenant, Deployment: d.Deployment,
		Epoch: d.State.Epoch, Generation: d.State.Generation, Digest: d.State.Digest, Bundle: d.Bundle,
		Commit: d.State.Commit, Tombstone: d.State.Tombstone, Detached: d.State.Detached,
		Policy: policyProto(d.State), HandOvers: handOversProto(d.State.HandOvers), Source: sourceProto(d.Source),
	}
}

// ParseDesired converts and validates a desired state. It must be exactly one of a bundle, a source, a tombstone and
// detached: a missing field must never delete objects.
func ParseDesired(m *agentv1.Desired) (Desired, error) {
	d := Desired{
		Target: fleet.TargetID(m.GetTarget()), Tenant: m.GetTenant(), Deployment: m.GetDeployment(), Bundle: m.GetBundle(),
		State: fleet.Desired{
			Version: fleet.Version{Epoch: m.GetEpoch(), Generation: m.GetGeneration()},
			Digest:  m.GetDigest(), Commit: m.GetCommit(), Namespace: m.GetPolicy().GetNamespace(),
			Policy: parsePolicy(m.GetPolicy()), HoldPrune: m.GetPolicy().GetHoldPrune(), Consent: m.GetPolicy().GetConsent(),
			Confirmed: m.GetPolicy().GetConfirmed(), Tombstone: m.GetTombstone(), HoldProtected: m.GetPolicy().GetHoldProtected(), Detached: m.GetDetached(),
			HandOvers: parseHandOvers(m.GetHandOvers()),
			Limits:    fleet.Limits{Namespaces: m.GetPolicy().GetLimits().GetNamespaces(), Kinds: m.GetPolicy().GetLimits().GetKinds()},
		},
	}
	if err := checkID("target", m.GetTarget()); err != nil {
		return Desired{}, err
	}
	if err := checkDigest(m.GetDigest()); err != nil {
		return Desired{}, err
	}
	for what, word := range map[string]string{
		"tenant": d.Tenant, "deployment": d.Deployment, "commit": d.State.Commit, "namespace": d.State.Namespace,
	} {
		if err := checkWord(what, word); err != nil {
			return Desired{}, err
		}
	}
	var err error
	if d.Source, err = parseSource(m.GetSource()); err != nil {
		return Desired{}, err
	}
	if err := checkHandOvers(d.State.HandOvers); err != nil {
		return Desired{}, err
	}
	if err := checkPolicy(d.State); err != nil {
		return Desired{}, frameError("target %s: %v", d.Target, err)
	}
	return d, checkMeaning(d)
}

// checkMeaning refuses ambiguous states.
func checkMeaning(d Desired) error {
	bundle := d.State.Digest != "" || len(d.Bundle) != 0
	switch {
	case d.State.Tombstone && d.State.Detached:
		return frameError("target %s is a tombstone and detached", d.Target)
	case d.State.Tombstone && bundle:
		return frameError("target %s is a tombstone with a bundle", d.Target)
	case d.State.Detached && bundle:
		return frameError("target %s is detached with a bundle", d.Target)
	case d.Source != nil && (d.State.Tombstone || d.State.Detached):
		return frameError("target %s has a source and is a tombstone or detached", d.Target)
	case d.Source != nil && len(d.Bundle) != 0:
		return frameError("target %s has a source and a bundle", d.Target)
	case d.Source != nil && d.State.Commit == "":
		return frameError("target %s has a source without a commit", d.Target)
	case !d.State.Tombstone && !d.State.Detached && d.State.Digest == "":
		return frameError("target %s has neither a digest nor a tombstone, and is not detached", d.Target)
	case len(d.Bundle) > MaxFrame:
		return frameError("the bundle of target %s has %d bytes", d.Target, len(d.Bundle))
	}
	return nil
}
