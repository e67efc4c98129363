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
	"github.com/kedge-dev/kedge/internal/wait"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// recordingStore counts what it writes, and runs a function of the test before a write of a tenant.
type recordingStore struct {
	mu              sync.Mutex
	written         map[fleet.TenantID]int
	mixedTenants    bool
	writing         map[fleet.AgentID]bool
	concurrentAgent bool // two concurrent batches contain one agent
	changed         chan struct{}
	beforeWrite     map[fleet.TenantID]func(ctx context.Context) error
}

func (b *recordingStore) write(ctx context.Context, batch []control.AgentReports) error {
	tenant := batch[0].Agent.TenantID
	b.enter(batch, true)
	defer b.enter(batch, false)
	if beforeWrite := b.beforeWrite[tenant]; beforeWrite != nil {
		if err := beforeWrite(ctx); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch {
		b.mixedTenants = b.mixedTenants || r.Agent.TenantID != tenant
		b.written[tenant] += len(r.Events)
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

func (b *recordingStore) enter(batch []control.AgentReports, in bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range batch {
		b.concurrentAgent = b.concurrentAgent || (in && b.writing[r.Agent.ID])
		b.writing[r.Agent.ID] = in
	}
}

func (b *recordingStore) await(t *testing.T, tenant fleet.TenantID, n int) {
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

// Invariant 12: a failing write of one tenant does not affect another tenant.
func TestFailingTenantDelaysNoOther(t *testing.T) {
	t.Parallel()
	stuck := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	tests := []struct {
		name, reason string
		writers      int
		beforeWrite  func(ctx context.Context) error
	}{
		{"failing", "the only writer continues with other tenants", 1, func(context.Context) error { return errors.New("no") }},
		{"stuck", "the other writer continues with other tenants", 2, stuck},
		{"stuck among many", "no tenant gets all writers", 8, stuck},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, err := newMetrics(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			b := &recordingStore{
				written: map[fleet.TenantID]int{}, changed: make(chan struct{}), writing: map[fleet.AgentID]bool{},
				beforeWrite: map[fleet.TenantID]func(context.Context) error{"ten-bad": tt.beforeWrite},
			}
			in := newIntake(b.write, tt.writers, slog.New(slog.DiscardHandler), m)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = in.run(ctx) })
			defer running.Wait()
			defer cancel()
			report := func(agent fleet.AgentID, tenant fleet.TenantID, events int) {
				err := in.events(ctx, fleet.Agent{ID: agent, TenantID: tenant}, make([]control.AgentEvent, events))
				if err != nil {
					t.Error(err)
				}
			}
			for i := range 20 { // each fills a whole batch
				report(fleet.AgentID(fmt.Sprint("agt-bad-", i)), "ten-bad", maxBatch)
			}
			for range 100 {
				report("agt-1", "ten-good", 1)
				report("agt-2", "ten-good", 1)
				report("agt-3", "ten-fine", 1)
			}
			b.await(t, "ten-good", 200)
			b.await(t, "ten-fine", 100)
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.mixedTenants || b.concurrentAgent {
				t.Errorf("a batch contains several tenants (%v), or two concurrent batches contain one agent (%v)", b.mixedTenants, b.concurrentAgent)
			}
		})
	}
}

// Reports of one agent are written in order: while a batch with it is being written, no other batch contains it.
func TestAgentIsInOneBatchAtATime(t *testing.T) {
	t.Parallel()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	started, release := wait.NewSignal(), make(chan struct{})
	b := &recordingStore{written: map[fleet.TenantID]int{}, changed: make(chan struct{}), writing: map[fleet.AgentID]bool{}}
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
	report := func(agent fleet.AgentID) {
		if err := in.events(ctx, fleet.Agent{ID: agent, TenantID: "ten"}, make([]control.AgentEvent, maxBatch)); err != nil {
			t.Error(err)
		}
	}
	report("agt-slow")
	<-started
	report("agt-slow")
	for i := range 10 {
		report(fleet.AgentID(fmt.Sprint("agt-", i)))
	}
	b.await(t, "ten", 10*maxBatch) // the other writers have dequeued everything else
	close(release)
	in.waitIdle(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.concurrentAgent {
		t.Error("two concurrent batches contain one agent")
	}
}
