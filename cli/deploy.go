package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) deployCommand() *cobra.Command {
	cmd := group("deploy", "Create, change, suspend, read and delete deployments",
		a.deployCreateCommand(), a.deploySetCommand(), getCommand(a, "get", deploymentResource()), a.deployHistoryCommand(),
		a.deployPrunesCommand(), a.deployConfirmPruneCommand(), a.deployReleaseCommand(), a.deployDetachedCommand(), a.deployDismissCommand(), a.deployDeleteCommand())
	cmd.Aliases = []string{"deployment", "deployments", "dep"}
	cmd.AddCommand(a.suspendVerbs("deployment", deploymentResource().words(), deploymentPath)...)
	return cmd
}

func (a *app) deployCreateCommand() *cobra.Command {
	var req apiv1.CreateDeployment
	var policy policyFlags
	var source sourceFlags
	var noPrune, noCheck, wait bool
	w := watchOptions{failAfter: defaultFailAfter}
	cmd := &cobra.Command{
		Use:   "create NAME --repo URL",
		Short: "Deploy a folder of a Git repository to every cluster of an environment",
		Long: "The kind of the source is detected: a chart (Chart.yaml), a Kustomize root (kustomization.yaml), or plain manifests. --kind overrides it.\n\n" +
			"The server reads the source first, for at most a few seconds. It refuses a repository that it cannot read, and a revision or a folder\n" +
			"that does not exist. If the host is unreachable, the command prints a warning. --no-check skips this.",
		Example: "kedge deploy create web --repo https://github.com/example/web --path deploy --namespace web --wait\n" +
			"kedge deploy create shop --repo https://github.com/example/shop --path chart --values-file ../env/{agent.labels.region}.yaml --set image.tag=v2",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name, req.Policy = args[0], policy.newPolicy(cmd.Flags())
			var err error
			if req.Source.Helm, err = source.helm(cmd.Flags(), nil); err != nil {
				return err
			}
			req.Source.Kind = source.kind
			if noPrune {
				prune := false
				req.Policy.Prune = &prune
			}
			return a.createDeployment(cmd.Context(), req, noCheck, wait, w)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Source.RepoURL, "repo", "", "URL of the Git repository")
	f.StringVar(&req.Source.Path, "path", "", "folder in the repository (default: its root)")
	f.StringVar(&req.Source.Revision, "revision", "", "branch, tag or commit (default: the default branch)")
	f.StringArrayVar(&req.Source.Globs, "glob", nil, "which files below the path; may be repeated (default: every manifest)")
	source.add(f)
	f.StringVar(&req.Environment, "env", "", "environment to deploy to (default: default)")
	f.StringVar(&req.Namespace, "namespace", "", "namespace of objects that name none (default: default)")
	f.BoolVar(&noPrune, "no-prune", false, "keep objects that have left the source")
	policy.add(f)
	f.StringToStringVar(&req.Source.Variables, "var", nil, "replace ${NAME} in the objects, NAME=VALUE,…; values may use {agent.name} and {agent.labels.KEY}")
	f.StringToStringVar(&req.Labels, "label", nil, "labels of the deployment, KEY=VALUE,…; may be repeated")
	noCheckFlag(f, &noCheck)
	f.BoolVar(&wait, "wait", false, "wait until every target is synced and healthy, as status --watch does")
	f.DurationVar(&w.timeout, "timeout", 5*time.Minute, "with --wait: give up after this long; 0 is no limit")
	must(cmd.MarkFlagRequired("repo"))
	return cmd
}

func (a *app) createDeployment(ctx context.Context, req apiv1.CreateDeployment, noCheck, wait bool, w watchOptions) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	made, err := client.Send[apiv1.Deployment](ctx, c, http.MethodPost, unchecked(c.In("deployments"), noCheck), req)
	if err != nil {
		return err
	}
	a.warn(made.Warnings)
	fmt.Fprintf(a.Out, "Deployment %q created, with %s.\n", made.Name, count(made.Counts.Targets, "target"))
	if wait {
		return a.watchStatus(ctx, c, made.Name, w)
	}
	fmt.Fprintf(a.Err, "To follow it: kedge status %s --watch\n", made.Name)
	return nil
}

// noCheckFlag is for commands that store a source.
func noCheckFlag(f *pflag.FlagSet, noCheck *bool) {
	f.BoolVar(noCheck, "no-check", false, "store the source without reading it first")
}

// unchecked is the path of a request whose source the server shall not look at.
func unchecked(path string, noCheck bool) string {
	if noCheck {
		return path + "?check=false"
	}
	return path
}

// warn tells what the server could not find out.
func (a *app) warn(warnings []string) {
	for _, text := range warnings {
		fmt.Fprintln(a.Err, "Warning:", printable(text))
	}
}

// must is for mistakes in this program that its first run shows.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
