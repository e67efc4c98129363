package cli

import (
	"net/http"

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
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change the kinds of objects that an agent manages",
		Long: "A flag replaces the whole list; an empty value removes it. Inclusions come first, then the built-in exclusions, such as Event and\n" +
			"Lease, then the exclusions. Changing the filter deletes nothing: objects of a kind that is refused now stay in the cluster,\n" +
			"unchanged, and are managed again when the filter allows them.",
		Example: "kedge agent set prod --exclude-kind Secret,*.rbac.authorization.k8s.io\n" +
			"kedge agent set edge --exclude-kind '*' --include-kind ConfigMap,Deployment.apps,Service\n" +
			"kedge agent set prod --include-kind= --exclude-kind=   # no filter",
		Args: cobra.ExactArgs(1),
	}
	kinds.add(cmd.Flags())
	cmd.MarkFlagsOneRequired("include-kind", "exclude-kind")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		v, err := client.Get[apiv1.Agent](cmd.Context(), c, c.In("agents", args[0]))
		if err != nil {
			return err
		}
		var next apiv1.KindFilter
		if v.KindFilter != nil {
			next = *v.KindFilter
		}
		if cmd.Flags().Changed("include-kind") {
			next.Include = kinds.include
		}
		if cmd.Flags().Changed("exclude-kind") {
			next.Exclude = kinds.exclude
		}
		if err := client.Do(cmd.Context(), c, http.MethodPatch, c.In("agents", args[0]), apiv1.UpdateAgent{KindFilter: &next}); err != nil {
			return err
		}
		return a.say("The kind filter of agent %q is changed. No object is deleted because of it.", args[0])
	}
	return cmd
}
