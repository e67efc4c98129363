package fleet

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Policy says how a deployment is applied.
type Policy struct {
	// Prune deletes objects that have left the source.
	Prune bool
	// Adopt takes over existing objects that nobody owns.
	Adopt bool
	// AllowEmpty accepts a source that holds no object; otherwise that is an error.
	AllowEmpty bool
	// Manual waits for a SyncRun instead of following the source.
	Manual bool
	// PruneOnDetach deletes the objects of a target that leaves the environment; otherwise they stay.
	PruneOnDetach bool

	// Force takes fields over that another manager owns; otherwise they are a conflict.
	Force bool
	// Replace deletes an object and creates it anew when a field that cannot be changed has to be;
	// otherwise that is an error. Protected kinds are never replaced.
	Replace bool
	// DryRun has the API server say what would change, and changes nothing.
	DryRun bool
	// Drift says what is done about objects that are changed in the cluster.
	Drift DriftMode
	// Ignore names fields that may differ from the source: see FieldRule.
	Ignore []string
	// ServiceAccount is who the agent acts as, "namespace/name"; "" means as itself.
	ServiceAccount string
	// Propagation says what becomes of the dependents of what is deleted.
	Propagation Propagation
	// PruneTimeout is how long a deletion may take before it is called failed; 0 means for ever.
	PruneTimeout time.Duration
	// ReadyTimeout is how long objects may take to be ready before they are called failed; 0 means for
	// ever. Neither timeout ends anything: what gets there later is taken for what it is.
	ReadyTimeout time.Duration
	// PruneLimit bounds what a change of the source may delete without being confirmed.
	PruneLimit PruneLimit
	// CreateNamespace creates the namespace of the deployment where it is missing. It is a protected kind like
	// every Namespace: it is never deleted with the deployment.
	CreateNamespace bool
}

// PruneLimit is exceeded by more objects than Objects that are also more than Percent of what the
// target holds. The zero value is DefaultPruneLimit.
type PruneLimit struct{ Objects, Percent int }

// DefaultPruneLimit holds for deployments that name none.
var DefaultPruneLimit = PruneLimit{Objects: 10, Percent: 30}

// Exceeded reports whether deleting some of all objects has to be confirmed.
func (l PruneLimit) Exceeded(some, all int) bool {
	if l == (PruneLimit{}) {
		l = DefaultPruneLimit
	}
	return some > l.Objects && some*100 > all*l.Percent
}

// DriftMode says what is done about objects that are changed in the cluster.
type DriftMode string

// The drift modes; the empty one is DriftCorrect.
const (
	DriftCorrect DriftMode = "correct" // put right at once
	DriftReport  DriftMode = "report"  // said, and left until the source changes
	DriftIgnore  DriftMode = "ignore"  // neither said nor put right until the source changes
)

// Propagation says what becomes of the dependents of a deleted object, in the words of Kubernetes.
type Propagation string

// The propagations; the empty one is PropagationBackground.
const (
	PropagationBackground Propagation = "Background"
	PropagationForeground Propagation = "Foreground"
	PropagationOrphan     Propagation = "Orphan"
)

// The bounds of a policy.
const (
	MaxIgnore     = 64
	maxFieldRule  = 512
	MaxTimeout    = 24 * time.Hour
	maxPruneLimit = 100_000
)

// OrDefault is the policy with the words that empty ones stand for.
func (m DriftMode) OrDefault() DriftMode {
	if m == "" {
		return DriftCorrect
	}
	return m
}

// OrDefault is the propagation that p stands for.
func (p Propagation) OrDefault() Propagation {
	if p == "" {
		return PropagationBackground
	}
	return p
}

// Equal reports whether two policies are the same to everybody.
func (p Policy) Equal(o Policy) bool {
	return p.ToAgent().equal(o.ToAgent()) && p.Manual == o.Manual && p.PruneOnDetach == o.PruneOnDetach
}

// SameToAgent reports whether two policies are the same to an agent.
func (p Policy) SameToAgent(o Policy) bool { return p.ToAgent().equal(o.ToAgent()) }

// ToAgent is what an agent has to know of a policy; the rest is the business of the server.
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

// Check returns an InvalidError that names the field, below field, of what could never work.
func (p Policy) Check(field string) error {
	var wrong []error
	add := func(name, format string, args ...any) { wrong = append(wrong, Invalid(field+name, format, args...)) }
	switch p.Drift {
	case "", DriftCorrect, DriftReport, DriftIgnore:
	default:
		add(".drift", "%q is none of correct, report and ignore", p.Drift)
	}
	switch p.Propagation {
	case "", PropagationBackground, PropagationForeground, PropagationOrphan:
	default:
		add(".propagation", "%q is none of Background, Foreground and Orphan", p.Propagation)
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
