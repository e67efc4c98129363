package cli

import (
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) envCommand() *cobra.Command {
	cmd := group("env", "Manage environments: the agents that deployments go to", a.envCreateCommand(), a.envSetCommand(), getCommand(a, "get", environmentResource()), a.grantCommand(),
		a.removeVerb("environment", "Deletes an environment that no deployment uses.", environmentResource().words(), environmentPath))
	cmd.Aliases = []string{"environment", "environments", "envs"}
	cmd.AddCommand(a.suspendVerbs("environment", environmentResource().words(), environmentPath)...)
	return cmd
}

func (a *app) envCreateCommand() *cobra.Command {
	var req apiv1.CreateEnvironment
	var push pushFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an environment of the agents named or selected, or of a cluster without an agent",
		Long: "An agent belongs to the environment when it is named, or when it has all the labels. The environment \"default\" has every agent. " +
			"With --api-url, the environment is a cluster without an agent: an engine instance, which is an agent with Argo CD, applies to it.",
		Example: "kedge env create eu --match-labels region=eu\nkedge env create canary --agents prod-1,prod-2\n" +
			"kedge env create customer --api-url https://api.example.com:6443 --kubeconfig-file customer.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			req.Name = args[0]
			if req.Push, err = push.request(); err != nil {
				return err
			}
			made, err := client.Send[apiv1.Environment](cmd.Context(), c, http.MethodPost, c.In("environments"), req)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "Environment %q created.\n", made.Name)
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&req.Agents, "agents", nil, "names of agents, a,b,…")
	cmd.Flags().StringToStringVar(&req.MatchLabels, "match-labels", nil, "labels of agents, key=value,…")
	push.flags(cmd.Flags())
	return cmd
}

// pushFlags describe the cluster of a push environment.
type pushFlags struct {
	req  apiv1.PushRequest
	file string
}

func (p *pushFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&p.req.APIURL, "api-url", "", "URL of the API server of a cluster without an agent, https://…")
	f.StringVar(&p.file, "kubeconfig-file", "", "file with a kubeconfig for --api-url, with a token or a client certificate; the server stores it encrypted")
	f.StringVar(&p.req.Context, "kubeconfig-context", "", "context of the kubeconfig (default: the one for --api-url)")
	f.StringSliceVar(&p.req.Namespaces, "namespaces", nil, "limit the environment to these namespaces of the cluster, a,b,… (default: the whole cluster)")
	f.BoolVar(&p.req.ClusterResources, "cluster-resources", false, "allow cluster-scoped objects although --namespaces is given")
}

// request returns nil without --api-url.
func (p *pushFlags) request() (*apiv1.PushRequest, error) {
	if p.req.APIURL == "" {
		if p.file != "" || p.req.Context != "" || len(p.req.Namespaces) > 0 || p.req.ClusterResources {
			return nil, errors.New("--kubeconfig-file, --kubeconfig-context, --namespaces and --cluster-resources need --api-url")
		}
		return nil, nil
	}
	if p.file != "" {
		text, err := os.ReadFile(p.file)
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig: %w", err)
		}
		p.req.Kubeconfig = string(text)
	}
	return &p.req, nil
}
