// Command simagents is a fleet of simulated agents for benchmarks. It prints, one per line,
// "connected N" when all are, and "applied DIGEST N NANOSECONDS-SINCE-1970" when N agents hold a
// bundle.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

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
	var cfg agentsim.Config
	flag.StringVar(&cfg.Address, "server-address", "", "grpc://host:port")
	flag.StringVar(&cfg.CAFile, "ca-cert-file", "", "certificate of the server's CA")
	tokens := flag.String("token-dir", "", "folder with a token per agent")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	held := holders{by: map[*agentsim.Agent]string{}, count: map[string]int{}}
	cfg.Applied = held.applied
	sim, err := agentsim.New(cfg)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(*tokens)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	var agents []*agentsim.Agent
	for _, file := range files {
		a, err := sim.Agent(file.Name(), filepath.Join(*tokens, file.Name()))
		if err != nil {
			return err
		}
		agents = append(agents, a)
		g.Go(func() error { return a.Run(ctx) })
	}
	g.Go(func() error { return awaitAll(ctx, agents) })
	return g.Wait()
}

// awaitAll tells when every agent is connected.
func awaitAll(ctx context.Context, agents []*agentsim.Agent) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, a := range agents {
		for a.Ready(ctx) != nil {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
	fmt.Printf("connected %d\n", len(agents))
	return nil
}

// holders counts which agents hold which bundle.
type holders struct {
	mu    sync.Mutex
	by    map[*agentsim.Agent]string
	count map[string]int
}

func (h *holders) applied(a *agentsim.Agent, _ fleet.TargetID, d fleet.Desired) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.by[a]; before == d.Digest {
		return
	} else if before != "" {
		h.count[before]--
	}
	h.by[a] = d.Digest
	h.count[d.Digest]++
	if _, err := fmt.Printf("applied %s %d %d\n", d.Digest, h.count[d.Digest], time.Now().UnixNano()); err != nil && !errors.Is(err, os.ErrClosed) {
		fmt.Fprintln(os.Stderr, "simagents:", err)
	}
}
