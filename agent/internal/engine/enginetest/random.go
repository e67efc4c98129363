package enginetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/apiproxy"
)

// randomCases play random sequences against a model: one that is always the same, and a new one, or that of the flag
// -seed. KEDGE_ENGINE_STEPS makes them longer.
var randomCases = []testCase{
	{"holds just what it should after any sequence of bundles, moves, hand edits, kills and partitions", randomly(1)},
	{"holds just what it should after any other such sequence", randomly(0)},
}

// randomly plays the sequence of a seed, or of a new one for 0.
func randomly(seed uint64) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		seed := seed
		if seed == 0 {
			seed = testkit.Seed(t)
		}
		steps, err := strconv.Atoi(os.Getenv("KEDGE_ENGINE_STEPS"))
		if err != nil {
			steps = 25
			if w.h.ArgoCD != "" { // a step takes seconds
				steps = 8
			}
		}
		g := newGame(t, w, seed)
		t.Cleanup(func() {
			if t.Failed() {
				g.describe(t, seed)
			}
		})
		for range steps {
			g.step(t)
			if t.Failed() {
				break
			}
		}
	}
}

// describe logs the steps of a sequence that failed, and the last status of both targets.
func (g *game) describe(t *testing.T, seed uint64) {
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	t.Logf("seed %d; steps:\n%s", seed, strings.Join(g.played, "\n"))
	for _, target := range g.targets {
		t.Logf("target %s: %s", target, describe(g.rec.statuses[target]))
	}
}

// game is two targets of one agent, what they shall hold, and what was done to them.
type game struct {
	*world
	rand    *rand.Rand
	proxy   *apiproxy.Proxy
	e       *running
	targets [2]fleet.TargetID
	holds   [2]map[string]string
	version int64
	apart   bool            // the API server cannot be reached
	home    map[string]int  // the target that owned each object at the last rest
	edited  map[string]bool // edited in a partition since the last rest: these stay with their target
	played  []string

	mu     sync.Mutex
	stay   map[string]bool // desired all the time since the last rest: nobody may delete these
	wrongs []string
	marks  chan string
	mark   int
}

const names = 9

func newGame(t *testing.T, w *world, seed uint64) *game {
	g := &game{
		world: w, rand: rand.New(rand.NewPCG(seed, 0)), targets: [2]fleet.TargetID{fleet.NewTargetID(), fleet.NewTargetID()},
		holds: [2]map[string]string{{"n0": "1", "n1": "1"}, {"n5": "1"}}, stay: map[string]bool{}, marks: make(chan string, 64),
	}
	w.h.Cluster.Kubectl(t, "-n", w.ns, "create", "configmap", "bystander")
	g.proxy = apiproxy.New(t, w.rest)
	w.rest = g.proxy.Config()
	g.guard(t)
	g.restart(t)
	g.rest(t)
	return g
}

// guard watches for deletions that nobody has asked for.
func (g *game) guard(t *testing.T) {
	events, err := g.client.Resource(configMaps).Namespace(g.ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	go func() {
		for e := range events.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				g.saw(e.Type, o)
			}
		}
	}()
}

func (g *game) saw(kind watch.EventType, o *unstructured.Unstructured) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case kind == watch.Deleted && (g.stay[o.GetName()] || o.GetName() == "bystander"):
		g.wrongs = append(g.wrongs, o.GetName()+" was deleted, and is desired all the time")
	case o.GetName() == "bystander":
		select {
		case g.marks <- value(o, "mark"):
		default:
		}
	}
}

// caughtUp waits until the guard has seen everything that has happened so far.
func (g *game) caughtUp(t *testing.T) {
	t.Helper()
	g.mark++
	mark := fmt.Sprint(g.mark)
	g.edit(t, "test", "bystander", `{"data":{"mark":"`+mark+`"}}`)
	for seen := ""; seen != mark; {
		select {
		case seen = <-g.marks:
		case <-t.Context().Done():
			t.Fatal("the watch does not catch up")
		}
	}
}

// step does one thing at random. Now and then everything comes to rest and is compared.
func (g *game) step(t *testing.T) {
	moves := []struct {
		name string
		do   func(*testing.T)
	}{
		{"bundle", g.bundle}, {"bundle", g.bundle}, {"move", g.move}, {"move", g.move}, {"edit", g.handEdit}, {"delete", g.handDelete},
		{"kill", g.kill}, {"kill in a sync", g.killInSync}, {"partition", g.partition}, {"lost answers", g.loseAnswers}, {"old state", g.replay},
		{"edits before a restart", g.editAndKill},
	}
	m := moves[g.rand.IntN(len(moves))]
	m.do(t)
	g.played = append(g.played, fmt.Sprintf("%s: %v", m.name, g.holds))
	if !g.apart || g.rand.IntN(3) == 0 {
		g.rest(t)
	}
}

// restart starts an engine as an agent does: what there is is told to it at once.
func (g *game) restart(t *testing.T) {
	g.e = g.startEventually(t)
	g.e.Pending(1)
	g.tell(t)
}

// tell sets what is desired of both targets, at the newest version.
func (g *game) tell(t *testing.T) {
	g.version++
	g.e.Pending(2)
	slow := g.rand.IntN(2) == 0
	for _, i := range g.rand.Perm(2) {
		g.e.Set(g.state(t, i, g.version))
		if slow && !g.apart {
			g.workedOn(t, g.targets[i])
		}
	}
	g.e.Pending(0)
}

// workedOn gives an engine the time to go wrong: what it was told is applied, and the rest not known yet.
func (g *game) workedOn(t *testing.T, target fleet.TargetID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // it may be about to be killed
	defer cancel()
	for ctx.Err() == nil {
		g.rec.mu.Lock()
		s, changed := g.rec.statuses[target], g.rec.changed
		g.rec.mu.Unlock()
		if s.Observed.Generation == g.version && s.Observed.Digest != "" {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// state is what is desired of one target, as a server says it.
func (g *game) state(t *testing.T, i int, version int64) engine.Desired {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(g.holds[i])) {
		text.WriteString(configMap(name, g.holds[i][name]))
	}
	d := g.world.desired(t, version, text.String())
	d.Target, d.Deployment = g.targets[i], fmt.Sprintf("app-%d", i)
	return d
}

func (g *game) union() map[string]string {
	all := maps.Clone(g.holds[0])
	maps.Copy(all, g.holds[1])
	return all
}

// change replaces what is desired, and remembers what was desired all the time.
func (g *game) change(t *testing.T, next [2]map[string]string) {
	g.holds = next
	all := g.union()
	g.mu.Lock()
	maps.DeleteFunc(g.stay, func(name string, _ bool) bool { _, ok := all[name]; return !ok })
	g.mu.Unlock()
	g.tell(t)
}

func (g *game) bundle(t *testing.T) {
	next := g.holds
	i := g.rand.IntN(2)
	next[i] = map[string]string{}
	for n := range names {
		name := fmt.Sprintf("n%d", n)
		if _, taken := next[1-i][name]; !taken && g.rand.IntN(2) == 0 && !(g.edited[name] && g.home[name] != i) {
			next[i][name] = fmt.Sprint(g.rand.IntN(3))
		}
	}
	if len(next[i]) > 0 {
		g.change(t, next)
	}
}

// move hands some objects from one target to the other.
func (g *game) move(t *testing.T) {
	from := g.rand.IntN(2)
	next := [2]map[string]string{maps.Clone(g.holds[0]), maps.Clone(g.holds[1])}
	for _, name := range slices.Sorted(maps.Keys(g.holds[from])) {
		if len(next[from]) > 1 && g.rand.IntN(2) == 0 && !g.edited[name] {
			next[1-from][name] = next[from][name]
			delete(next[from], name)
		}
	}
	g.change(t, next)
}

// handle is a name that people lay their hands on.
func (g *game) handle() string { return fmt.Sprintf("n%d", g.rand.IntN(names)) }

// handEdit edits an object. The engine cannot see the edit in a partition. If the object then moved to another target, the
// edit would be a conflict, which only force decides: fields that others set stay theirs when an object changes its target.
func (g *game) handEdit(t *testing.T) {
	name := g.handle()
	if g.apart {
		home, owned := g.home[name]
		if _, desired := g.holds[home][name]; !owned || !desired {
			return
		}
		g.edited[name] = true
	}
	_, err := g.client.Resource(configMaps).Namespace(g.ns).Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"data":{"key":"by hand","more":"by hand"}}`), metav1.PatchOptions{FieldManager: "hand"})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func (g *game) handDelete(t *testing.T) {
	name := g.handle()
	g.mu.Lock()
	delete(g.stay, name)
	g.mu.Unlock()
	err := g.client.Resource(configMaps).Namespace(g.ns).Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func (g *game) kill(t *testing.T) {
	g.e.stop()
	g.reach()
	g.restart(t)
}

// killInSync lets an engine die in the middle of a new bundle.
func (g *game) killInSync(t *testing.T) {
	g.reach()
	killed := g.killRequest(1+g.rand.IntN(12), g.rand.IntN(2) == 0)
	g.bundle(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // it may need fewer requests
	defer cancel()
	select {
	case <-killed:
	case <-ctx.Done():
	}
	g.e.stop()
	g.traffic.interfere(nil, nil)
	g.restart(t)
}

// editAndKill edits objects in a partition and starts another engine with a new bundle, which has never seen the objects
// without the edits.
func (g *game) editAndKill(t *testing.T) {
	g.part()
	for range names {
		g.handEdit(t)
	}
	g.bundle(t)
	g.kill(t)
}

// part begins a partition.
func (g *game) part() {
	g.apart = true
	g.proxy.Do(func(*http.Request) *apiproxy.Fault { return &apiproxy.Fault{Refuse: true} })
	g.proxy.Sever()
}

func (g *game) partition(t *testing.T) {
	if g.apart {
		g.reach()
		return
	}
	g.part()
	if g.rand.IntN(2) == 0 {
		g.bundle(t)
	}
}

// reach ends a partition.
func (g *game) reach() {
	g.apart = false
	g.proxy.Do(nil)
}

// loseAnswers carries some writes out without saying so.
func (g *game) loseAnswers(t *testing.T) {
	left := 1 + g.rand.IntN(4)
	g.proxy.Do(func(r *http.Request) *apiproxy.Fault {
		if left == 0 || !isWrite(r) {
			return nil
		}
		left--
		return &apiproxy.Fault{Lose: true}
	})
	g.apart = false
	g.bundle(t)
}

// replay tells an old state again, which counts for nothing.
func (g *game) replay(t *testing.T) {
	if g.version < 3 {
		return
	}
	old := g.state(t, 0, g.version-2)
	old.Objects, old.State.Digest, old.State.Tombstone = nil, "", true
	g.e.Set(old)
}

// rest waits until everything is as desired, and compares.
func (g *game) rest(t *testing.T) {
	t.Helper()
	g.reach()
	for _, target := range g.targets {
		g.rec.status(t, target, g.version, fleet.SyncSynced)
	}
	want := g.union()
	testkit.Eventually(t, limit, func(ctx context.Context) error {
		list, err := g.client.Resource(configMaps).Namespace(g.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for i := range list.Items {
			if name := list.Items[i].GetName(); name != "kube-root-ca.crt" && name != "bystander" {
				got[name] = value(&list.Items[i], "key")
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("the cluster holds %v, want %v", got, want)
		}
		return nil
	})
	g.caughtUp(t)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, wrong := range g.wrongs {
		t.Error(wrong)
	}
	for name := range want {
		g.stay[name] = true
	}
	g.home, g.edited = map[string]int{}, map[string]bool{}
	for i, held := range g.holds {
		for name := range held {
			g.home[name] = i
		}
	}
}
