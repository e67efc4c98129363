// Command kedge-server is the Kedge server, which decides what runs in which cluster. See kedge-server --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/child/libraries"
)

// Exit codes: 0 graceful stop, 1 failure, 2 invalid flags.
func main() {
	if child.Requested(os.Args) {
		os.Exit(child.Main(os.Args, libraries.Renderers()))
	}
	run, err := parse(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kedge-server:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kedge-server:", err)
		os.Exit(1)
	}
}
