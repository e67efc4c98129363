// Command kedge is the CLI of Kedge.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kedge-dev/kedge/cli"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/child/libraries"
	"github.com/kedge-dev/kedge/internal/version"
)

func main() {
	if child.Requested(os.Args) {
		os.Exit(child.Main(os.Args, libraries.Renderers()))
	}
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // do not override nohup
		signals = append(signals, syscall.SIGHUP) // clean up after a closed terminal too
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	code := cli.Run(ctx, os.Args[1:], cli.Options{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Version: version.String(), RenderProgram: child.Self(),
	})
	stop()
	os.Exit(code)
}
