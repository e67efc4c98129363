package cli

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) agentCommand() *cobra.Command {
	cmd := group("agent", "Enroll, label, limit, upgrade, uninstall and delete agents",
		a.agentEnrollCommand(), a.agentManifestCommand(), a.agentLabelCommand(), a.agentSetCommand(), a.agentRotateCommand(), a.agentTokenCommand(), a.agentConfigCommand(),
		a.agentUninstallCommand(), a.agentDeleteCommand(), a.agentDismissCommand(), a.agentApplicationsCommand(), a.agentDrainCommand(), getCommand(a, "get", agentResource()))
	cmd.Aliases = []string{"agents", "ag"}
	return cmd
}

func (a *app) agentManifestCommand() *cobra.Command {
	var options client.ManifestOptions
	var limits admissionFlags
	cmd := &cobra.Command{
		Use:   "manifest NAME",
		Short: "Print the manifest of an agent without its token, to upgrade or to uninstall it",
		Long: "Prints the manifest that this server would install now, without the Secret that holds the token. Deleting it removes the " +
			"agent and deletes no object that the agent has deployed.",
		Example: "kedge agent manifest prod --image registry.example.com/kedge-agent:v2 | kubectl apply -f -   # upgrade\n" +
			"kedge agent manifest prod --without-deployment | kubectl delete -f -                         # uninstall\n" +
			"kedge agent manifest prod --admission --admission-namespaces 'team-*' | kubectl apply -f -   # limit it beyond RBAC",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if options.Admission, err = limits.admission(cmd); err != nil {
				return err
			}
			text, err := c.Manifest(cmd.Context(), args[0], options)
			if err != nil {
				return needsImage(err, options.Image)
			}
			_, err = a.Out.Write(text)
			return err
		},
	}
	cmd.Flags().StringVar(&options.Image, "image", "", "image of the agent (default: the server's --agent-image)")
	cmd.Flags().BoolVar(&options.WithoutDeployment, "without-deployment", false, "leave the Deployment out; deleting the rest deletes it with its Namespace")
	cmd.MarkFlagsMutuallyExclusive("image", "without-deployment")
	cmd.Flags().StringVar(&options.ServerAddress, "server-address", "", "how the agent reaches the server (default: the server's)")
	cmd.Flags().StringVar(&options.Namespace, "agent-namespace", "", "namespace of the agent (default: derived from its name)")
	cmd.Flags().StringVar(&options.RegistrationSecret, "registration-secret", "", "Secret in the namespace of the agent, created by you, whose key registrationToken holds the token")
	cmd.Flags().IntVar(&options.Replicas, "replicas", 0, "how many pods, as it was enrolled with (default 1)")
	limits.add(cmd)
	return cmd
}

// admissionFlags are the flags of an admission policy.
type admissionFlags struct {
	on bool
	client.Admission
}

func (f *admissionFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.on, "admission", false, "add a ValidatingAdmissionPolicy that limits the agent beyond RBAC: it refuses privileged pods, and what the other --admission flags say")
	flags.StringSliceVar(&f.Namespaces, "admission-namespaces", nil, "patterns of the namespaces that the agent may write in, such as team-*")
	flags.StringArrayVar(&f.NamespaceLabels, "admission-namespace-label", nil, "KEY=VALUE that these namespaces must have (repeatable)")
	flags.BoolVar(&f.ClusterScoped, "admission-cluster-scoped", false, "allow objects without a namespace although namespaces are limited")
	flags.StringSliceVar(&f.Kinds, "admission-kinds", nil, "only these kinds, such as ConfigMap or *.apps")
	flags.StringSliceVar(&f.ExcludeKinds, "admission-exclude-kinds", nil, "not these kinds, such as ClusterRole.rbac.authorization.k8s.io")
	flags.BoolVar(&f.Privileged, "admission-privileged", false, "allow privileged pods")
	flags.StringArrayVar(&f.Rules, "admission-rule", nil, "CEL expression that must be true for each object (repeatable)")
}

// admission returns the limits; nil if there is no policy. Limits without it are a mistake.
func (f *admissionFlags) admission(cmd *cobra.Command) (*client.Admission, error) {
	if f.on {
		return &f.Admission, nil
	}
	for _, name := range []string{"namespaces", "namespace-label", "cluster-scoped", "kinds", "exclude-kinds", "privileged", "rule"} {
		if cmd.Flags().Changed("admission-" + name) {
			return nil, &exitError{exitUsage, "--admission-" + name + " needs --admission", ""}
		}
	}
	return nil, nil
}

func (a *app) agentDrainCommand() *cobra.Command {
	var undo bool
	cmd := a.verb("drain NAME", "Move the push environments of an engine instance to another one", 1, func(ctx context.Context, c *client.Client, args []string) error {
		draining := !undo
		if err := client.Do(ctx, c, http.MethodPatch, c.In("agents", args[0]), apiv1.UpdateAgent{Draining: &draining}); err != nil {
			return err
		}
		if undo {
			return a.say("Agent %q can serve push environments again.", args[0])
		}
		return a.say("Agent %q is drained. kedge describe env shows where a push environment is.", args[0])
	})
	cmd.Long = "Each push environment of the agent moves as soon as the agent has confirmed that its Argo CD does not apply to it any more. Nothing is deleted. " +
		"Without another engine instance, the environments stay where they are until there is one."
	cmd.Flags().BoolVar(&undo, "undo", false, "let the agent serve push environments again; environments that have moved stay where they are")
	return cmd
}

func (a *app) agentDeleteCommand() *cobra.Command {
	cmd := a.verbs("delete NAME…", "Delete an agent from the server and revoke its token", agentResource().words(),
		func(ctx context.Context, c *client.Client, name string) error {
			if err := client.Do(ctx, c, http.MethodDelete, c.In("agents", name), nil); err != nil {
				return err
			}
			return a.say("Agent %q deleted. The objects that it has deployed stay in its cluster.", name)
		})
	cmd.Long = "Deletes an agent, its token and its targets from the server. The objects that it has deployed stay in the cluster, and so does its\n" +
		"installation: delete that first with kedge agent manifest NAME --without-deployment | kubectl delete -f -. To remove the deployed\n" +
		"objects, delete the deployments first."
	return cmd
}
