// Command bench measures the performance of Kedge with the real programs on a real control plane. Each figure
// has a floor that was measured in the same run. See docs/benchmarks.md for the meaning of the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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
	{"B2", benchApps},
	{"B3", benchBulk},
	{"B4", benchDrift},
	{"B5", benchFootprint},
	{"B6", benchFanOut},
	{"B7", benchCrash},
	{"B8", benchStorm},
	{"B9", benchListing},
	{"B10", benchPartition},
	{"B11", benchStuck},
	{"B12", benchChain},
	{"B13", benchIdle},
	{"B14", benchTunnel},
	{"B15", benchRender},
	{"B16", benchCreating},
	{"B17", benchResources},
}

func run() error {
	o, only, err := parseOptions()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := newRigging(o)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range benchmarks {
		if len(only) > 0 && !slices.Contains(only, b.name) {
			continue
		}
		if err := b.run(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
		}
	}
	return errors.Join(append(errs, r.close())...)
}

// options are the options of the command.
type options struct {
	binDir, kubeBin, out, commit, logDir string
	databases                            []string
	full, small                          bool
	settle, partition                    time.Duration
}

func parseOptions() (o options, only []string, err error) {
	flag.StringVar(&o.binDir, "bin", "bin", "folder of kedge-server, kedge-agent, simagents and storm")
	flag.StringVar(&o.kubeBin, "kube-bin", "", "folder of the control plane, as hack/kube/build.sh prints it")
	flag.StringVar(&o.out, "out", "bench/out/results.jsonl", "file that results are appended to")
	flag.StringVar(&o.commit, "commit", "", "what was measured")
	flag.StringVar(&o.logDir, "logs", "", "folder for the logs of the programs (default: they are removed)")
	names := flag.String("only", "", "comma list of benchmarks, such as B1,B6")
	database := flag.String("database", "", "sqlite, postgres or both (default: sqlite, with --full both)")
	flag.BoolVar(&o.full, "full", false, "the large sizes too")
	flag.BoolVar(&o.small, "small", false, "sizes that show only that the benchmarks work")
	flag.DurationVar(&o.settle, "settle", 0, "how long to wait before idle memory is read (0: not read; 270s is long enough for two garbage collections of an idle program)")
	flag.DurationVar(&o.partition, "partition", minPartition, "minimum time of the network partition in B10; it lasts until all commits are made")
	flag.Parse()
	bin, err := filepath.Abs(o.binDir) // programs are started in other folders
	if err != nil {
		return o, nil, err
	}
	o.binDir = bin
	if o.kubeBin == "" {
		return o, nil, errors.New("--kube-bin is missing: use $(hack/kube/build.sh)")
	}
	if o.full && o.small {
		return o, nil, errors.New("--full and --small contradict each other")
	}
	if o.databases, err = databases(*database, o.full); err != nil {
		return o, nil, err
	}
	if *names != "" {
		only = strings.Split(*names, ",")
	}
	return o, only, nil
}

// databases are the kinds to measure with.
func databases(asked string, full bool) ([]string, error) {
	switch {
	case asked == "both" || asked == "" && full:
		return []string{sqlite, postgres}, nil
	case asked == sqlite || asked == "":
		return []string{sqlite}, nil
	case asked == postgres:
		return []string{postgres}, nil
	}
	return nil, fmt.Errorf("--database is sqlite, postgres or both, not %q", asked)
}

// of chooses among three sizes.
func of[T any](o options, small, quick, full T) T {
	switch {
	case o.small:
		return small
	case o.full:
		return full
	}
	return quick
}
