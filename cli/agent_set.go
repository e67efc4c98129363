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
	var instance bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change the kinds of objects that an agent manages, or whether it is an engine instance",
		Long: "A flag of the kind filter replaces the whole list; an empty value removes it. Inclusions come first, then the built-in exclusions, such\n" +
			"as Event and Lease, then the exclusions. Changing the filter deletes nothing: objects of a kind that is refused now stay in the cluster,\n" +
			"unchanged, and are managed again when the filter allows them.\n\n" +
			"Push environments are placed on an engine instance, which gets their credentials. An agent that serves one cannot stop being an engine\n" +
			"instance: run kedge agent drain first. Apply the manifest of the agent again after a change, because its permissions differ.",
		Example: "kedge agent set prod --exclude-kind Secret,*.rbac.authorization.k8s.io\n" +
			"kedge agent set edge --exclude-kind '*' --include-kind ConfigMap,Deployment.apps,Service\n" +
			"kedge agent set prod --include-kind= --exclude-kind=   # no filter\n" +
			"kedge agent set hub --engine-instance",
		Args: cobra.ExactArgs(1),
	}
	kinds.add(cmd.Flags())
	cmd.Flags().BoolVar(&instance, "engine-instance", false, "whether push environments are placed on the agent; needs an agent with Argo CD")
	cmd.MarkFlagsOneRequired("include-kind", "exclude-kind", "engine-instance")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		var req apiv1.UpdateAgent
		if cmd.Flags().Changed("engine-instance") {
			req.EngineInstance = &instance
		}
		if cmd.Flags().Changed("include-kind") || cmd.Flags().Changed("exclude-kind") {
			if req.KindFilter, err = kinds.next(cmd, c, args[0]); err != nil {
				return err
			}
		}
		if err := client.Do(cmd.Context(), c, http.MethodPatch, c.In("agents", args[0]), req); err != nil {
			return err
		}
		if req.KindFilter != nil {
			if err := a.say("The kind filter of agent %q is changed. No object is deleted because of it.", args[0]); err != nil {
				return err
			}
		}
		switch {
		case req.EngineInstance == nil:
			return nil
		case instance:
			return a.say("Agent %q is an engine instance. Apply its manifest again: kedge agent manifest %s", args[0], args[0])
		}
		return a.say("Agent %q is not an engine instance any more. Apply its manifest again: kedge agent manifest %s", args[0], args[0])
	}
	return cmd
}

// next returns the kind filter of an agent after the change that the flags request.
func (k *kindFlags) next(cmd *cobra.Command, c *client.Client, agent string) (*apiv1.KindFilter, error) {
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
