package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wake"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// book is a store that notes what it is given, and does to a tenant what a test says.
type book struct {
	mu      sync.Mutex
	written map[fleet.TenantID]int
	mixed   bool
	inside  map[fleet.AgentID]bool
	twice   bool // two batches with one agent at the same time
	changed chan struct{}
	harm    map[fleet.TenantID]func(ctx context.Context) error
}

func (b *book) write(ctx context.Context, batch []control.AgentReports) error {
	tenant := batch[0].Agent.TenantID
	b.enter(batch, true)
	defer b.enter(batch, false)
	if harm := b.harm[tenant]; harm != nil {
		if err := harm(ctx); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch {
		b.mixed = b.mixed || r.Agent.TenantID != tenant
		b.written[tenant] += len(r.Events)
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

func (b *book) enter(batch []control.AgentReports, in bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch {
		b.twice = b.twice || (in && b.inside[r.Agent.ID])
		b.inside[r.Agent.ID] = in
	}
}

func (b *book) await(t *testing.T, tenant fleet.TenantID, n int) {
	t.Helper()
	for late := time.After(20 * time.Second); ; {
		b.mu.Lock()
		got, changed := b.written[tenant], b.changed
		b.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d of %d events of %s were written", got, n, tenant)
		}
	}
}

// Invariant 12: what one tenant's rows do to a write is no other tenant's business.
func TestBrokenTenantHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	stuck := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	tests := []struct {
		name, reason string
		writers      int
		harm         func(ctx context.Context) error
	}{
		{"failing", "one writer goes on with the others", 1, func(context.Context) error { return errors.New("no") }},
		{"stuck", "another writer goes on with the others", 2, stuck},
		{"stuck among many", "no tenant takes all writers", 8, stuck},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, err := newMetrics(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			b := &book{
				written: map[fleet.TenantID]int{}, changed: make(chan struct{}), inside: map[fleet.AgentID]bool{},
				harm: map[fleet.TenantID]func(context.Context) error{"ten-bad": tt.harm},
			}
			in := newIntake(b.write, tt.writers, slog.New(slog.DiscardHandler), m)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = in.run(ctx) })
			defer running.Wait()
			defer cancel()
			say := func(agent fleet.AgentID, tenant fleet.TenantID, events int) {
				err := in.events(ctx, fleet.Agent{ID: agent, TenantID: tenant}, make([]control.AgentEvent, events))
				if err != nil {
					t.Error(err)
				}
			}
			for i := range 20 { // each fills a batch of its own
				say(fleet.AgentID(fmt.Sprint("agt-bad-", i)), "ten-bad", maxBatch)
			}
			for range 100 {
				say("agt-1", "ten-good", 1)
				say("agt-2", "ten-good", 1)
				say("agt-3", "ten-fine", 1)
			}
			b.await(t, "ten-good", 200)
			b.await(t, "ten-fine", 100)
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.mixed || b.twice {
				t.Errorf("a batch was of more than one tenant (%v), or an agent in two at once (%v)", b.mixed, b.twice)
			}
		})
	}
}

// What one agent says is written in its order: while a batch with it is under way, no other has it.
func TestAgentIsInOneBatchAtATime(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	started, release := wake.New(), make(chan struct{})
	b := &book{written: map[fleet.TenantID]int{}, changed: make(chan struct{}), inside: map[fleet.AgentID]bool{}}
	write := func(ctx context.Context, batch []control.AgentReports) error {
		if batch[0].Agent.ID == "agt-slow" {
			b.enter(batch, true)
			started.Set()
			<-release
			b.enter(batch, false)
			return nil
		}
		return b.write(ctx, batch)
	}
	in := newIntake(write, 8, slog.New(slog.DiscardHandler), m)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = in.run(ctx) })
	defer running.Wait()
	defer cancel()
	say := func(agent fleet.AgentID) {
		if err := in.events(ctx, fleet.Agent{ID: agent, TenantID: "ten"}, make([]control.AgentEvent, maxBatch)); err != nil {
			t.Error(err)
		}
	}
	say("agt-slow")
	<-started
	say("agt-slow")
	for i := range 10 {
		say(fleet.AgentID(fmt.Sprint("agt-", i)))
	}
	b.await(t, "ten", 10*maxBatch) // the others have looked at everything there is
	close(release)
	in.settle(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.twice {
		t.Error("two batches had one agent at the same time")
	}
}
