package chaos_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/agent/agentsim"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// play is a ledger with one agent and one deployment, whose folder is web-1.
type play struct {
	*ledger
	t       *testing.T
	observe func(agentsim.Event)
}

const (
	playAgent      = "alpha-1"
	playDeployment = "alpha-web"
	playFolder     = "alpha-web-1"
)

func newPlay(t *testing.T) *play {
	t.Helper()
	l := newLedger()
	l.histories["alpha"] = newHistory()
	l.prunes(playDeployment, true, false)
	return &play{ledger: l, t: t, observe: l.watch(playAgent)}
}

// objects reads "a=1 b=2" as the content of the folder.
func objects(text string) content {
	out := content{}
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		out[playFolder+"-"+name] = value
	}
	return out
}

func (p *play) commits(text string) { p.push("alpha", playFolder, folder{objects: objects(text)}) }

// takes lets the agent receive a state.
func (p *play) takes(text string) {
	p.t.Helper()
	p.takesWith(text, fleet.Desired{})
}

func (p *play) takesWith(text string, state fleet.Desired) {
	p.t.Helper()
	var parsed []manifest.Object
	given := objects(text)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		for path, file := range (folder{objects: content{name: given[name]}}).files(playFolder, folder{}, "") {
			found, err := manifest.Parse(path, []byte(file))
			if err != nil {
				p.t.Fatal(err)
			}
			parsed = append(parsed, found...)
		}
	}
	set, err := manifest.NewSet(parsed, "default")
	if err != nil {
		p.t.Fatal(err)
	}
	p.observe(agentsim.Event{Kind: agentsim.EventAccepted, Target: "tgt", Tenant: "alpha", Deployment: playDeployment, Desired: set, State: state})
}

func (p *play) does(kind agentsim.EventKind, name string, tombstone bool) {
	p.observe(agentsim.Event{
		Kind: kind, Target: "tgt", Tenant: "alpha", Deployment: playDeployment, State: fleet.Desired{Tombstone: tombstone},
		Object: agentsim.Object{ObjectRef: fleet.ObjectRef{Kind: "ConfigMap", Name: playFolder + "-" + name}},
	})
}

func (p *play) prunedAway(name string)  { p.does(agentsim.EventDeleted, name, false) }
func (p *play) deleted(name string)     { p.does(agentsim.EventDeleted, name, true) }
func (p *play) asks(kind consentKind)   { p.consent(kind, playDeployment, "") }
func (p *play) leaves()                 { p.consent(consentDetach, playDeployment, playAgent) }
func (p *play) switchesPruning(on bool) { p.prunes(playDeployment, on, false) }

// ledgerStory is the history of one target, with the expected find.
type ledgerStory struct {
	name, want string // class, or "" when all is well
	story      func(p *play)
}

// storiesOfDeletions are about objects that go.
var storiesOfDeletions = []ledgerStory{
	{"a commit gave it up", "", func(p *play) {
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.commits("a=1")
		p.prunedAway("b")
	}},
	{"nobody gave it up", wrongDeletion, func(p *play) {
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.prunedAway("b")
	}},
	{"only an older commit lacks it", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.prunedAway("b")
	}},
	{"the commit that gave it up is empty", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.commits("")
		p.prunedAway("a")
	}},
	{"the commit that gave it up is broken", wrongDeletion, func(p *play) {
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.push("alpha", playFolder, folder{objects: objects("a=1"), broken: true})
		p.prunedAway("b")
	}},
	{"the commit was pushed before the state that it replaces arrived", "", func(p *play) {
		p.commits("a=1 b=2")
		p.commits("a=1")
		p.takes("a=1 b=2")
		p.prunedAway("b")
	}},
	{"pruning is off", wrongDeletion, func(p *play) {
		p.switchesPruning(false)
		p.rest()
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.commits("a=1")
		p.prunedAway("b")
	}},
	{"pruning was off and is on again", "", func(p *play) {
		p.switchesPruning(false)
		p.rest()
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.commits("a=1")
		p.switchesPruning(true)
		p.prunedAway("b")
	}},
	{"the deployment was deleted", "", func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.asks(consentDelete)
		p.deleted("a")
	}},
	{"a tombstone that nobody asked for", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.edit(playDeployment, "alpha-web-2")
		p.deleted("a")
	}},
	{"a deletion that was refused", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.withdraw(p.consent(consentDelete, playDeployment, ""))
		p.deleted("a")
	}},
	{"a deletion of what was made again since", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.asks(consentDelete)
		p.rest()
		p.takes("a=1")
		p.deleted("a")
	}},
	{"the agent left, and the deployment prunes then", "", func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.leaves()
		p.deleted("a")
	}},
	{"another source was chosen", "", func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.edit(playDeployment, "alpha-web-2")
		p.prunedAway("a")
	}},
	{"the edit is what brought the object", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.edit(playDeployment, playFolder)
		p.takes("a=1")
		p.restore()
		p.prunedAway("a")
	}},
	{"the edit is older than the object", wrongDeletion, func(p *play) {
		p.edit(playDeployment, "alpha-web-2")
		p.rest()
		p.commits("a=1")
		p.takes("a=1")
		p.prunedAway("a")
	}},
	{"a restored backup prunes what it does not know", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.restore()
		p.asks(consentTouch)
		p.prunedAway("a")
	}},
	{"after a restore the prune was held, and then it was confirmed", "", func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.restore()
		p.does(agentsim.EventKept, "a", false)
		p.consent(consentConfirm, playDeployment, playFolder+"-a")
		p.prunedAway("a")
	}},
	{"after a restore the prune was held, and then somebody went on", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.restore()
		p.does(agentsim.EventKept, "a", false)
		p.asks(consentTouch)
		p.prunedAway("a")
	}},
	{"what was held after a restore goes with the next commit", wrongDeletion, func(p *play) {
		p.commits("a=1 b=1")
		p.takes("a=1 b=1")
		p.restore()
		p.does(agentsim.EventKept, "a", false)
		p.commits("b=2")
		p.takes("b=2")
		p.prunedAway("a")
	}},
	{"after a restore the prune was held, and it was confirmed before", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.consent(consentConfirm, playDeployment, playFolder+"-a")
		p.restore()
		p.does(agentsim.EventKept, "a", false)
		p.prunedAway("a")
	}},
}

// storiesOfStates are about the states that an agent gets, and their owners.
var storiesOfStates = []ledgerStory{
	{"a newer commit", "", func(p *play) {
		p.commits("a=1")
		p.takes("a=1")
		p.commits("a=2")
		p.takes("a=2")
	}},
	{"an older commit", olderState, func(p *play) {
		p.commits("a=1")
		p.commits("a=2")
		p.takes("a=2")
		p.takes("a=1")
	}},
	{"a commit that says what an older one did", "", func(p *play) {
		p.commits("a=1")
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.commits("a=1")
		p.takes("a=1")
	}},
	{"a rollback", "", func(p *play) {
		p.commits("a=1")
		p.commits("a=2")
		p.takes("a=2")
		p.asks(consentRollback)
		p.takes("a=1")
	}},
	{"what was confirmed since it left", "", func(p *play) {
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.commits("a=1")
		p.consent(consentConfirm, playDeployment, playFolder+"-b")
		p.takesWith("a=1", fleet.Desired{Confirmed: []string{"ConfigMap default/" + playFolder + "-b"}})
	}},
	{"what was confirmed before it came back", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.consent(consentConfirm, playDeployment, playFolder+"-b")
		p.commits("a=1 b=2")
		p.takes("a=1 b=2")
		p.commits("a=1 c=3")
		p.takesWith("a=1 c=3", fleet.Desired{Confirmed: []string{"ConfigMap default/" + playFolder + "-b"}})
	}},
	{"consent without an edit", wrongDeletion, func(p *play) {
		p.commits("a=1")
		p.takesWith("a=1", fleet.Desired{Consent: true})
	}},
	{"consent with an edit", "", func(p *play) {
		p.commits("a=1")
		p.edit(playDeployment, playFolder)
		p.takesWith("a=1", fleet.Desired{Consent: true})
	}},
	{"a bundle with the policy of its spec", "", func(p *play) {
		p.commits("a=1")
		p.spec(deployment{name: playDeployment, folder: playFolder, env: "default", mark: time.Hour})
		p.takesWith("a=1", fleet.Desired{Policy: fleet.Policy{ReadyTimeout: time.Hour}})
	}},
	{"a bundle with the policy of another spec", otherSpec, func(p *play) {
		p.commits("a=1")
		p.spec(deployment{name: playDeployment, folder: playFolder, env: "default"})
		p.spec(deployment{name: playDeployment, folder: "alpha-web-2", env: "default", mark: time.Hour})
		p.takesWith("a=1", fleet.Desired{Policy: fleet.Policy{ReadyTimeout: time.Hour}})
	}},
	{"a bundle that somebody went back to", "", func(p *play) {
		p.commits("a=1")
		p.spec(deployment{name: playDeployment, folder: playFolder, env: "default"})
		p.spec(deployment{name: playDeployment, folder: "alpha-web-2", env: "default", mark: time.Hour})
		p.asks(consentRun)
		p.takesWith("a=1", fleet.Desired{Policy: fleet.Policy{ReadyTimeout: time.Hour}})
	}},
	{"a bundle on an agent that its spec does not select", otherSpec, func(p *play) {
		p.commits("a=1")
		p.ring(playAgent, "green")
		p.spec(deployment{name: playDeployment, folder: playFolder, env: "alpha"})
		p.takes("a=1")
	}},
	{"what no commit says", lostUpdate, func(p *play) {
		p.commits("a=1")
		p.commits("b=2")
		p.takes("a=1 b=2")
	}},
	{"what is another tenant's", foreignRow, func(p *play) {
		p.observe(agentsim.Event{Kind: agentsim.EventDeleted, Object: agentsim.Object{ObjectRef: fleet.ObjectRef{Name: "bravo-web-1-c1"}}})
	}},
}

func TestLedgerTellsRightFromWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range slices.Concat(storiesOfDeletions, storiesOfStates) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlay(t)
			tt.story(p)
			found := p.found()
			if tt.want == "" && len(found) > 0 || tt.want != "" && (len(found) != 1 || found[0].class != tt.want) {
				t.Errorf("found %v, want %q", found, tt.want)
			}
		})
	}
}
