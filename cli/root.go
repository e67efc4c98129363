package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Options is what the program is given by its surroundings.
type Options struct {
	In       io.Reader
	Out, Err io.Writer
	// Env reads an environment variable; nil means that none is set.
	Env     func(string) string
	Version string
	// RenderProgram is what renders in a process of its own, see child.Self; without it nothing is rendered.
	RenderProgram string
	// Now is the clock, for ages; default time.Now.
	Now func() time.Time
}

// app is what the commands of one run share.
type app struct {
	Options
	flags   globalFlags
	started bool           // a command was found, and its flags and arguments are right
	chosen  *cobra.Command // the command whose arguments were looked at; nil before
}

type globalFlags struct {
	server, tokenFile, caFile, tenant, context string
}

// New makes the command tree. Run is what main calls; New is for those who add to it or document it.
func New(o Options) *cobra.Command {
	root, _ := build(o)
	return root
}

func build(o Options) (*cobra.Command, *app) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Env == nil {
		o.Env = func(string) string { return "" }
	}
	o.Version = cmp.Or(o.Version, "dev")
	a := &app{Options: o}
	root := &cobra.Command{
		Use:   "kedge",
		Short: "Pull-model GitOps for Kubernetes clusters",
		Long: "kedge is the command line of a Kedge server: enroll agents, deploy from Git, and follow deployments.\n\n" +
			"Exit codes: 0 success, 1 failure, 2 wrong usage (an unknown flag, or a value that the server refuses), 3 a deployment has failed, 4 timeout.",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.Version = o.Version
	root.SetVersionTemplate("kedge version {{.Version}}\n")
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	f := root.PersistentFlags()
	f.StringVar(&a.flags.server, "server", "", "address of the server (default: of the context, or KEDGE_SERVER)")
	f.StringVar(&a.flags.tokenFile, "token-file", "", "file that holds the API token (default: of the context, or KEDGE_TOKEN)")
	f.StringVar(&a.flags.caFile, "ca-file", "", "certificate of a private CA, PEM")
	f.StringVar(&a.flags.tenant, "tenant", "", "tenant to work in (default: KEDGE_TENANT, or of the context, or \""+fleet.DefaultTenant+"\")")
	f.StringVar(&a.flags.context, "context", "", "which login to use (default: the last one)")

	root.AddCommand(
		a.loginCommand(),
		a.logoutCommand(),
		a.whoamiCommand(),
		a.contextCommand(),
		a.agentCommand(),
		a.envCommand(),
		a.accessCommand(),
		a.repoCommand(),
		a.gitLabProjectCommand(),
		a.credentialCommand(),
		a.deployCommand(),
		a.syncCommand(),
		a.rollbackCommand(),
		a.imageCommand(),
		a.diffCommand(),
		a.renderCommand(),
		a.runCommand(),
		a.operationCommand(),
		a.engineUpgradeCommand(),
		a.tenantCommand(),
		a.tokenCommand(),
		a.personCommand(),
		a.fleetCommand(),
		a.auditCommand(),
		a.getCommand(),
		a.describeCommand(),
		a.treeCommand(),
		a.waitCommand(),
		a.applyCommand(),
		a.exportCommand(),
		a.editCommand(),
		a.historyCommand(),
		a.eventsCommand(),
		a.statusCommand(),
		a.demoCommand(),
		a.doctorCommand(),
		a.logsCommand(),
		a.execCommand(),
		a.kubeconfigCommand(),
		a.kubeTokenCommand(),
		a.versionCommand(),
	)
	a.markStart(root)
	a.complete(root)
	root.SetGlobalNormalizationFunc(canonicalFlag)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{exitUsage, firstLine(err) + similarFlags(cmd, err), cmd.CommandPath() + " --help"}
	})
	return root, a
}

// markStart lets each command note that it has begun: what fails before that is a mistake in the
// command line.
func (a *app) markStart(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.started = true
			return run(cmd, args)
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			a.chosen = cmd
			if err := check(cmd, args); err != nil {
				return wrongArguments(cmd, args)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		a.markStart(sub)
	}
}

// wrongArguments says what the command takes, by its own line of usage.
func wrongArguments(cmd *cobra.Command, args []string) error {
	var takes []string
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "-") {
			break
		}
		takes = append(takes, word)
	}
	says := "takes no argument but got " + fmt.Sprintf("%q", args)
	switch {
	case len(takes) > len(args):
		says = "needs " + strings.Join(takes, " ")
	case len(takes) > 0:
		says = fmt.Sprintf("takes only %s but got %q", strings.Join(takes, " "), args)
	}
	return &exitError{exitUsage, fmt.Sprintf("%s %s: %s", cmd.CommandPath(), says, usageLine(cmd)), cmd.CommandPath() + " --help"}
}

func usageLine(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	if _, rest, ok := strings.Cut(cmd.Use, " "); ok {
		line += " " + rest
	}
	return line + " [flags]"
}

// group is a command that only holds others. Cobra would answer a mistyped one with help and success.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return &exitError{exitUsage, fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath()) + similarCommands(cmd, args[0]), cmd.CommandPath() + " --help"}
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}
