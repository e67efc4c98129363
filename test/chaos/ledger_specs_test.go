package chaos_test

import (
	"slices"
	"time"

	"github.com/kedge-dev/kedge/agent/agentsim"
)

// spec has the parts of one spec of a deployment that agents see.
type spec struct {
	folder, env string
	mark        time.Duration
}

// specs are all requested specs of a deployment, the newest last.
type specs struct {
	asked  []spec
	folder map[string]bool // every folder that it ever had
	leave  bool            // any of them said to prune what leaves the environment
}

// spec records a possible spec of a deployment from now on.
func (l *ledger) spec(d deployment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.specs[d.name]
	if s == nil {
		s = &specs{folder: map[string]bool{}}
		l.specs[d.name] = s
	}
	s.folder[d.folder], s.leave = true, s.leave || d.pruneLeave
	if want := (spec{d.folder, d.env, d.mark}); !slices.Contains(s.asked, want) {
		s.asked = append(s.asked, want)
	}
}

// prunesLeavers reports whether a deployment may let agents delete its objects when they leave an environment
// that does not select all: its current one, or its previous one until an edit is in force.
func (l *ledger) prunesLeavers(deployment string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.specs[deployment]
	return s != nil && s.leave && slices.ContainsFunc(s.asked, func(x spec) bool { return x.env != "default" })
}

// leaves reports whether a deployment has, or had until an edit is in force, the policy to prune on detach.
func (l *ledger) leaves(deployment string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.specs[deployment]
	return s != nil && s.leave
}

// ring notes the ring of an agent.
func (l *ledger) ring(agent, ring string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blue[agent] = l.blue[agent] || ring == "blue"
}

// otherSpecLocked checks whether the state of an agent belongs to one spec: a bundle of its folder, with its
// policy, on an agent of its environment. A run to a kept revision brings an older bundle with the spec in
// force.
func (l *ledger) otherSpecLocked(agent, folder string, e agentsim.Event) {
	s, mark := l.specs[e.Deployment], e.State.Policy.ReadyTimeout
	if s == nil {
		return
	}
	back := s.folder[folder] && l.askedLocked(consentRun, e.Deployment, "", 0)
	if slices.ContainsFunc(s.asked, func(x spec) bool {
		return (x.folder == folder || back) && x.mark == mark && (x.env == "default" || l.blue[agent])
	}) {
		return
	}
	l.reportLocked(otherSpec, "agent %s was given folder %s of %s with mark %v (version %v), and no spec has that: %v",
		agent, folder, e.Deployment, mark, e.State.Version, s.asked)
}
