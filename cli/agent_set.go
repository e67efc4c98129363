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
	var instance, tunnel bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change the kinds of objects that an agent manages, its tunnel, or whether it is an engine instance",
		Long: "A flag of the kind filter replaces the whole list; an empty value removes it. Inclusions come first, then the built-in exclusions, such\n" +
			"as Event and Lease, then the exclusions. Changing the filter deletes nothing: objects of a kind that is refused now stay in the cluster,\n" +
			"unchanged, and are managed again when the filter allows them.\n\n" +
			"With --tunnel, callers with an access rule (kedge access create) reach the API server of the cluster through the agent.\n" +
			"--tunnel=false refuses all callers at once.\n\n" +
			"Push environments are placed on an engine instance, which gets their credentials. An agent that serves one cannot stop being an engine\n" +
			"instance: run kedge agent drain first.\n\n" +
			"After --tunnel and --engine-instance, apply the manifest of the agent again, because its permissions differ.",
		Example: "kedge agent set prod --exclude-kind Secret,*.rbac.authorization.k8s.io\n" +
			"kedge agent set edge --exclude-kind '*' --include-kind ConfigMap,Deployment.apps,Service\n" +
			"kedge agent set prod --include-kind= --exclude-kind=   # no filter\n" +
			"kedge agent set hub --engine-instance\n" +
			"kedge agent set prod --tunnel && kedge agent manifest prod | kubectl apply -f -",
		Args: cobra.ExactArgs(1),
	}
	kinds.add(cmd.Flags())
	cmd.Flags().BoolVar(&instance, "engine-instance", false, "whether push environments are placed on the agent; needs an agent with Argo CD")
	cmd.Flags().BoolVar(&tunnel, "tunnel", false, "let callers with an access rule reach the API server of the cluster through the agent")
	cmd.MarkFlagsOneRequired("include-kind", "exclude-kind", "engine-instance", "tunnel")
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
		if cmd.Flags().Changed("engine-instance") {
			change.EngineInstance = &instance
			said = append(said, instanceWords(args[0], instance))
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

func instanceWords(agent string, is bool) string {
	not := ""
	if !is {
		not = "not "
	}
	return fmt.Sprintf("Agent %q is %san engine instance. Apply its manifest again: kedge agent manifest %s | kubectl apply -f -", agent, not, agent)
}

func tunnelWords(agent string, on bool) string {
	if !on {
		return fmt.Sprintf("The tunnel of agent %q is closed for all callers. To remove its permissions from the cluster, delete the objects of the "+
			"ServiceAccount kedge-tunnel there.", agent)
	}
	return fmt.Sprintf("The tunnel of agent %q is open for callers with an access rule. Apply the manifest of the agent again: "+
		"kedge agent manifest %s | kubectl apply -f -", agent, agent)
}
