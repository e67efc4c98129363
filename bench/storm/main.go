// Command storm is a fleet of agents for benchmarks that report statuses as fast as their streams allow. It
// implements the protocol itself, because the real link would coalesce them. It prints, one per line and with
// times in nanoseconds since 1970:
//
//	ready AGENTS TARGETS TIME   when all agents have their desired states; then the storm starts
//	probe TIME                  whenever the first target of the first agent has a new status
//	stored STATUSES TIME        number of statuses that the server has confirmed so far, every 100 ms
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("server-address", "", "host:port")
	caFile := flag.String("ca-cert-file", "", "certificate of the server's CA")
	tokens := flag.String("token-dir", "", "folder with a token per agent")
	targets := flag.Int("targets", 1, "how many targets every agent has")
	pace := flag.Float64("pace", 0, "statuses per second of every agent (0: as fast as the stream takes them)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	creds, err := trusting(*caFile)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(*tokens)
	if err != nil {
		return err
	}
	w := &weather{begin: make(chan struct{})}
	g, ctx := errgroup.WithContext(ctx)
	for i, file := range files {
		token, err := os.ReadFile(filepath.Join(*tokens, file.Name()))
		if err != nil {
			return err
		}
		cc, err := grpc.NewClient("passthrough:///"+*address, grpc.WithTransportCredentials(creds))
		if err != nil {
			return err
		}
		defer func() { _ = cc.Close() }()
		a := &agent{weather: w, cc: cc, name: file.Name(), token: string(token), probed: i == 0, wants: *targets, pace: *pace,
			confirmed: make(chan int64, 1)}
		w.waiting.Add(1)
		g.Go(func() error { return a.run(ctx) })
	}
	g.Go(func() error { return w.tell(ctx, len(files), *targets) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func trusting(caFile string) (credentials.TransportCredentials, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", caFile)
	}
	return credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}), nil
}

// weather has the shared state of the agents.
type weather struct {
	waiting sync.WaitGroup // agents that are not ready
	begin   chan struct{}
	stored  atomic.Int64
}

// tell starts the storm when all agents are ready, and prints the number of confirmed statuses.
func (w *weather) tell(ctx context.Context, agents, targets int) error {
	ready := make(chan struct{})
	go func() {
		w.waiting.Wait()
		close(ready)
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-ready:
	}
	fmt.Printf("ready %d %d %d\n", agents, agents*targets, time.Now().UnixNano())
	close(w.begin)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			fmt.Printf("stored %d %d\n", w.stored.Load(), time.Now().UnixNano())
		}
	}
}
