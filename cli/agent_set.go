package cli

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// kindFlags are the flags of a kind filter.
type kindFlags struct{ include, exclude []string }

func (k *kindFlags) add(f *pflag.FlagSet) {
	f.StringSliceVar(&k.include, "include-kind", nil, "kinds that the agent manages even if they are excluded: ConfigMap, Deployment.apps, Ingress.*, *.example.com or *")
	f.StringSliceVar(&k.exclude, "exclude-kind", nil, "kinds that the agent refuses, after the built-in exclusions; to allow only some kinds, exclude * and include these")
}

// filter returns the filter of the flags; nil if there are none.
func (k *kindFlags) filter() *apiv1.KindFilter {
	if len(k.include) == 0 && len(k.exclude) == 0 {
		return nil
	}
	return &apiv1.KindFilter{Include: k.include, Exclude: k.exclude}
}

func (a *app) agentSetCommand() *cobra.Command {
	var kinds kindFlags
	var tunnel bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change the kinds of objects that an agent manages, or its tunnel",
		Long: "A flag of kinds replaces the whole list; an empty value removes it. Inclusions come first, then the built-in exclusions, such as Event and\n" +
			"Lease, then the exclusions. Changing the filter deletes nothing: objects of a kind that is refused now stay in the cluster,\n" +
			"unchanged, and are managed again when the filter allows them.\n\n" +
			"With --tunnel, callers with an access rule (kedge access create) reach the API server of the cluster through the agent. Apply the\n" +
			"manifest of the agent again: it has the permissions that the agent needs. --tunnel=false refuses all callers at once.",
		Example: "kedge agent set prod --exclude-kind Secret,*.rbac.authorization.k8s.io\n" +
			"kedge agent set edge --exclude-kind '*' --include-kind ConfigMap,Deployment.apps,Service\n" +
			"kedge agent set prod --include-kind= --exclude-kind=   # no filter\n" +
			"kedge agent set prod --tunnel && kedge agent manifest prod | kubectl apply -f -",
		Args: cobra.ExactArgs(1),
	}
	kinds.add(cmd.Flags())
	cmd.Flags().BoolVar(&tunnel, "tunnel", false, "let callers with an access rule reach the API server of the cluster through the agent")
	cmd.MarkFlagsOneRequired("include-kind", "exclude-kind", "tunnel")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		var change apiv1.UpdateAgent
		var said []string
		if cmd.Flags().Changed("include-kind") || cmd.Flags().Changed("exclude-kind") {
			if change.KindFilter, err = kinds.changed(cmd, c, args[0]); err != nil {
				return err
			}
			said = append(said, fmt.Sprintf("The kind filter of agent %q is changed. No object is deleted because of it.", args[0]))
		}
		if cmd.Flags().Changed("tunnel") {
			change.Tunnel = &tunnel
			said = append(said, tunnelWords(args[0], tunnel))
		}
		if err := client.Do(cmd.Context(), c, http.MethodPatch, c.In("agents", args[0]), change); err != nil {
			return err
		}
		return a.say("%s", strings.Join(said, "\n"))
	}
	return cmd
}

// changed returns the filter of an agent with the lists that the command line replaces.
func (k *kindFlags) changed(cmd *cobra.Command, c *client.Client, agent string) (*apiv1.KindFilter, error) {
	v, err := client.Get[apiv1.Agent](cmd.Context(), c, c.In("agents", agent))
	if err != nil {
		return nil, err
	}
	var next apiv1.KindFilter
	if v.KindFilter != nil {
		next = *v.KindFilter
	}
	if cmd.Flags().Changed("include-kind") {
		next.Include = k.include
	}
	if cmd.Flags().Changed("exclude-kind") {
		next.Exclude = k.exclude
	}
	return &next, nil
}

func tunnelWords(agent string, on bool) string {
	if !on {
		return fmt.Sprintf("The tunnel of agent %q is closed for all callers. To remove its permissions from the cluster, delete the objects of the "+
			"ServiceAccount kedge-tunnel there.", agent)
	}
	return fmt.Sprintf("The tunnel of agent %q is open for callers with an access rule. Apply the manifest of the agent again: "+
		"kedge agent manifest %s | kubectl apply -f -", agent, agent)
}
