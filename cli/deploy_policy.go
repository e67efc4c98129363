package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// policyFlags are the parts of a policy that read the same when a deployment is created and when it is
// changed. Only what is named on the command line counts.
type policyFlags struct {
	adopt, empty, manual, onDetach, force, replace, previewOnly, createNamespace bool
	drift, account, propagation                                                  string
	ignore                                                                       []string
	pruneTimeout, readyTimeout                                                   time.Duration
	limit                                                                        apiv1.PruneLimit
}

func (p *policyFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&p.adopt, "adopt", false, "take over existing objects that have no owner")
	f.BoolVar(&p.empty, "allow-empty", false, "accept a source that holds no object")
	f.BoolVar(&p.manual, "manual", false, "apply only on kedge sync instead of following the source")
	f.BoolVar(&p.onDetach, "prune-on-detach", false, "delete the objects in clusters that leave the environment")
	f.BoolVar(&p.force, "force", false, "take over fields that another manager owns")
	f.BoolVar(&p.replace, "replace", false, "delete and recreate objects with changes to immutable fields")
	f.BoolVar(&p.previewOnly, "preview-only", false, "agents report changes without applying them; --preview-only=false ends it")
	f.BoolVar(&p.createNamespace, "create-namespace", false, "create the deployment's namespace where it is missing; it is never deleted with the deployment")
	f.StringVar(&p.drift, "drift", "correct", "how to handle drift: correct, report or ignore")
	f.StringArrayVar(&p.ignore, "ignore", nil, "a field that may differ, KIND[/NAME]:/json/pointer; may be repeated, empty names none")
	f.StringVar(&p.account, "service-account", "", "NAMESPACE/NAME of the ServiceAccount that agents act as (default: as themselves)")
	f.StringVar(&p.propagation, "propagation", "Background", "deletion propagation: Background, Foreground or Orphan")
	f.DurationVar(&p.pruneTimeout, "prune-timeout", 0, "how long a deletion may take before it counts as failed; 0 is no limit")
	f.DurationVar(&p.readyTimeout, "ready-timeout", 0, "how long objects may take to become ready before they count as failed; 0 is no limit")
	f.IntVar(&p.limit.Objects, "prune-limit-objects", fleet.DefaultPruneLimit.Objects, "more deletions than this, and than the percentage, wait to be confirmed")
	f.IntVar(&p.limit.Percent, "prune-limit-percent", fleet.DefaultPruneLimit.Percent, "more deletions than this part of all objects, and than the number, wait to be confirmed")
}

// change is what the command line names. was is the limit as it is now.
func (p *policyFlags) change(f *pflag.FlagSet, was apiv1.PruneLimit) apiv1.UpdatePolicy {
	var out apiv1.UpdatePolicy
	for name, on := range map[string]struct {
		value *bool
		into  **bool
	}{
		"adopt": {&p.adopt, &out.Adopt}, "allow-empty": {&p.empty, &out.AllowEmpty}, "manual": {&p.manual, &out.Manual},
		"prune-on-detach": {&p.onDetach, &out.PruneOnDetach}, "force": {&p.force, &out.Force},
		"replace": {&p.replace, &out.Replace}, "preview-only": {&p.previewOnly, &out.PreviewOnly},
		"create-namespace": {&p.createNamespace, &out.CreateNamespace},
	} {
		if f.Changed(name) {
			*on.into = on.value
		}
	}
	prune, ready := p.pruneTimeout.String(), p.readyTimeout.String()
	for name, text := range map[string]struct {
		value *string
		into  **string
	}{
		"drift": {&p.drift, &out.Drift}, "service-account": {&p.account, &out.ServiceAccount}, "propagation": {&p.propagation, &out.Propagation},
		"prune-timeout": {&prune, &out.PruneTimeout}, "ready-timeout": {&ready, &out.ReadyTimeout},
	} {
		if f.Changed(name) {
			*text.into = text.value
		}
	}
	if f.Changed("ignore") {
		out.Ignore = []string{}
		for _, rule := range p.ignore {
			if rule != "" {
				out.Ignore = append(out.Ignore, rule)
			}
		}
	}
	if namesLimit(f) {
		limit := was
		if f.Changed("prune-limit-objects") {
			limit.Objects = p.limit.Objects
		}
		if f.Changed("prune-limit-percent") {
			limit.Percent = p.limit.Percent
		}
		out.PruneLimit = &limit
	}
	return out
}

// namesLimit reports whether a part of the limit is named: the other part then stays as it is.
func namesLimit(f *pflag.FlagSet) bool {
	return f.Changed("prune-limit-objects") || f.Changed("prune-limit-percent")
}

// newPolicy is the policy of a new deployment: what the command line names, and defaults.
func (p *policyFlags) newPolicy(f *pflag.FlagSet) apiv1.NewPolicy {
	u := p.change(f, apiv1.PruneLimit(fleet.DefaultPruneLimit))
	return apiv1.NewPolicy{
		Adopt: value(u.Adopt), AllowEmpty: value(u.AllowEmpty), Manual: value(u.Manual), PruneOnDetach: value(u.PruneOnDetach),
		Force: value(u.Force), Replace: value(u.Replace), PreviewOnly: value(u.PreviewOnly), Drift: value(u.Drift), Ignore: u.Ignore,
		ServiceAccount: value(u.ServiceAccount), Propagation: value(u.Propagation),
		PruneTimeout: value(u.PruneTimeout), ReadyTimeout: value(u.ReadyTimeout), PruneLimit: u.PruneLimit,
		CreateNamespace: value(u.CreateNamespace),
	}
}

// value is what p points to, or zero.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// policyText names what of a policy is not the default; "" when all of it is.
func policyText(p apiv1.Policy) string {
	var parts []string
	for _, on := range []struct {
		set  bool
		text string
	}{
		{!p.Prune, "no prune"}, {p.Adopt, "adopt"}, {p.AllowEmpty, "allow empty"}, {p.Manual, "manual"}, {p.PruneOnDetach, "prune on detach"},
		{p.Force, "force"}, {p.Replace, "replace"}, {p.PreviewOnly, "preview only"},
		{p.Drift != "" && p.Drift != string(fleet.DriftCorrect), "drift " + p.Drift},
		{len(p.Ignore) > 0, "ignore " + strings.Join(p.Ignore, " ")},
		{p.ServiceAccount != "", "as service account " + p.ServiceAccount},
		{p.Propagation != "" && p.Propagation != string(fleet.PropagationBackground), "propagation " + p.Propagation},
		{p.PruneTimeout != "", "prune timeout " + p.PruneTimeout}, {p.ReadyTimeout != "", "ready timeout " + p.ReadyTimeout},
		{
			p.PruneLimit != (apiv1.PruneLimit{}) && p.PruneLimit != apiv1.PruneLimit(fleet.DefaultPruneLimit),
			fmt.Sprintf("prune limit %s and %d%%", count(p.PruneLimit.Objects, "object"), p.PruneLimit.Percent),
		},
	} {
		if on.set {
			parts = append(parts, on.text)
		}
	}
	return strings.Join(parts, ", ")
}
