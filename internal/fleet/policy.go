package fleet

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Policy defines how a deployment is applied.
type Policy struct {
	// Prune deletes objects that left the source.
	Prune bool
	// Adopt takes over existing objects that have no owner.
	Adopt bool
	// AllowEmpty accepts a source without objects; otherwise this is an error.
	AllowEmpty bool
	// Manual waits for a SyncRun instead of following the source.
	Manual bool
	// PruneOnDetach deletes the objects of a target that leaves the environment; otherwise they stay.
	PruneOnDetach bool

	// Force takes over fields of other field managers; otherwise they are conflicts.
	Force bool
	// Replace deletes and recreates an object if an immutable field changes; otherwise this is an error.
	// Protected kinds are never replaced.
	Replace bool
	// DryRun asks the API server what would change, and changes nothing.
	DryRun bool
	// Drift defines how drift in the cluster is handled.
	Drift DriftMode
	// Ignore names fields that may differ from the source: see FieldRule.
	Ignore []string
	// ServiceAccount is "namespace/name" of the account that the agent impersonates; "" means the agent itself.
	ServiceAccount string
	// Propagation is the propagation policy of deletions.
	Propagation Propagation
	// PruneTimeout is how long a deletion may take before it counts as failed; 0 means no limit.
	PruneTimeout time.Duration
	// ReadyTimeout is how long objects may take to become ready before they count as failed; 0 means no limit.
	// Neither timeout aborts anything: a later success replaces the failure.
	ReadyTimeout time.Duration
	// PruneLimit limits what a change of the source may delete without a confirmation.
	PruneLimit PruneLimit
	// CreateNamespace creates the namespace of the deployment if it is missing. Like every Namespace, it is a
	// protected kind: it is never deleted with the deployment.
	CreateNamespace bool
}

// PruneLimit is exceeded if a change deletes more than Objects objects and also more than Percent percent of
// the objects of the target. The zero value means DefaultPruneLimit.
type PruneLimit struct{ Objects, Percent int }

// DefaultPruneLimit applies to deployments without their own limit.
var DefaultPruneLimit = PruneLimit{Objects: 10, Percent: 30}

// Exceeded reports whether a deletion of some of all objects needs a confirmation.
func (l PruneLimit) Exceeded(some, all int) bool {
	if l == (PruneLimit{}) {
		l = DefaultPruneLimit
	}
	return some > l.Objects && some*100 > all*l.Percent
}

// DriftMode defines how drift in the cluster is handled.
type DriftMode string

// The drift modes; the empty one is DriftCorrect.
const (
	DriftCorrect DriftMode = "correct" // corrected immediately
	DriftReport  DriftMode = "report"  // reported, and left until the source changes
	DriftIgnore  DriftMode = "ignore"  // neither reported nor corrected until the source changes
)

// Propagation is the propagation policy of deletions, as in Kubernetes.
type Propagation string

// The propagation policies; the empty one is PropagationBackground.
const (
	PropagationBackground Propagation = "Background"
	PropagationForeground Propagation = "Foreground"
	PropagationOrphan     Propagation = "Orphan"
)

// The limits of a policy.
const (
	MaxIgnore     = 64
	maxFieldRule  = 512
	MaxTimeout    = 24 * time.Hour
	maxPruneLimit = 100_000
)

// OrDefault returns the policy with explicit defaults.
func (m DriftMode) OrDefault() DriftMode {
	if m == "" {
		return DriftCorrect
	}
	return m
}

// OrDefault returns p or the default.
func (p Propagation) OrDefault() Propagation {
	if p == "" {
		return PropagationBackground
	}
	return p
}

// Equal reports whether two policies are equal.
func (p Policy) Equal(o Policy) bool {
	return p.ToAgent().equal(o.ToAgent()) && p.Manual == o.Manual && p.PruneOnDetach == o.PruneOnDetach
}

// SameToAgent reports whether two policies are equal for an agent.
func (p Policy) SameToAgent(o Policy) bool { return p.ToAgent().equal(o.ToAgent()) }

// ToAgent returns the part of a policy that agents need. Only the server uses the rest.
func (p Policy) ToAgent() Policy {
	p.Manual, p.PruneOnDetach = false, false
	return p
}

func (p Policy) equal(o Policy) bool {
	return p.Prune == o.Prune && p.Adopt == o.Adopt && p.AllowEmpty == o.AllowEmpty &&
		p.Force == o.Force && p.Replace == o.Replace && p.DryRun == o.DryRun &&
		p.Drift.OrDefault() == o.Drift.OrDefault() && slices.Equal(p.Ignore, o.Ignore) &&
		p.ServiceAccount == o.ServiceAccount && p.Propagation.OrDefault() == o.Propagation.OrDefault() &&
		p.PruneTimeout == o.PruneTimeout && p.ReadyTimeout == o.ReadyTimeout && p.PruneLimit == o.PruneLimit &&
		p.CreateNamespace == o.CreateNamespace
}

// Check returns an InvalidError with the invalid field, below field.
func (p Policy) Check(field string) error {
	var wrong []error
	add := func(name, format string, args ...any) { wrong = append(wrong, Invalid(field+name, format, args...)) }
	switch p.Drift {
	case "", DriftCorrect, DriftReport, DriftIgnore:
	default:
		add(".drift", "%q is not one of correct, report and ignore", p.Drift)
	}
	switch p.Propagation {
	case "", PropagationBackground, PropagationForeground, PropagationOrphan:
	default:
		add(".propagation", "%q is not one of Background, Foreground and Orphan", p.Propagation)
	}
	if p.PruneTimeout < 0 || p.PruneTimeout > MaxTimeout {
		add(".pruneTimeout", "%v is not between 0 and %v", p.PruneTimeout, MaxTimeout)
	}
	if p.ReadyTimeout < 0 || p.ReadyTimeout > MaxTimeout {
		add(".readyTimeout", "%v is not between 0 and %v", p.ReadyTimeout, MaxTimeout)
	}
	if l := p.PruneLimit; l.Objects < 0 || l.Objects > maxPruneLimit {
		add(".pruneLimit.objects", "%d is not between 0 and %d", l.Objects, maxPruneLimit)
	}
	if l := p.PruneLimit; l.Percent < 0 || l.Percent > 100 {
		add(".pruneLimit.percent", "%d is not between 0 and 100", l.Percent)
	}
	return errors.Join(append(wrong, CheckServiceAccount(field+".serviceAccount", p.ServiceAccount), checkIgnore(field+".ignore", p.Ignore))...)
}

// CheckServiceAccount returns an InvalidError unless text is "namespace/name" or "".
func CheckServiceAccount(field, text string) error {
	if text == "" {
		return nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || CheckName(field, namespace) != nil || len(name) > 253 || !subdomain.MatchString(name) {
		return Invalid(field, "%q is not NAMESPACE/NAME of a ServiceAccount", text)
	}
	return nil
}

var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func checkIgnore(field string, rules []string) error {
	if len(rules) > MaxIgnore {
		return Invalid(field, "%d rules are more than %d", len(rules), MaxIgnore)
	}
	for _, text := range rules {
		if _, err := ParseFieldRule(text); err != nil {
			return Invalid(field, "%v", err)
		}
	}
	return nil
}
