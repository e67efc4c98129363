// Command kedge-agent connects a Kubernetes cluster to a Kedge server. It accepts no connections from the server.
// See kedge-agent --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/kedge-dev/kedge/agent"
	"github.com/kedge-dev/kedge/internal/obs"
)

// Exit codes: 0 orderly stop, 1 failure, 2 wrong flags or configuration.
func main() {
	cfg, err := parseFlags(os.Args[1:], os.Stdout, os.Stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kedge-agent:", err)
		os.Exit(2)
	}
	klog.SetSlogLogger(cfg.Log.With(obs.KeyComponent, "client-go"))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = agent.Run(ctx, cfg)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "kedge-agent:", err)
	if errors.Is(err, agent.ErrConfig) {
		os.Exit(2)
	}
	os.Exit(1)
}
