// Command bench measures what Kedge promises to be fast at, with the real programs on a real
// control plane, each figure beside a floor that was measured in the same run. See
// docs/benchmarks.md for what the figures mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// benchmarks in the order in which they run.
var benchmarks = []struct {
	name string
	run  func(context.Context, *rigging) error
}{
	{"B1", benchPush},
	{"B6", benchFanOut},
}

func run() error {
	var o options
	flag.StringVar(&o.binDir, "bin", "bin", "folder of kedge-server, kedge-agent and simagents")
	flag.StringVar(&o.kubeBin, "kube-bin", "", "folder of the control plane, as hack/kube/build.sh prints it")
	flag.StringVar(&o.out, "out", "bench/out/results.jsonl", "file that results are appended to")
	flag.StringVar(&o.commit, "commit", "", "what was measured")
	only := flag.String("only", "", "comma list of benchmarks, such as B1,B6")
	flag.BoolVar(&o.full, "full", false, "the large sizes too")
	flag.DurationVar(&o.settle, "settle", 0, "how long to wait before idle memory is read (0: not read; 150s lets two garbage collections pass)")
	flag.Parse()
	if o.kubeBin == "" {
		return errors.New("--kube-bin is missing: use $(hack/kube/build.sh)")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := newRigging(o)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range benchmarks {
		if *only == "" || slices.Contains(strings.Split(*only, ","), b.name) {
			if err := b.run(ctx, r); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
			}
		}
	}
	return errors.Join(append(errs, r.close())...)
}

type options struct {
	binDir, kubeBin, out, commit string
	full                         bool
	settle                       time.Duration
}
