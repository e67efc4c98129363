package restapi

import (
	"reflect"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// policyJSON returns a policy for users, with explicit defaults.
func policyJSON(p fleet.Policy) apiv1.Policy {
	limit := p.PruneLimit
	if limit == (fleet.PruneLimit{}) {
		limit = fleet.DefaultPruneLimit
	}
	return apiv1.Policy{
		Prune: p.Prune, Adopt: p.Adopt, AllowEmpty: p.AllowEmpty, Manual: p.Manual, PruneOnDetach: p.PruneOnDetach,
		Force: p.Force, Replace: p.Replace, PreviewOnly: p.DryRun, Drift: string(p.Drift.OrDefault()), Ignore: p.Ignore,
		ServiceAccount: p.ServiceAccount, Propagation: string(p.Propagation.OrDefault()),
		PruneTimeout: durationText(p.PruneTimeout), ReadyTimeout: durationText(p.ReadyTimeout), PruneLimit: apiv1.PruneLimit(limit),
		CreateNamespace: p.CreateNamespace,
	}
}

// newPolicy parses the policy of a new deployment.
func newPolicy(p apiv1.NewPolicy) (fleet.Policy, error) {
	return mergePolicy(fleet.Policy{
		Prune: p.Prune == nil || *p.Prune, Adopt: p.Adopt, AllowEmpty: p.AllowEmpty, Manual: p.Manual, PruneOnDetach: p.PruneOnDetach,
		Force: p.Force, Replace: p.Replace, DryRun: p.PreviewOnly, Drift: fleet.DriftMode(p.Drift), Ignore: p.Ignore,
		ServiceAccount: p.ServiceAccount, Propagation: fleet.Propagation(p.Propagation), CreateNamespace: p.CreateNamespace,
	}, apiv1.UpdatePolicy{PruneTimeout: &p.PruneTimeout, ReadyTimeout: &p.ReadyTimeout, PruneLimit: p.PruneLimit})
}

func changesPolicy(p apiv1.UpdatePolicy) bool { return !reflect.ValueOf(p).IsZero() }

func mergePolicy(p fleet.Policy, with apiv1.UpdatePolicy) (fleet.Policy, error) {
	set(&p.Prune, with.Prune)
	set(&p.Adopt, with.Adopt)
	set(&p.AllowEmpty, with.AllowEmpty)
	set(&p.Manual, with.Manual)
	set(&p.PruneOnDetach, with.PruneOnDetach)
	set(&p.Force, with.Force)
	set(&p.Replace, with.Replace)
	set(&p.DryRun, with.PreviewOnly)
	set(&p.CreateNamespace, with.CreateNamespace)
	set((*string)(&p.Drift), with.Drift)
	set(&p.ServiceAccount, with.ServiceAccount)
	set((*string)(&p.Propagation), with.Propagation)
	set((*apiv1.PruneLimit)(&p.PruneLimit), with.PruneLimit)
	if with.Ignore != nil {
		p.Ignore = with.Ignore
	}
	if err := setDuration(&p.PruneTimeout, "policy.pruneTimeout", with.PruneTimeout); err != nil {
		return p, err
	}
	return p, setDuration(&p.ReadyTimeout, "policy.readyTimeout", with.ReadyTimeout)
}

func setDuration(to *time.Duration, field string, text *string) error {
	switch {
	case text == nil:
		return nil
	case *text == "":
		*to = 0
		return nil
	}
	d, err := time.ParseDuration(*text)
	if err != nil {
		return fleet.Invalid(field, "%q is not a duration such as 90s, 5m or 1h30m", *text)
	}
	*to = d
	return nil
}

// durationText formats a duration for people: 5m instead of 5m0s; "" for none.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
