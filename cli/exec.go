package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/cluster"
)

// execFlags are the flags of kedge exec.
type execFlags struct {
	agent, pod, container string
	stdin, tty            bool
}

func (a *app) execCommand() *cobra.Command {
	var flags execFlags
	cmd := &cobra.Command{
		Use: "exec DEPLOYMENT -- COMMAND [ARGUMENT…]", Short: "Run a command in a container of a deployment", Args: cobra.ArbitraryArgs,
		Long: "Runs a command in a container of a pod of a deployment. The exit code of the command is the exit code of kedge.\n\n" +
			"The command runs through the tunnel of the agent with your own rights: you need an access rule (kedge access) that is not read-only,\n" +
			"and permission in the cluster for pods/exec. The audit log has the command.",
		Example: "kedge exec web --agent prod-1 -- env\nkedge exec web --agent prod-1 -it -- sh\nkedge exec web -i -- psql < query.sql",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
			return &exitError{exitUsage, "kedge exec needs DEPLOYMENT -- COMMAND: " + usageLine(cmd), cmd.CommandPath() + " --help"}
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		return a.exec(cmd.Context(), c, args[0], args[1:], flags)
	}
	f := cmd.Flags()
	f.StringVar(&flags.agent, "agent", "", "agent of the cluster; required if the deployment is in several")
	f.StringVar(&flags.pod, "pod", "", "pod of the deployment (default: one that runs)")
	f.StringVarP(&flags.container, "container", "c", "", "container (default: as kubectl chooses it)")
	f.BoolVarP(&flags.stdin, "stdin", "i", false, "pass the standard input to the command")
	f.BoolVarP(&flags.tty, "tty", "t", false, "give the command a terminal; needs --stdin")
	return cmd
}

func (a *app) exec(ctx context.Context, c *client.Client, deployment string, command []string, flags execFlags) error {
	var agents []string
	if flags.agent != "" {
		agents = []string{flags.agent}
	}
	r, err := a.clustersOf(ctx, c, deployment, agents)
	if err != nil {
		return err
	}
	if len(r.targets) > 1 {
		return failure(fmt.Sprintf("deployment %q is in %d clusters: %s", r.deployment.Name, len(r.targets), shortened(r.agentNames(), 200)), "choose one with --agent")
	}
	var in *cluster.Cluster
	var pod cluster.Pod
	if err := r.each(ctx, func(ctx context.Context, t liveTarget) error {
		in = t.Cluster
		pod, err = r.choosePod(ctx, t, flags)
		return err
	}); err != nil {
		return err
	}
	options := cluster.ExecOptions{Container: cmp.Or(flags.container, pod.DefaultContainer()), Command: command, Out: a.Out, Err: a.Err}
	if flags.stdin {
		options.In = a.In
	}
	// Without the standard input, nobody could interrupt the command in a terminal.
	err = a.withTerminal(&options, flags.tty && flags.stdin, func() error { return in.Exec(ctx, pod, options) })
	var exit *cluster.ExitError
	switch {
	case errors.As(err, &exit):
		return &exitError{code: exit.Code}
	case err != nil && ctx.Err() == nil:
		return failure(fmt.Sprintf("the command cannot run in pod %s in the cluster of agent %s: %v", pod.Metadata.Name, in.Agent, err), accessHelp)
	}
	return err
}

// choosePod returns the pod that the user wants, or a running one.
func (r *clusterReader) choosePod(ctx context.Context, t liveTarget, flags execFlags) (cluster.Pod, error) {
	var pods []cluster.Pod
	for _, namespace := range cluster.PodNamespaces(t.objects) {
		some, err := t.Pods(ctx, namespace, t.owners)
		if err != nil {
			return cluster.Pod{}, err
		}
		pods = append(pods, some...)
	}
	var names []string
	var running []cluster.Pod
	for _, p := range pods {
		names = append(names, p.Metadata.Name)
		if p.Metadata.Name == flags.pod {
			return p, nil
		}
		if p.Running(cmp.Or(flags.container, p.DefaultContainer())) {
			running = append(running, p)
		}
	}
	switch {
	case flags.pod != "":
		return cluster.Pod{}, fmt.Errorf("deployment %q has no pod %q there; it has: %s", r.deployment.Name, flags.pod, orNothing(shortened(strings.Join(names, ", "), 200)))
	case len(running) == 0:
		return cluster.Pod{}, fmt.Errorf("deployment %q has no running pod there with such a container; its pods: %s", r.deployment.Name, orNothing(shortened(strings.Join(names, ", "), 200)))
	}
	chosen := slices.MinFunc(running, func(a, b cluster.Pod) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	if len(running) > 1 {
		fmt.Fprintf(r.app.Err, "Using pod %s, one of %d. Choose with --pod.\n", chosen.Metadata.Name, len(running))
	}
	return chosen, nil
}

// withTerminal calls run and, if wanted, connects our terminal with that of the command meanwhile.
func (a *app) withTerminal(o *cluster.ExecOptions, wanted bool, run func() error) error {
	file, ok := a.In.(*os.File)
	if !wanted || !ok || !term.IsTerminal(int(file.Fd())) {
		if wanted {
			fmt.Fprintln(a.Err, "Warning: the standard input is not a terminal: the command gets none")
		}
		return run()
	}
	o.TTY = true
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return fmt.Errorf("preparing the terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(file.Fd()), before) }()
	sizes := newTerminalSizes(file)
	defer sizes.stop()
	o.Sizes = sizes
	return run()
}
