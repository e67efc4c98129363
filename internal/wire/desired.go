package wire

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// Desired is the newest state of one target on its way to the agent.
type Desired struct {
	Target     fleet.TargetID
	Tenant     string // name
	Deployment string // name
	State      fleet.Desired
	// Bundle is the compressed bundle; empty when it has to be fetched, and on a tombstone.
	Bundle []byte
}

// Proto is the message of d. Policy.AllowEmpty stays behind: it was decided at render.
func (d Desired) Proto() *agentv1.Desired {
	return &agentv1.Desired{
		Target: string(d.Target), Tenant: d.Tenant, Deployment: d.Deployment,
		Epoch: d.State.Epoch, Generation: d.State.Generation, Digest: d.State.Digest, Bundle: d.Bundle,
		Commit: d.State.Commit, Tombstone: d.State.Tombstone,
		Policy: &agentv1.Policy{
			Namespace: d.State.Namespace, Prune: d.State.Policy.Prune, Adopt: d.State.Policy.Adopt, HoldPrune: d.State.HoldPrune,
			AllowEmpty: d.State.Policy.AllowEmpty,
		},
	}
}

// ParseDesired reads what a server desires. Something that is neither a bundle nor a tombstone is
// refused: an agent must never take a gap for an order to delete.
func ParseDesired(m *agentv1.Desired) (Desired, error) {
	d := Desired{
		Target: fleet.TargetID(m.GetTarget()), Tenant: m.GetTenant(), Deployment: m.GetDeployment(), Bundle: m.GetBundle(),
		State: fleet.Desired{
			Version: fleet.Version{Epoch: m.GetEpoch(), Generation: m.GetGeneration()},
			Digest:  m.GetDigest(), Commit: m.GetCommit(), Namespace: m.GetPolicy().GetNamespace(),
			Policy:    fleet.Policy{Prune: m.GetPolicy().GetPrune(), Adopt: m.GetPolicy().GetAdopt(), AllowEmpty: m.GetPolicy().GetAllowEmpty()},
			HoldPrune: m.GetPolicy().GetHoldPrune(), Tombstone: m.GetTombstone(),
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
	switch {
	case d.State.Tombstone && (d.State.Digest != "" || len(d.Bundle) != 0):
		return Desired{}, frameError("target %s is a tombstone with a bundle", d.Target)
	case !d.State.Tombstone && d.State.Digest == "":
		return Desired{}, frameError("target %s has neither a digest nor a tombstone", d.Target)
	case len(d.Bundle) > MaxFrame:
		return Desired{}, frameError("the bundle of target %s has %d bytes", d.Target, len(d.Bundle))
	}
	return d, nil
}
