package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// recordingEngine records the targets that it receives.
type recordingEngine struct{ sets []string }

func (n *recordingEngine) Recover(context.Context) ([]engine.Held, error) { return nil, nil }
func (n *recordingEngine) Run(context.Context) error                      { return nil }
func (n *recordingEngine) Set(d engine.Desired)                           { n.sets = append(n.sets, string(d.Target)) }
func (n *recordingEngine) Pending(int)                                    {}

func state(target string, generation int64, digest string) engine.Desired {
	return engine.Desired{Target: fleet.TargetID(target), State: fleet.Desired{Version: fleet.Version{Epoch: 1, Generation: generation}, Digest: digest}}
}

// covers: D4
func TestOnlyTargetsOfTheInventoryAreResumed(t *testing.T) {
	t.Parallel()
	cached := map[fleet.TargetID]engine.Desired{}
	for _, d := range []engine.Desired{state("same", 2, "a"), state("older", 2, "b"), state("newer", 3, "c"), state("changed", 3, "a"), state("deleted", 2, "a")} {
		cached[d.Target] = d
	}
	recovered := func(target string, generation int64) engine.Held {
		return engine.Held{Target: fleet.TargetID(target), Version: fleet.Version{Epoch: 1, Generation: generation}, Digest: "a"}
	}
	var log strings.Builder
	runner := &engineRunner{cfg: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, cached: cached, cachedFor: "agt-a"}
	recorder, found := &recordingEngine{}, []engine.Held{recovered("same", 2), recovered("older", 3), recovered("newer", 2), recovered("changed", 2), recovered("unknown", 1)}
	later := runner.applyCached(recorder, "agt-a", found)
	slices.Sort(recorder.sets)
	if !slices.Equal(recorder.sets, []string{"changed", "same"}) {
		t.Errorf("the engine received %q: deleted targets must not come back, and versions must not go back", recorder.sets)
	}
	if len(later) != 1 || later[0].Target != "newer" {
		t.Errorf("deferred %+v, want the state that was not applied completely", later)
	}
	for _, f := range found {
		if f.AtHand != (f.Target == "same" || f.Target == "changed") {
			t.Errorf("%s: AtHand = %v", f.Target, f.AtHand)
		}
		if f.Target == "changed" && (f.Generation != 3 || f.Digest != "a") {
			t.Errorf("changed is recovered as %+v", f)
		}
	}
	if !strings.Contains(log.String(), "older") {
		t.Errorf("the log does not name the target with an older state:\n%s", log.String())
	}
}

func TestCacheOfAnotherAgentIsNotUsed(t *testing.T) {
	t.Parallel()
	of := func(agent fleet.AgentID) []string {
		d := state("same", 2, "a")
		runner := &engineRunner{cfg: Config{Log: slog.New(slog.DiscardHandler)}, cached: map[fleet.TargetID]engine.Desired{d.Target: d}, cachedFor: "agt-a"}
		recorder, found := &recordingEngine{}, []engine.Held{{Target: d.Target, Version: d.State.Version, Digest: "a"}}
		runner.applyCached(recorder, agent, found)
		if found[0].AtHand != (len(recorder.sets) > 0) || runner.cached != nil {
			t.Errorf("as %s: AtHand = %v, and %d cached states are left", agent, found[0].AtHand, len(runner.cached))
		}
		return recorder.sets
	}
	if got := of("agt-a"); !slices.Equal(got, []string{"same"}) {
		t.Errorf("the same agent received %q, want its cached state", got)
	}
	if got := of("agt-b"); len(got) != 0 {
		t.Errorf("another agent received %q, want nothing", got)
	}
}

func TestEngineRequestsEndWithTheTerm(t *testing.T) {
	t.Parallel()
	r := newEngineRunner(Config{}, nil, parts{}, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	err := r.do(t.Context(), func(ctx, life context.Context) {
		stop()
		<-ctx.Done() // as Recover does when the API server does not answer
		if life.Err() == nil {
			t.Error("the term did not end")
		}
	})
	if err != nil {
		t.Errorf("a request in progress: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("run() = %v", err)
	}
	if err := r.do(t.Context(), func(context.Context, context.Context) { t.Error("a request ran after the term") }); !errors.Is(err, errTermEnded) {
		t.Errorf("a request after the term: %v, want %v", err, errTermEnded)
	}
}
