package gateway_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/wire"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// An agent that claims a version which no server can have sent gets an error for that target. The message names
// both versions. The server does not continue from the claimed version and does not retry in a loop, and serves
// the other agents as usual.
func TestImplausibleVersionIsRejected(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, a, b *replica) {
		paris, rome := enroll(t, a, "default", "paris"), enroll(t, a, "default", "rome")
		deploy(t, a, "default", "app", "")
		render(t, a, "default", "app", "1")
		implausible, plausible := targetOf(t, a, paris.Agent), targetOf(t, a, rome.Agent)
		claim := fleet.Version{Epoch: math.MaxInt64, Generation: math.MaxInt64}
		here, _ := connect(t, a.server, paris.Token, func(h *wire.Hello) { h.TargetStates = map[fleet.TargetID]wire.TargetState{} })
		here.snapshot()
		here.status(wire.Status{Target: implausible.ID, Full: true, Observed: fleet.Observed{Version: claim, Sync: fleet.SyncSynced, AsOf: time.Now()}})
		awaitRejected(t, a, implausible.ID)

		again, _ := connect(t, a.server, paris.Token, func(h *wire.Hello) {
			h.TargetStates = map[fleet.TargetID]wire.TargetState{implausible.ID: {Target: implausible.ID, Version: claim}}
		})
		if got := again.snapshot(); len(got) != 0 {
			t.Errorf("the agent that claims to be ahead received %v", got)
		}
		there, _ := connect(t, b.server, rome.Token, nil)
		there.held()
		there.snapshot()
		// A tombstone does not need Git, so a loop would be fastest here.
		if _, err := a.DeleteDeployment(t.Context(), admin, "default", "app", control.Match{}); err != nil {
			t.Fatal(err)
		}
		d := there.recv().GetDesired()
		if !d.GetTombstone() || d.GetGeneration() != 2 {
			t.Fatalf("the other agent received %v, want its tombstone", d)
		}
		there.status(deleted(plausible, d.GetGeneration()))
		for there.recv().GetStatusStored() == nil {
		}
		assertQuiet(t, a, there, plausible)
		if now := targetOf(t, a, paris.Agent); now.Desired.Generation != 2 || now.Observed.Generation > 2 {
			t.Errorf("desired is generation %d, observed %d: want the generations of the server", now.Desired.Generation, now.Observed.Generation)
		}
	})
}

// assertQuiet verifies that the server writes nothing while it answers an agent many times.
func assertQuiet(t *testing.T, r *replica, p *testAgent, target fleet.Target) {
	t.Helper()
	before := lastChange(t, r)
	for i := range 50 {
		p.status(deleted(target, int64(2)))
		for p.recv().GetStatusStored().GetCount() < int64(i+2) {
		}
	}
	if wrote := lastChange(t, r) - before; wrote > 2 {
		t.Errorf("%d changes were written, although nothing changed", wrote)
	}
}

func deleted(t fleet.Target, generation int64) wire.Status {
	return wire.Status{Target: t.ID, Full: true, Observed: fleet.Observed{
		Version: fleet.Version{Epoch: 1, Generation: generation}, Sync: fleet.SyncDeleted, AsOf: time.Now(),
	}}
}

func awaitRejected(t *testing.T, r *replica, id fleet.TargetID) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		return r.store.View(ctx, func(tx store.Tx) error {
			tenant, err := tx.Tenants().ByName(ctx, "default")
			if err != nil {
				return err
			}
			target, err := tx.Targets().Get(ctx, tenant.ID, id)
			if err == nil && (target.Observed.Sync != fleet.SyncFailed || !strings.Contains(target.Observed.Message, "9223372036854775807")) {
				err = fmt.Errorf("observed %+v", target.Observed)
			}
			return err
		})
	})
}

func targetOf(t *testing.T, r *replica, agent fleet.Agent) fleet.Target {
	t.Helper()
	targets, err := r.TargetsOf(t.Context(), agent, nil)
	if err != nil || len(targets) != 1 {
		t.Fatalf("agent %s has %d targets: %v", agent.Name, len(targets), err)
	}
	return targets[0].Target
}

func lastChange(t *testing.T, r *replica) (last int64) {
	t.Helper()
	err := r.store.View(t.Context(), func(tx store.Tx) (err error) {
		last, err = tx.Changes().Last(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}
