package stage_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/stage"
)

// recorder creates stages and records the order in which they stop.
type recorder struct {
	mu    sync.Mutex
	order []string
}

func (r *recorder) stage(name string, started chan<- struct{}) stage.Stage {
	return stage.Stage{Name: name, Run: func(ctx context.Context) error {
		started <- struct{}{}
		<-ctx.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.order = append(r.order, name)
		return nil
	}}
}

func TestStagesStopInReverse(t *testing.T) {
	t.Parallel()
	var r recorder
	started := make(chan struct{}, 3)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- stage.Run(ctx, r.stage("store", started), r.stage("control", started), r.stage("api", started))
	}()
	for range 3 {
		<-started
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("an orderly stop returned %v", err)
	}
	if want := []string{"api", "control", "store"}; !slices.Equal(r.order, want) {
		t.Fatalf("stopped as %v, want %v", r.order, want)
	}
}

func TestFailureOfOneStopsAllAndIsReturned(t *testing.T) {
	t.Parallel()
	var r recorder
	started := make(chan struct{}, 2)
	boom := errors.New("boom")
	err := stage.Run(t.Context(), r.stage("control", started), stage.Stage{
		Name: "api", Run: func(context.Context) error { return boom },
	})
	if !errors.Is(err, boom) {
		t.Fatalf("got %v, want the failure", err)
	}
	if !slices.Equal(r.order, []string{"control"}) {
		t.Fatalf("stopped %v, want the other stage", r.order)
	}
}

func TestStageThatEndsByItselfIsAFailure(t *testing.T) {
	t.Parallel()
	err := stage.Run(t.Context(), stage.Stage{Name: "api", Run: func(context.Context) error { return nil }})
	if err == nil {
		t.Fatal("a stage that ends by itself is not an orderly stop")
	}
}
