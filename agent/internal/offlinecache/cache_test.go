package offlinecache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// room is a namespace with an offline cache in it, and what was sent to the API server.
type store struct {
	cluster   *testkit.Cluster
	namespace string
	budget    int

	mu   sync.Mutex
	sent []string // "PATCH kedge-offline-0"
	fail func(method string) error
	left []string
}

func newStore(t *testing.T) *store {
	t.Helper()
	c := testkit.SharedCluster(t)
	return &store{cluster: c, namespace: c.Namespace(t), budget: MaxBudget}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (r *store) transport(next http.RoundTripper) http.RoundTripper {
	return tripper(func(req *http.Request) (*http.Response, error) {
		r.mu.Lock()
		if req.Method != http.MethodGet {
			r.sent = append(r.sent, req.Method)
		}
		fail := r.fail
		r.mu.Unlock()
		if fail != nil {
			if err := fail(req.Method); err != nil {
				return nil, err
			}
		}
		return next.RoundTrip(req)
	})
}

func (r *store) writes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sent)
}

// enter makes an offline cache as a process that has just started does.
func (r *store) enter(t *testing.T) (*Cache, Snapshot) {
	t.Helper()
	cfg := r.cluster.RESTConfig()
	cfg.Wrap(r.transport)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{
		Secrets: client.Resource(secrets).Namespace(r.namespace), Budget: r.budget, Log: slog.New(slog.DiscardHandler),
		Skipped: func(d engine.Desired, _ string) { r.left = append(r.left, string(d.Target)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := p.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, found
}

// desired is a state with one ConfigMap; noise makes it hard to compress.
func desired(t *testing.T, target string, generation int64, value string, noise int) engine.Desired {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: x}\ndata: {key: %q, noise: %q}\n", value, random(noise))
	objects, err := manifest.Parse("test.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, "x")
	if err != nil {
		t.Fatal(err)
	}
	return engine.Desired{
		Target: fleet.TargetID(target), Tenant: "default", Deployment: "app", Objects: set,
		State: fleet.Desired{
			Version: fleet.Version{Epoch: 1, Generation: generation}, Digest: set.Digest(), Commit: "c0ffee", Namespace: "x",
			Policy: fleet.Policy{Prune: true}, Limits: fleet.Limits{Namespaces: []string{"x"}},
		},
	}
}

func random(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	out := make([]byte, n)
	for i := range out {
		out[i] = letters[rand.IntN(len(letters))]
	}
	return string(out)
}

// settle says that the engine has worked through a state, and has it kept.
func settle(t *testing.T, p *Cache, states ...engine.Desired) {
	t.Helper()
	for _, d := range states {
		p.Offer(d)
		p.Status(engine.Status{Target: d.Target, Observed: fleet.Observed{Version: d.State.Version, Sync: fleet.SyncSynced}})
	}
	round(t, p)
}

func round(t *testing.T, p *Cache) {
	t.Helper()
	if err := p.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var self = Agent{ID: "agt-1", Name: "edge", Tenant: "default", Scope: fleet.ScopeNamespaced, Namespaces: []string{"x"}, IncludeKinds: []string{"ConfigMap"}, ExcludeKinds: []string{"*"}}

// same compares what was found to what was kept, in this order.
func same(t *testing.T, got Snapshot, agent Agent, want ...engine.Desired) {
	t.Helper()
	if diff := cmp.Diff(agent, got.Agent); diff != "" {
		t.Errorf("the agent is (-want +got):\n%s", diff)
	}
	if len(got.Targets) != len(want) {
		t.Fatalf("%d targets are kept, want %d", len(got.Targets), len(want))
	}
	for i, d := range got.Targets {
		if diff := cmp.Diff(want[i].State, d.State); diff != "" || d.Target != want[i].Target || d.Objects.Digest() != want[i].State.Digest {
			t.Errorf("target %s is kept as (-want +got):\n%s", d.Target, diff)
		}
	}
}

// covers: D4
func TestWhatIsKeptIsThereAfterARestart(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	p, found := r.enter(t)
	same(t, found, Agent{})
	p.SetAgent(self)
	a, b, large := desired(t, "tgt-a", 3, "1", 0), desired(t, "tgt-b", 4, "1", 0), desired(t, "tgt-c", 1, "1", 2<<20)
	settle(t, p, a, b, large)
	_, found = r.enter(t)
	same(t, found, self, a, b, large)

	newer := desired(t, "tgt-a", 5, "2", 0)
	settle(t, p, newer)
	p.Forget("tgt-c", func() {})
	round(t, p)
	p, found = r.enter(t)
	same(t, found, self, newer, b)
	if used := p.stored.used; used > 10<<10 {
		t.Errorf("%d bytes are used: the bundles of states that are gone are still there", used)
	}
	size := r.cluster.Kubectl(t, "-n", r.namespace, "get", "secrets", "-l", "kedge.dev/offline=agt-1,kedge.dev/install=edge", "-o", "jsonpath={.items[*].type}")
	if !strings.Contains(size, "kedge.dev/bundle") || strings.Contains(size, "Opaque") {
		t.Errorf("the Secrets are of type %s", size)
	}
}

// covers: D4
func TestNothingIsWrittenUnlessSomethingChanged(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	p, _ := r.enter(t)
	p.SetAgent(self)
	a, b := desired(t, "tgt-a", 1, "1", 0), desired(t, "tgt-b", 1, "1", 0)
	if a.State.Digest != b.State.Digest {
		t.Fatal("the states are to share a bundle")
	}
	settle(t, p, a, b)
	if n := r.writes(); n != 1 {
		t.Errorf("two states of one bundle cost %d writes, want one", n)
	}
	if keys := len(p.stored.at); keys != 4 {
		t.Errorf("there are %d items, want the agent, two targets and one bundle", keys)
	}
	before := r.writes()
	settle(t, p, a, b)
	p.SetAgent(self)
	round(t, p)
	p, _ = r.enter(t)
	settle(t, p, a, b)
	p.SetAgent(self)
	round(t, p)
	if n := r.writes() - before; n != 0 {
		t.Errorf("%d writes although nothing has changed", n)
	}
	p.Offer(desired(t, "tgt-a", 2, "2", 0))
	round(t, p)
	p.Status(engine.Status{Target: "tgt-a", Observed: fleet.Observed{Version: fleet.Version{Epoch: 1, Generation: 2}, Sync: fleet.SyncSyncing}})
	round(t, p)
	if n := r.writes() - before; n != 0 {
		t.Errorf("%d writes for a state that the engine is still at", n)
	}
	settle(t, p, desired(t, "tgt-a", 2, "2", 0))
	if n := r.writes() - before; n != 1 {
		t.Errorf("a change of a small bundle cost %d writes, want one", n)
	}
}

// covers: D4 (damage never does harm)
func TestDamageIsLeftOut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spoil func(t *testing.T, data map[string]string) map[string]any
		want  []string // targets that are left
		agent bool
	}{
		{"a state that was edited", func(*testing.T, map[string]string) map[string]any {
			return map[string]any{"target.tgt-a": "aGFja2Vk"}
		}, []string{"tgt-b"}, true},
		{"a state under another name", func(_ *testing.T, data map[string]string) map[string]any {
			return map[string]any{"target.tgt-x": data["target.tgt-a"]}
		}, []string{"tgt-a", "tgt-b"}, true},
		{"a bundle that was replaced", func(t *testing.T, data map[string]string) map[string]any {
			return map[string]any{bundleOf(t, "a"): data[bundleOf(t, "b")]}
		}, []string{"tgt-b"}, true},
		{"a bundle that is gone", func(t *testing.T, _ map[string]string) map[string]any {
			return map[string]any{bundleOf(t, "b"): nil}
		}, []string{"tgt-a"}, true},
		{"what the server said was edited", func(*testing.T, map[string]string) map[string]any {
			return map[string]any{"agent": "e30="}
		}, []string{"tgt-a", "tgt-b"}, false},
		{"items that nobody knows", func(*testing.T, map[string]string) map[string]any {
			return map[string]any{"bundle.x": "eA==", "bundle.abc.0-of-0": "eA==", "target.": "eA==", "notes": "eA=="}
		}, []string{"tgt-a", "tgt-b"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newStore(t)
			p, _ := r.enter(t)
			p.SetAgent(self)
			a, b := desired(t, "tgt-a", 1, "a", 0), desired(t, "tgt-b", 1, "b", 0)
			settle(t, p, a, b)
			r.edit(t, func(data map[string]string) map[string]any { return tt.spoil(t, data) })
			p, found := r.enter(t)
			var got []string
			for _, d := range found.Targets {
				got = append(got, string(d.Target))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || (found.Agent.ID == self.ID) != tt.agent {
				t.Errorf("agent %+v, targets (-want +got):\n%s", found.Agent, diff)
			}
			// It mends itself when the states come again.
			p.SetAgent(self)
			settle(t, p, a, b)
			p, found = r.enter(t)
			same(t, found, self, a, b)
			if len(p.stored.at) != 5 {
				t.Errorf("there are %d items, want the agent, two targets and two bundles", len(p.stored.at))
			}
		})
	}
}

// bundleOf returns the key of the bundle with a value.
func bundleOf(t *testing.T, value string) string {
	t.Helper()
	return partKeys(desired(t, "tgt", 1, value, 0).State.Digest, 1)[0]
}

// edit changes items of the first Secret, as somebody with a text editor does; nil removes one.
func (r *store) edit(t *testing.T, change func(data map[string]string) map[string]any) {
	t.Helper()
	var data map[string]string
	if err := json.Unmarshal([]byte(r.cluster.Kubectl(t, "-n", r.namespace, "get", "secret", "kedge-offline-0", "-o", "jsonpath={.data}")), &data); err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"data": change(data)})
	if err != nil {
		t.Fatal(err)
	}
	r.cluster.Kubectl(t, "-n", r.namespace, "patch", "secret", "kedge-offline-0", "--type=merge", "-p", string(patch))
}

// covers: D4
func TestForeignSecretIsNeverTouched(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	r.cluster.Kubectl(t, "-n", r.namespace, "create", "secret", "generic", "kedge-offline-0", "--from-literal=agent=mine")
	p, found := r.enter(t)
	same(t, found, Agent{})
	p.SetAgent(self)
	a := desired(t, "tgt-a", 1, "1", 0)
	settle(t, p, a)
	_, found = r.enter(t)
	same(t, found, self, a)
	if got := r.cluster.Kubectl(t, "-n", r.namespace, "get", "secret", "kedge-offline-0", "-o", "jsonpath={.data}"); got != `{"agent":"bWluZQ=="}` {
		t.Errorf("the Secret of somebody else holds %s", got)
	}
}

// covers: D4
func TestWhatDoesNotFitIsSaidAndHurtsNothingElse(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	r.budget = 300 << 10
	p, _ := r.enter(t)
	p.SetAgent(self)
	a, large := desired(t, "tgt-a", 1, "1", 0), desired(t, "tgt-b", 1, "1", 600<<10)
	settle(t, p, a, large)
	settle(t, p, large)
	_, found := r.enter(t)
	same(t, found, self, a)
	if diff := cmp.Diff([]string{"tgt-b"}, r.left); diff != "" {
		t.Errorf("told of (-want +got):\n%s", diff)
	}
	half := desired(t, "tgt-b", 2, "1", 200<<10)
	settle(t, p, half)
	other := desired(t, "tgt-b", 3, "2", 200<<10) // there is room for one of them only
	settle(t, p, other)
	round(t, p)
	_, found = r.enter(t)
	same(t, found, self, a, other)
}

// covers: D4
func TestAnotherAgentFindsNothingOfTheOneBefore(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	p, _ := r.enter(t)
	p.SetAgent(self)
	settle(t, p, desired(t, "tgt-a", 1, "1", 0))
	other := self
	other.ID = "agt-2"
	p.SetAgent(other)
	round(t, p)
	_, found := r.enter(t)
	same(t, found, other)
}

// covers: C8
func TestRefusalIsRememberedUntilTheAgentIsLetInAgain(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	p, _ := r.enter(t)
	p.Refused() // it never was let in: there is nothing to remember
	round(t, p)
	if n := r.writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
	p.SetAgent(self)
	round(t, p)
	p.Refused()
	round(t, p)
	refused := self
	refused.Refused = true
	p, found := r.enter(t)
	same(t, found, refused)
	p.SetAgent(self)
	round(t, p)
	_, found = r.enter(t)
	same(t, found, self)
}

// covers: O7
func TestKillAtAnyWriteLeavesOneStateOrTheOther(t *testing.T) {
	t.Parallel()
	for kill := 1; kill <= 6; kill++ {
		t.Run(fmt.Sprint("write ", kill), func(t *testing.T) {
			t.Parallel()
			r := newStore(t)
			p, _ := r.enter(t)
			p.SetAgent(self)
			old, fresh := desired(t, "tgt-a", 1, "1", 1<<20), desired(t, "tgt-a", 2, "2", 1<<20)
			settle(t, p, old)
			left := kill
			r.mu.Lock()
			r.fail = func(method string) error {
				if method == http.MethodGet {
					return nil
				}
				if left--; left <= 0 {
					return errors.New("killed")
				}
				return nil
			}
			r.mu.Unlock()
			p.Offer(fresh)
			p.Status(engine.Status{Target: "tgt-a", Observed: fleet.Observed{Version: fresh.State.Version, Sync: fleet.SyncSynced}})
			failed := p.flush(t.Context())
			r.mu.Lock()
			r.fail = nil
			r.mu.Unlock()
			_, found := r.enter(t)
			if len(found.Targets) != 1 {
				t.Fatalf("%d targets are kept after a kill (%v)", len(found.Targets), failed)
			}
			if failed == nil {
				same(t, found, self, fresh)
			}
			round(t, p) // the one that goes on makes it good
			_, found = r.enter(t)
			same(t, found, self, fresh)
		})
	}
}

// covers: D4
func TestForgettingComesFirstAndNeverHangs(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	p, _ := r.enter(t)
	p.SetAgent(self)
	settle(t, p, desired(t, "tgt-a", 1, "1", 0), desired(t, "tgt-b", 1, "2", 0))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() { cancel(); <-done }()
	try := func(target fleet.TargetID) time.Duration {
		began, called := time.Now(), make(chan struct{})
		p.Forget(target, func() { close(called) })
		select {
		case <-called:
		case <-time.After(20 * time.Second):
			t.Fatal("it was never called")
		}
		return time.Since(began)
	}
	try("tgt-a")
	_, found := r.enter(t)
	if len(found.Targets) != 1 {
		t.Errorf("%d targets are kept when the deletion begins", len(found.Targets))
	}
	if took := try("tgt-unknown"); took > time.Second {
		t.Errorf("a target that is not kept was waited for %v", took)
	}
	r.mu.Lock()
	r.fail = func(string) error { return errors.New("the cluster is away") }
	r.mu.Unlock()
	try("tgt-b")
	r.mu.Lock()
	r.fail = nil
	r.mu.Unlock()
}

// covers: D4
func TestStateIsKeptBeforeItIsWorkedThrough(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	p, _ := r.enter(t)
	p.SetAgent(self)
	first, second := desired(t, "tgt-a", 1, "1", 0), desired(t, "tgt-a", 2, "2", 0)
	settle(t, p, first)
	closed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	p.Offer(second)
	if !closed(p.Secure("tgt-a", first.State.Version)) {
		t.Error("a version that is not offered any more is waited for")
	}
	kept := p.Secure("tgt-a", second.State.Version)
	if closed(kept) {
		t.Fatal("it is said to be kept before it was")
	}
	round(t, p)
	_, found := r.enter(t)
	same(t, found, self, second)
	if !closed(kept) || !closed(p.Secure("tgt-a", second.State.Version)) {
		t.Error("a version that is kept is waited for")
	}

	third := desired(t, "tgt-a", 3, "3", 0)
	p.Offer(third)
	kept = p.Secure("tgt-a", third.State.Version)
	p.Status(engine.Status{Target: "tgt-a", Observed: fleet.Observed{Version: third.State.Version, Sync: fleet.SyncSynced}})
	r.mu.Lock()
	r.fail = func(string) error { return errors.New("away") }
	r.mu.Unlock()
	if err := p.flush(t.Context()); err == nil {
		t.Fatal("it was written")
	}
	if !closed(kept) {
		t.Error("what cannot be kept holds the engine up")
	}
	forgotten := make(chan struct{})
	fourth := desired(t, "tgt-a", 4, "4", 0)
	p.Offer(fourth)
	kept = p.Secure("tgt-a", fourth.State.Version)
	p.Forget("tgt-a", func() { close(forgotten) })
	r.mu.Lock()
	r.fail = nil
	r.mu.Unlock()
	round(t, p)
	if !closed(kept) || !closed(forgotten) {
		t.Error("whoever waits for a state that was replaced waits for ever")
	}
	if _, found := r.enter(t); len(found.Targets) != 0 {
		t.Error("what was to be forgotten is kept")
	}
}

func TestWhoeverWaitsForAStateWaitsUntilItIsKept(t *testing.T) {
	t.Parallel()
	r := newStore(t)
	r.budget = 300 << 10
	p, _ := r.enter(t)
	p.SetAgent(self)
	waits := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return false
		default:
			return true
		}
	}
	first, second := desired(t, "tgt-a", 1, "1", 200<<10), desired(t, "tgt-a", 2, "2", 200<<10)
	p.Offer(first)
	p.Status(engine.Status{Target: "tgt-a", Observed: fleet.Observed{Version: first.State.Version, Sync: fleet.SyncSynced}})
	kept := p.Secure("tgt-a", first.State.Version)
	if !waits(kept) {
		t.Error("a state that the next round keeps is said to be kept")
	}
	round(t, p)
	if waits(kept) {
		t.Error("it is kept, and waited for")
	}

	p.Offer(second)
	p.Offer(first)
	kept = p.Secure("tgt-a", second.State.Version)
	if !waits(kept) {
		t.Fatal("an older state has replaced a newer one")
	}
	round(t, p) // there is no room for both: this one drops the first
	if !waits(kept) {
		t.Error("a state that is put off to the next round is said to be kept")
	}
	round(t, p)
	if waits(kept) {
		t.Error("it is kept, and waited for")
	}
	_, found := r.enter(t)
	same(t, found, self, second)
}
