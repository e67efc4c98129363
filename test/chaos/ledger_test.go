package chaos_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kedge-dev/kedge/agent/agentsim"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// The classes of finds.
const (
	wrongDeletion = "wrong deletion"
	lostUpdate    = "lost update"
	olderState    = "older state"
	foreignRow    = "foreign row"
	sentInFreeze  = "sent in a freeze"
	otherSpec     = "another spec"
	stuck         = "stuck" // the clusters are as they should be, and the server does not say so
)

// violation is something that must not happen.
type violation struct{ class, text string }

func (v violation) String() string { return v.class + ": " + v.text }

// consentKind is a kind of request that may remove objects.
type consentKind string

const (
	consentDelete   consentKind = "delete"   // of the deployment
	consentEdit     consentKind = "edit"     // of its source
	consentRollback consentKind = "rollback" // or any other step between following the source and staying at a revision
	consentRun      consentKind = "run"      // to a revision, which may be a kept one
	consentDetach   consentKind = "detach"   // with pruneOnDetach, on one agent
	consentTouch    consentKind = "touch"    // anything that makes a new state of the deployment
	consentConfirm  consentKind = "confirm"  // of one object that has left the source
)

// consent is one such request. It is recorded before it is sent, and stands unless the server refused it.
type consent struct {
	at         int
	kind       consentKind
	deployment string
	agent      string // for consentDetach; the object for consentConfirm
	folder     string // for consentEdit: where the deployment goes to
	void       bool
}

// ledger records the requests and the actions of agents, in one order, and checks every deletion immediately.
// It is safe for concurrent use.
type ledger struct {
	mu         sync.Mutex
	clock      int
	restored   int   // when a backup was last restored
	rests      []int // when everything was last seen to be as it should be
	consents   []*consent
	pruning    map[string][]pruneSwitch // by deployment
	holding    map[string]bool          // deployments that are pinned or manual: they may go back
	histories  map[string]*history      // by tenant
	seen       map[string]*sightings    // by agent
	specs      map[string]*specs        // by deployment
	blue       map[string]bool          // agents that are or were of the blue ring
	violations []violation
}

// pruneSwitch says that from a moment on a deployment prunes, or does not.
type pruneSwitch struct {
	at int
	on bool
}

// sightings are the observed actions of one agent.
type sightings struct {
	listed map[string]listing         // objects, as of the newest state that had them
	newest map[fleet.TargetID]content // the last content of each target
	kept   map[string]int             // objects whose prune was held because of a recovery, and when
}

type listing struct{ at, commit int }

func newLedger() *ledger {
	return &ledger{
		pruning: map[string][]pruneSwitch{}, holding: map[string]bool{},
		histories: map[string]*history{}, seen: map[string]*sightings{}, specs: map[string]*specs{}, blue: map[string]bool{},
	}
}

func (l *ledger) nowLocked() int {
	l.clock++
	return l.clock
}

// consent notes a request that is about to be sent.
func (l *ledger) consent(kind consentKind, deployment, agent string) *consent {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &consent{at: l.nowLocked(), kind: kind, deployment: deployment, agent: agent}
	l.consents = append(l.consents, c)
	return c
}

// edit notes that the source of a deployment is about to become another folder.
func (l *ledger) edit(deployment, folder string) *consent {
	c := l.consent(consentEdit, deployment, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	c.folder = folder
	return c
}

// withdraw removes a request that the server has refused.
func (l *ledger) withdraw(consents ...*consent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range consents {
		c.void = true
	}
}

// prunes records the prune policy of a deployment, and whether it is pinned or manual.
func (l *ledger) prunes(deployment string, on, holding bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pruning[deployment] = append(l.pruning[deployment], pruneSwitch{at: l.nowLocked(), on: on})
	l.holding[deployment] = holding
}

// push notes a commit that is about to be pushed.
func (l *ledger) push(tenant, name string, f folder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nowLocked()
	l.histories[tenant].add(name, f)
}

// rest records that everything has settled: earlier requests do not explain later additions to a cluster.
func (l *ledger) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rests = append(l.rests, l.nowLocked())
}

func (l *ledger) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restored = l.nowLocked()
}

func (l *ledger) report(class, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reportLocked(class, format, args...)
}

func (l *ledger) reportLocked(class, format string, args ...any) {
	v := violation{class, fmt.Sprintf(format, args...)}
	if !slices.Contains(l.violations, v) {
		l.violations = append(l.violations, v)
	}
}

// found returns what was found so far.
func (l *ledger) found() []violation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.violations)
}

// watch returns the event function for the cluster of an agent.
func (l *ledger) watch(agent string) func(agentsim.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[agent] = &sightings{listed: map[string]listing{}, newest: map[fleet.TargetID]content{}, kept: map[string]int{}}
	return func(e agentsim.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.nowLocked()
		switch e.Kind {
		case agentsim.EventAccepted:
			l.takenLocked(agent, e)
		case agentsim.EventKept:
			l.seen[agent].kept[e.Object.Name] = l.clock
		case agentsim.EventDeleted:
			l.deletedLocked(agent, e)
		}
	}
}

// takenLocked checks a state that an agent got.
func (l *ledger) takenLocked(agent string, e agentsim.Event) {
	s := l.seen[agent]
	l.unaskedLocked(agent, e)
	if e.Desired == nil { // a tombstone, or detached: start again
		delete(s.newest, e.Target)
		return
	}
	given := content{}
	for _, o := range e.Desired.Objects() {
		given[o.Ref.Name] = valueOf(o.Content)
	}
	name := ""
	for object := range given {
		name = folderOf(object)
	}
	if tenantOf(name) != tenantOf(agent) || e.Tenant != tenantOf(agent) {
		l.reportLocked(foreignRow, "agent %s was given %v of %s/%s", agent, given, e.Tenant, e.Deployment)
		return
	}
	h := l.histories[tenantOf(agent)]
	first, last := h.first(name, given), h.last(name, given)
	l.otherSpecLocked(agent, name, e)
	if first < 0 {
		l.reportLocked(lostUpdate, "agent %s was given what no commit says: %v of %s", agent, given, e.Deployment)
	}
	if was := s.newest[e.Target]; was != nil && first >= 0 && sameFolder(was, name) &&
		last < h.first(name, was) && !l.mayGoBackLocked(e.Deployment, s.listed, was) {
		l.reportLocked(olderState, "agent %s had %v of %s (commit %d) and was given %v (commit %d), version %v",
			agent, was, e.Deployment, h.first(name, was), given, last, e.State.Version)
	}
	s.newest[e.Target] = given
	for object := range given {
		s.listed[object] = listing{at: l.clock, commit: first}
		delete(s.kept, object)
	}
}

// unaskedLocked checks what a state allows an agent to delete beyond the limit: a confirmation must be of an
// object as it left the last state with it, and the consent of an edit must come from one.
func (l *ledger) unaskedLocked(agent string, e agentsim.Event) {
	s := l.seen[agent]
	for _, name := range e.State.Confirmed {
		object := name[strings.LastIndex(name, "/")+1:]
		if !l.askedLocked(consentConfirm, e.Deployment, object, s.listed[object].at) {
			l.reportLocked(wrongDeletion, "agent %s may delete %s of %s (version %v), but this was not confirmed since it left", agent, name, e.Deployment, e.State.Version)
		}
	}
	if e.State.Consent && (e.State.HoldPrune || !l.askedLocked(consentEdit, e.Deployment, "", 0) && len(l.pruning[e.Deployment]) < 2) {
		l.reportLocked(wrongDeletion, "agent %s may delete anything of %s (version %v, hold %t), but there was no edit", agent, e.Deployment, e.State.Version, e.State.HoldPrune)
	}
}

// mayGoBackLocked reports whether an older commit of a deployment was requested.
func (l *ledger) mayGoBackLocked(deployment string, listed map[string]listing, was content) bool {
	since := l.clock
	for object := range was {
		since = min(since, listed[object].at)
	}
	return l.holding[deployment] || l.askedLocked(consentRollback, deployment, "", l.restBeforeLocked(since))
}

// deletedLocked checks a deletion.
func (l *ledger) deletedLocked(agent string, e agentsim.Event) {
	object, s := e.Object.Name, l.seen[agent]
	was := s.listed[object]
	since := l.restBeforeLocked(was.at)
	defer func() {
		delete(s.listed, object)
		delete(s.kept, object)
	}()
	if tenantOf(object) != tenantOf(agent) {
		l.reportLocked(foreignRow, "agent %s deleted %s", agent, object)
		return
	}
	var why string
	switch {
	case l.askedLocked(consentDelete, e.Deployment, "", since):
		return // whichever state it was that the agent heard of first
	case e.State.Tombstone:
		if l.askedLocked(consentDetach, e.Deployment, agent, since) {
			return
		}
		why = "by a tombstone, but there was no request to delete the deployment"
	case s.kept[object] > 0 && !l.askedLocked(consentConfirm, e.Deployment, object, s.kept[object]):
		why = "by a prune, but it was held since a recovery and its deletion was not confirmed"
	case !l.prunedSinceLocked(e.Deployment, since):
		why = "by a prune, and pruning is off"
	case l.histories[tenantOf(agent)].gaveUp(object, was.commit),
		l.editedAwayLocked(e.Deployment, folderOf(object), since), l.askedLocked(consentRollback, e.Deployment, "", since):
		return
	default:
		if s.kept[object] > l.restored {
			return // the prune after a restore was held, and was confirmed since
		}
		why = "by a prune, but no commit, edit, or rollback has removed it"
	}
	l.reportLocked(wrongDeletion, "%s on agent %s was deleted %s (deployment %s, version %v, commit %.8s, listed at %d by commit %d, now %d, restored %d)",
		object, agent, why, e.Deployment, e.State.Version, e.State.Commit, was.at, was.commit, l.clock, l.restored)
}

// restBeforeLocked is the last rest before a moment.
func (l *ledger) restBeforeLocked(at int) int {
	out := 0
	for _, rest := range l.rests {
		if rest < at {
			out = rest
		}
	}
	return out
}

func (l *ledger) askedLocked(kind consentKind, deployment, agent string, since int) bool {
	return slices.ContainsFunc(l.consents, func(c *consent) bool {
		return !c.void && c.kind == kind && c.deployment == deployment && c.agent == agent && c.at > since
	})
}

// editedAwayLocked reports whether a deployment got another folder than this one.
func (l *ledger) editedAwayLocked(deployment, folder string, since int) bool {
	return slices.ContainsFunc(l.consents, func(c *consent) bool {
		return !c.void && c.kind == consentEdit && c.deployment == deployment && c.folder != folder && c.at > since
	})
}

// prunedSinceLocked reports whether the policy of a deployment was to prune at any time since then.
func (l *ledger) prunedSinceLocked(deployment string, since int) bool {
	on := false
	for _, s := range l.pruning[deployment] {
		if s.at > since {
			on = on || s.on
		} else {
			on = s.on
		}
	}
	return on
}

func sameFolder(c content, name string) bool {
	for object := range maps.Keys(c) {
		return folderOf(object) == name
	}
	return false
}

func valueOf(object map[string]any) string {
	data, _ := object["data"].(map[string]any)
	value, _ := data["v"].(string)
	return value
}
