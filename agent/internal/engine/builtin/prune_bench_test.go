package builtin

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin/kube"
	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// mute is a reporter that says nothing.
type mute struct{}

func (mute) Status(engine.Status)              {}
func (mute) Event(fleet.TargetID, fleet.Event) {}

// BenchmarkPruneRound is one round of a target that is deleted while enough requests are under way. There is
// a round after every few answers.
func BenchmarkPruneRound(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e, err := New(Config{Namespace: "own", REST: &rest.Config{Host: "http://127.0.0.1:1"}, Reporter: mute{}, AgentID: "agent", Scope: fleet.ScopeCluster})
			if err != nil {
				b.Fatal(err)
			}
			t := newTarget(e, "target", fleet.Version{})
			t.inv.inventory = e.store.New("agent", "target")
			t.work.ctx, t.work.client = b.Context(), e.client
			t.work.desired = engine.Desired{Target: "target", State: fleet.Desired{Version: fleet.Version{Generation: 2}, Tombstone: true}}
			for i := range n {
				ref := fleet.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("m%d", i)}
				t.objects[inventory.KeyOf(ref)] = &object{ref: ref, phase: phaseLeaving, leaving: &removal{}, record: record{listed: true, uid: fmt.Sprint(i)}}
			}
			t.sort()
			t.inflight = kube.Parallelism
			for b.Loop() {
				t.now = time.Now()
				t.prune(t.now, t.progress())
			}
		})
	}
}
