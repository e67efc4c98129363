package wire

import (
	"fmt"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// MaxConfirmed bounds the confirmed deletions of one Desired.
const MaxConfirmed = 4096

func policyProto(d fleet.Desired) *agentv1.Policy {
	p := d.Policy
	return &agentv1.Policy{
		Namespace: d.Namespace, Prune: p.Prune, Adopt: p.Adopt, HoldPrune: d.HoldPrune, AllowEmpty: p.AllowEmpty,
		Limits: limitsProto(d.Limits), Force: p.Force, Replace: p.Replace, DryRun: p.DryRun, Drift: string(p.Drift),
		Ignore: p.Ignore, ServiceAccount: p.ServiceAccount, Propagation: string(p.Propagation),
		PruneTimeoutMilliseconds: p.PruneTimeout.Milliseconds(), ReadyTimeoutMilliseconds: p.ReadyTimeout.Milliseconds(),
		PruneLimitObjects: int32(p.PruneLimit.Objects), PruneLimitPercent: int32(p.PruneLimit.Percent),
		Consent: d.Consent, Confirmed: d.Confirmed, CreateNamespace: p.CreateNamespace, HoldProtected: d.HoldProtected,
	}
}

func limitsProto(l fleet.Limits) *agentv1.Limits {
	if l.None() {
		return nil
	}
	return &agentv1.Limits{Namespaces: l.Namespaces, Kinds: l.Kinds}
}

func parsePolicy(m *agentv1.Policy) fleet.Policy {
	return fleet.Policy{
		Prune: m.GetPrune(), Adopt: m.GetAdopt(), AllowEmpty: m.GetAllowEmpty(), Force: m.GetForce(), Replace: m.GetReplace(),
		DryRun: m.GetDryRun(), Drift: fleet.DriftMode(m.GetDrift()), Ignore: m.GetIgnore(), ServiceAccount: m.GetServiceAccount(),
		Propagation:  fleet.Propagation(m.GetPropagation()),
		PruneTimeout: milliseconds(m.GetPruneTimeoutMilliseconds()), ReadyTimeout: milliseconds(m.GetReadyTimeoutMilliseconds()),
		PruneLimit:      fleet.PruneLimit{Objects: int(m.GetPruneLimitObjects()), Percent: int(m.GetPruneLimitPercent())},
		CreateNamespace: m.GetCreateNamespace(),
	}
}

// milliseconds returns a negative duration, which Policy.Check refuses, when n is too large.
func milliseconds(n int64) time.Duration {
	if n > fleet.MaxTimeout.Milliseconds() {
		return -1
	}
	return time.Duration(n) * time.Millisecond
}

// checkPolicy refuses unknown values: another interpretation could delete or overwrite objects.
func checkPolicy(d fleet.Desired) error {
	if err := d.Limits.Check("limits"); err != nil {
		return err
	}
	if len(d.Confirmed) > MaxConfirmed {
		return fmt.Errorf("%d confirmed deletions are more than %d", len(d.Confirmed), MaxConfirmed)
	}
	return d.Policy.Check("policy")
}
