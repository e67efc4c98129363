package agentsim_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/agent/agentsim"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/server/gatewaytest"
)

func TestFleetAppliesOneCommit(t *testing.T) {
	t.Parallel()
	const agents = 100
	m := gatewaytest.NewMemory()
	srv, err := gatewaytest.Start(m, gatewaytest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Stop() }()
	var mu sync.Mutex
	applied := map[string]int{}
	sim, err := agentsim.New(agentsim.Config{Address: "grpc://" + srv.Addr(), Applied: func(a *agentsim.Agent, _ fleet.TargetID, _ fleet.Desired) {
		mu.Lock()
		defer mu.Unlock()
		applied[a.Replica]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	set := oneObject(t)
	dir := t.TempDir()
	var targets []fleet.Target
	for i := range agents {
		enrolled, token := m.Enroll(fmt.Sprintf("edge-%d", i))
		targets = append(targets, m.Deploy(enrolled, "shop", set))
		file := filepath.Join(dir, enrolled.Name)
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := sim.Agent(enrolled.Name, file)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = a.Run(ctx) })
	}
	for _, target := range targets {
		if err := m.AwaitObserved(ctx, target.ID, fleet.SyncSynced); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(applied) != agents {
		t.Errorf("%d of %d agents reported", len(applied), agents)
	}
	if n := runtime.NumGoroutine(); n > 20*agents {
		t.Errorf("%d goroutines for %d agents and their server: too many for a fleet in one process", n, agents)
	}
}

func TestSimulatedAgentDetaches(t *testing.T) {
	t.Parallel()
	m := gatewaytest.NewMemory()
	srv, err := gatewaytest.Start(m, gatewaytest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Stop() }()
	sim, err := agentsim.New(agentsim.Config{Address: "grpc://" + srv.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	enrolled, token := m.Enroll("edge")
	target := m.Deploy(enrolled, "shop", oneObject(t))
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := sim.Agent("edge", file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = a.Run(ctx) })
	if err := m.AwaitObserved(ctx, target.ID, fleet.SyncSynced); err != nil {
		t.Fatal(err)
	}
	m.Desire(target.ID, oneObject(t), func(d *fleet.Desired) { d.Detached = true })
	if err := m.AwaitObserved(ctx, target.ID, fleet.SyncDetached); err != nil {
		t.Fatalf("the target was not detached: %v", err)
	}
}

func oneObject(t *testing.T) *manifest.Set {
	t.Helper()
	objects, err := manifest.Parse("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, "default")
	if err != nil {
		t.Fatal(err)
	}
	return set
}
