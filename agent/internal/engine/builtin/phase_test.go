package builtin

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestTransitionsThatTheDiagramLacksAreRefused(t *testing.T) {
	t.Parallel()
	for reason, tt := range map[string]struct {
		from, to phase
		restart  bool
		refused  bool
	}{
		"an apply starts":                              {from: phaseApply, to: phaseApplying},
		"a phase follows itself":                       {from: phaseInPlace, to: phaseInPlace},
		"an apply cannot start twice":                  {from: phaseReplacing, to: phaseApplying, refused: true},
		"nothing is removed while it is desired":       {from: phaseInPlace, to: phaseRemoving, refused: true},
		"nothing that leaves is applied":               {from: phaseLeaving, to: phaseApply, refused: true},
		"a new version desires it again":               {from: phaseKept, to: phaseApply, restart: true},
		"a new version does not desire it any more":    {from: phaseInPlace, to: phaseLeaving, restart: true},
		"a new version waits for a request to be over": {from: phaseRemoving, to: phaseApply, restart: true, refused: true},
	} {
		metrics, refused := counting(t)
		e := &Engine{log: slog.New(slog.DiscardHandler), metrics: metrics}
		one, o := newTarget(e, "tgt-a", fleet.Version{}), &object{phase: tt.from}
		change := one.transition
		if tt.restart {
			change = one.restart
		}
		change(o, tt.to)
		want, count := tt.to, 0.0
		if tt.refused {
			want, count = tt.from, 1
		}
		if o.phase != want || refused() != count {
			t.Errorf("%s: the phase is %v with %v refused, want %v with %v", reason, o.phase, refused(), want, count)
		}
	}
}

func TestRefusedTransitionPanicsInTests(t *testing.T) {
	t.Parallel()
	e := &Engine{log: slog.New(slog.DiscardHandler), strict: true}
	defer func() {
		if recover() == nil {
			t.Error("a bug goes unnoticed")
		}
	}()
	newTarget(e, "tgt-a", fleet.Version{}).transition(&object{phase: phaseLeaving}, phaseApply)
}

func TestEveryPhaseHasANameAndAWayOut(t *testing.T) {
	t.Parallel()
	for p := phaseResolve; p <= phaseTerminating; p++ {
		if p.String() == "" || len(transitions[p]) == 0 {
			t.Errorf("phase %d is %q with %d transitions", p, p, len(transitions[p]))
		}
	}
}

// counting returns metrics, and a function that returns how many transitions were refused.
func counting(t *testing.T) (*Metrics, func() float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	return metrics, func() float64 {
		found, err := registry.Gather()
		if err != nil || len(found) != 1 || found[0].GetName() != "kedge_agent_refused_transitions_total" {
			t.Fatalf("the metrics are %v (%v)", found, err)
		}
		return found[0].GetMetric()[0].GetCounter().GetValue()
	}
}
