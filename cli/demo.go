package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var cfg demo.Config
	var yes bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole path on this machine: clusters, server, agents, a Git repository",
		Long: "Starts Kubernetes control planes (or, with --yes, uses the cluster of KUBECONFIG), a server, an agent per cluster and a Git\n" +
			"repository with a sample application, deploys it, and tells what to try. Ctrl-C leaves nothing behind.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Out, cfg.Kubeconfig = a.Out, a.Env("KUBECONFIG")
			if cfg.Clusters < 1 {
				return &exitError{exitUsage, fmt.Sprintf("--clusters %d: the demo needs at least one", cfg.Clusters), cmd.CommandPath() + " --help"}
			}
			if cfg.CRs && cfg.Kubeconfig != "" {
				return failure("--crs starts clusters of its own, and KUBECONFIG is set", "KUBECONFIG= kedge demo --crs")
			}
			if err := a.confirmDemo(cmd.Context(), cfg, yes); err != nil {
				return err
			}
			if cfg.BinDir == "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				cfg.BinDir = filepath.Dir(self)
			}
			return demo.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Clusters, "clusters", 2, "how many clusters to start")
	f.BoolVar(&yes, "yes", false, "use the cluster of KUBECONFIG without asking")
	f.BoolVar(&cfg.CRs, "crs", false, "deploy by custom resources (kubectl apply) in the first cluster")
	f.BoolVar(&cfg.Once, "once", false, "check everything, clean up and end")
	f.StringVar(&cfg.KubeBin, "kube-bin", "", "folder of the control plane's programs, as hack/kube/build.sh prints it")
	f.StringVar(&cfg.BinDir, "bin", "", "folder of kedge-server and kedge-agent (default: where kedge is)")
	cmd.AddCommand(notifyCommand())
	return cmd
}

// confirmDemo keeps the demo out of a cluster that nobody meant: a KUBECONFIG is often set for other
// reasons.
func (a *app) confirmDemo(ctx context.Context, cfg demo.Config, yes bool) error {
	if cfg.Kubeconfig == "" {
		return nil
	}
	target, err := cfg.Target(ctx)
	if err != nil {
		return failure(err.Error(), localClusters)
	}
	fmt.Fprintf(a.Err, "KUBECONFIG is set: the demo installs an agent and a sample application in the cluster of %s, and removes both at its end.\n", target)
	if yes {
		return nil
	}
	if !isTerminal(a.In) {
		return failure("not confirmed", "make demo ARGS=--yes (kedge demo --yes) confirms it; "+localClusters)
	}
	fmt.Fprint(a.Err, "Type yes to continue: ")
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return errors.Join(failure("stopped; nothing was changed", localClusters), err)
	}
	return nil
}

const localClusters = "KUBECONFIG= make demo starts clusters of its own"

// notifyCommand is what the demo's repository calls after a push.
func notifyCommand() *cobra.Command {
	var url, secretFile string
	cmd := &cobra.Command{
		Use: "notify REF", Short: "Send a signed webhook for a pushed ref", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return demo.Notify(cmd.Context(), url, secretFile, args[0])
		},
	}
	cmd.Flags().StringVar(&url, "url", "", "address of the webhook")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file with its secret")
	return cmd
}
