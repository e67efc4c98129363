package agentsim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
)

// rig is a cluster with the newest process of its agent.
type rig struct {
	*hand
	events   []string
	statuses map[fleet.TargetID]engine.Status
}

func newRig() *rig {
	r := &rig{statuses: map[fleet.TargetID]engine.Status{}}
	c := NewCluster(func(e Event) {
		if e.Kind != EventTaken {
			r.events = append(r.events, string(e.Kind)+" "+e.Object.Name)
		}
	})
	r.hand = &hand{cluster: c}
	r.restart()
	return r
}

// restart makes a new process on the same cluster.
func (r *rig) restart() {
	r.hand = newHand(r.cluster, "replica", func(s engine.Status) { r.statuses[s.Target] = s })
}

func wanting(t *testing.T, target string, generation int64, objects string, with ...func(*fleet.Desired)) engine.Desired {
	t.Helper()
	d := engine.Desired{Target: fleet.TargetID(target), Tenant: "alpha", Deployment: strings.TrimRight(target, "0123456789")}
	d.State = fleet.Desired{Version: fleet.Version{Generation: generation}, Namespace: "ns", Policy: fleet.Policy{Prune: true}}
	for _, w := range with {
		w(&d.State)
	}
	if d.State.Tombstone || d.State.Detached {
		return d
	}
	var parsed []manifest.Object
	for _, name := range strings.Fields(objects) {
		found, err := manifest.Parse(name, fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %q}\n", name))
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, found...)
	}
	var err error
	if d.Objects, err = manifest.NewSet(parsed, "ns"); err != nil {
		t.Fatal(err)
	}
	d.State.Digest = d.Objects.Digest()
	return d
}

func (r *rig) names() string {
	var out []string
	for _, o := range r.cluster.Objects() {
		name := o.Name
		if o.Target == "" {
			name += "?"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func tombstone(d *fleet.Desired) { d.Tombstone = true }
func detached(d *fleet.Desired)  { d.Detached = true }
func held(d *fleet.Desired)      { d.HoldPrune = true }
func limited(d *fleet.Desired)   { d.Policy.PruneLimit = fleet.PruneLimit{Objects: 1, Percent: 1} }
func consented(d *fleet.Desired) { d.Consent = true }
func confirmed(d *fleet.Desired) { d.Confirmed = []string{"ConfigMap ns/x"} }
func unpruned(d *fleet.Desired)  { d.Policy.Prune = false }
func adopting(d *fleet.Desired)  { d.Policy.Adopt = true }

// handStory is what a hand is told, and what has become of the cluster then.
type handStory struct {
	name, reason string
	told         []engine.Desired
	objects      string // with a "?" behind those that are nobody's
	events       []string
	sync         fleet.SyncState // of target a
}

// What happens beside being told of a desired state.
var (
	restart = engine.Desired{Target: "restart"}
	pending = engine.Desired{Target: "pending"}
	settled = engine.Desired{Target: "settled"}
)

// storiesOfPruning are about what leaves a bundle.
func storiesOfPruning(t *testing.T) []handStory {
	t.Helper()
	return []handStory{
		{
			name: "prunes", reason: "what has left a whole bundle goes",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), wanting(t, "a", 2, "y z")},
			objects: "y z", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "hold", reason: "the first prune after a rewind is held, and told of once",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), wanting(t, "a", 2, "y", held), wanting(t, "a", 2, "y", held)},
			objects: "x y", events: []string{"kept x"}, sync: fleet.SyncOutOfSync,
		},
		{
			name: "hold stays", reason: "what was held stays so in the next state, and after a restart",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), wanting(t, "a", 2, "y", held), wanting(t, "a", 3, "y"), restart, wanting(t, "a", 4, "y", consented)},
			objects: "x y", events: []string{"kept x"}, sync: fleet.SyncOutOfSync,
		},
		{
			name: "hold ends", reason: "what was held goes when it is confirmed",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), wanting(t, "a", 2, "y", held), wanting(t, "a", 3, "y", confirmed)},
			objects: "y", events: []string{"kept x", "deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "policy", reason: "a deployment may say that nothing is pruned",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), wanting(t, "a", 2, "y", unpruned)},
			objects: "x y", sync: fleet.SyncSynced,
		},
		{
			name: "empty", reason: "an empty bundle is no reason to delete",
			told:    []engine.Desired{wanting(t, "a", 1, "x"), wanting(t, "a", 2, "")},
			objects: "x", sync: fleet.SyncSynced,
		},
		{
			name: "older", reason: "an older state is ignored",
			told:    []engine.Desired{wanting(t, "a", 2, "x y"), wanting(t, "a", 1, "y")},
			objects: "x y", events: []string{"ignored "}, sync: fleet.SyncSynced,
		},
		{
			name: "older after a restart", reason: "the cluster remembers the version",
			told:    []engine.Desired{wanting(t, "a", 2, "x y"), restart, wanting(t, "a", 1, "y")},
			objects: "x y", events: []string{"ignored "}, sync: fleet.SyncSynced,
		},
		{
			name: "prunes after a restart", reason: "the cluster remembers what was applied",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), restart, wanting(t, "a", 2, "y")},
			objects: "y", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "silence", reason: "what a new process is not told of it does not touch",
			told:    []engine.Desired{wanting(t, "a", 1, "x"), restart, wanting(t, "b", 1, "y")},
			objects: "x y", sync: fleet.SyncSynced,
		},
	}
}

// storiesOfTargets are about targets that go, come back, or have to do with each other.
func storiesOfTargets(t *testing.T) []handStory {
	t.Helper()
	return []handStory{
		{
			name: "tombstone", reason: "a tombstone takes everything of its target",
			told:    []engine.Desired{wanting(t, "a", 1, "x"), wanting(t, "b", 1, "y"), wanting(t, "a", 2, "", tombstone)},
			objects: "y", events: []string{"deleted x"}, sync: fleet.SyncDeleted,
		},
		{
			name: "tombstone of nothing", reason: "one that is not known is acknowledged",
			told: []engine.Desired{wanting(t, "a", 2, "", tombstone)}, sync: fleet.SyncDeleted,
		},
		{
			name: "waits", reason: "what one gives up may be what another is about to desire",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), pending, wanting(t, "a", 2, "y")},
			objects: "x y", sync: fleet.SyncSyncing,
		},
		{
			name: "goes on", reason: "when everything has arrived, the prune goes on by itself",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), pending, wanting(t, "a", 2, "y"), settled},
			objects: "y", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "hands over", reason: "an object that moves is never deleted in between",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), pending, wanting(t, "a", 2, "", tombstone), wanting(t, "b", 1, "x"), settled},
			objects: "x", events: []string{"deleted y"}, sync: fleet.SyncDeleted,
		},
		{
			name: "too many", reason: "more than the limit are kept until they are confirmed",
			told:    []engine.Desired{wanting(t, "a", 1, "x y z"), wanting(t, "a", 2, "z", limited)},
			objects: "x y z", sync: fleet.SyncOutOfSync,
		},
		{
			name: "few", reason: "as many as the limit are deleted",
			told:    []engine.Desired{wanting(t, "a", 1, "x y z"), wanting(t, "a", 2, "y z", limited)},
			objects: "y z", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "consent", reason: "what an edit brings is not limited",
			told:    []engine.Desired{wanting(t, "a", 1, "x y z"), wanting(t, "a", 2, "z", limited, consented)},
			objects: "z", events: []string{"deleted x", "deleted y"}, sync: fleet.SyncSynced,
		},
		{
			name: "confirmed", reason: "what is confirmed goes; the rest stays, though it is few now, and though an edit comes",
			told: []engine.Desired{
				wanting(t, "a", 1, "x y z"), wanting(t, "a", 2, "z", limited), wanting(t, "a", 3, "z", limited, confirmed),
				{Target: "restart"}, wanting(t, "a", 4, "z", limited, consented),
			},
			objects: "y z", events: []string{"deleted x"}, sync: fleet.SyncOutOfSync,
		},
		{
			name: "wanted again", reason: "what comes back into the bundle waits for nobody when it leaves alone",
			told: []engine.Desired{
				wanting(t, "a", 1, "x y z"), wanting(t, "a", 2, "z", limited), wanting(t, "a", 3, "x y z", limited), wanting(t, "a", 4, "y z", limited),
			},
			objects: "y z", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
		{
			name: "refuses", reason: "what belongs to another deployment is not taken",
			told:    []engine.Desired{wanting(t, "b", 1, "x"), wanting(t, "a", 1, "x y")},
			objects: "x y", sync: fleet.SyncFailed,
		},
		{
			name: "detached", reason: "letting go deletes nothing",
			told:    []engine.Desired{wanting(t, "a", 1, "x"), wanting(t, "a", 2, "", detached)},
			objects: "x?", events: []string{"let go x"}, sync: fleet.SyncDetached,
		},
		{
			name: "attached again", reason: "a deployment takes up what it has let go of, and forgets the rest",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), wanting(t, "a", 2, "", detached), wanting(t, "a", 3, "y")},
			objects: "x? y", events: []string{"let go x", "let go y"}, sync: fleet.SyncSynced,
		},
		{
			name: "left by another target", reason: "what a target of the same deployment has left that nobody speaks of is taken over",
			told:    []engine.Desired{wanting(t, "a1", 1, "x y"), {Target: "restart"}, wanting(t, "a", 1, "x")},
			objects: "x y", sync: fleet.SyncSynced,
		},
		{
			name: "left by another deployment", reason: "nobody has spoken of it yet, and it is not of this deployment",
			told:    []engine.Desired{wanting(t, "b", 1, "x"), {Target: "restart"}, wanting(t, "a", 1, "x")},
			objects: "x", sync: fleet.SyncFailed,
		},
		{
			name: "supersedes", reason: "of a deployment the target that came last is worked on, and deletes nothing of the other",
			told:    []engine.Desired{wanting(t, "a1", 1, "x y"), wanting(t, "a", 1, "x"), wanting(t, "a1", 1, "x y")},
			objects: "x y", sync: fleet.SyncSynced,
		},
		{
			name: "superseded", reason: "the one before says so",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), wanting(t, "a1", 1, "x")},
			objects: "x y", sync: fleet.SyncRewound,
		},
		{
			name: "wanted after all", reason: "a server that still wants it sends something newer",
			told:    []engine.Desired{wanting(t, "a", 1, "x y"), wanting(t, "a1", 1, "x"), wanting(t, "a", 2, "x y")},
			objects: "x y", sync: fleet.SyncSynced,
		},
		{
			name: "comes back", reason: "after a restored backup a target that is gone may be desired again, with an old version",
			told:    []engine.Desired{wanting(t, "a", 1, "x"), wanting(t, "a", 2, "", tombstone), wanting(t, "a", 1, "x", adopting)},
			objects: "x", events: []string{"deleted x"}, sync: fleet.SyncSynced,
		},
	}
}

func TestHandKeepsTheContractOfEngines(t *testing.T) {
	t.Parallel()
	for _, tt := range slices.Concat(storiesOfPruning(t), storiesOfTargets(t)) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig()
			for _, d := range tt.told {
				switch d.Target {
				case "restart":
					r.restart()
				case "pending":
					r.Pending(1)
				case "settled":
					r.Pending(0)
				default:
					r.Set(d)
				}
			}
			if got := r.names(); got != tt.objects {
				t.Errorf("%s: the cluster holds %q, want %q", tt.reason, got, tt.objects)
			}
			if diff := cmp.Diff(tt.events, r.events); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
			if got := r.statuses["a"].Observed.Sync; got != tt.sync {
				t.Errorf("%s: target a is %s (%s), want %s", tt.reason, got, r.statuses["a"].Observed.Message, tt.sync)
			}
		})
	}
}
