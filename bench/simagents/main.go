// Command simagents is a fleet of simulated agents for benchmarks: each with the real link, applying in memory.
// It prints, one per line and with times in nanoseconds since 1970:
//
//	connected AGENTS CONNECTIONS TIME    when the number of connected agents, or of connections so far, changes
//	applied AGENT TARGET DIGEST TIME     when an agent has received a bundle
//	bytes RECEIVED SENT SOCKETS TIME     of the open connections, including TLS, after SIGUSR1
package main

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/kedge-dev/kedge/agent/agentsim"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "simagents:", err)
		os.Exit(1)
	}
}

func run() error {
	metrics := prometheus.NewRegistry()
	cfg := agentsim.Config{Metrics: metrics}
	flag.StringVar(&cfg.Address, "server-address", "", "grpc://host:port")
	flag.StringVar(&cfg.CAFile, "ca-cert-file", "", "certificate of the server's CA")
	tokens := flag.String("token-dir", "", "folder with a token per agent")
	quiet := flag.Bool("quiet", false, "do not print applied bundles")
	sick := flag.Uint("sick", 0, "one target of this many cannot be applied (0: none)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg.Applied = func(a *agentsim.Agent, target fleet.TargetID, d fleet.Desired) {
		if *sick > 0 && chosen(target, *sick) {
			reportSick(a, target, d)
		}
		if !*quiet {
			fmt.Printf("applied %s %s %s %d\n", a.Replica, target, d.Digest, time.Now().UnixNano())
		}
	}
	sim, err := agentsim.New(cfg)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(*tokens)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, file := range files {
		a, err := sim.Agent(file.Name(), filepath.Join(*tokens, file.Name()))
		if err != nil {
			return err
		}
		g.Go(func() error { return a.Run(ctx) })
	}
	g.Go(func() error { return tellConnected(ctx, metrics) })
	g.Go(func() error { return tellBytes(ctx) })
	return g.Wait()
}

// chosen selects one target of n, deterministically.
func chosen(target fleet.TargetID, n uint) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(target)) // never fails
	return h.Sum32()%uint32(n) == 0
}

func reportSick(a *agentsim.Agent, target fleet.TargetID, d fleet.Desired) {
	a.Report(target, fleet.Observed{
		Version: d.Version, Digest: d.Digest, Sync: fleet.SyncFailed, Health: fleet.HealthFailed, Message: "it cannot be applied", AsOf: time.Now(),
	}, nil)
}

// tellConnected prints the number of connected agents whenever it changes. It reads the shared metrics of the
// agents, so its cost does not depend on their number.
func tellConnected(ctx context.Context, metrics prometheus.Gatherer) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	agents, connections := -1.0, -1.0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		families, err := metrics.Gather()
		if err != nil {
			return err
		}
		nowAgents, nowConnections := 0.0, 0.0
		for _, f := range families {
			switch f.GetName() {
			case "kedge_agent_connected":
				nowAgents = f.GetMetric()[0].GetGauge().GetValue()
			case "kedge_agent_connects_total":
				nowConnections = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		if nowAgents != agents || nowConnections != connections {
			agents, connections = nowAgents, nowConnections
			fmt.Printf("connected %.0f %.0f %d\n", agents, connections, time.Now().UnixNano())
		}
	}
}
