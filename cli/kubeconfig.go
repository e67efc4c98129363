package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) kubeconfigCommand() *cobra.Command {
	var env, file string
	var all, force bool
	cmd := &cobra.Command{
		Use: "kubeconfig [AGENT…]", Short: "Print a kubeconfig for clusters behind agents", Args: cobra.ArbitraryArgs,
		Long: "Prints a kubeconfig with one context for each agent. kubectl and other clients then reach the cluster through the server: no port is\n" +
			"open at the cluster. The kubeconfig contains no token: kubectl runs kedge to get one that is valid for 10 minutes.\n\n" +
			"The agent needs --tunnel, and you need an access rule (kedge access). What you may do, the RBAC of the cluster decides.",
		Example: "  kedge kubeconfig paris > paris.yaml && kubectl --kubeconfig paris.yaml get pods\n" +
			"  kedge kubeconfig --env prod -f ~/.kube/prod",
		ValidArgsFunction: completeNames(a, agentResource()),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(c.Server(), "https://") {
			return failure("kubectl sends credentials over HTTPS only, and "+c.Server()+" is not", "start kedge-server with --tls-host localhost, or with a certificate")
		}
		agents, err := a.agentsFor(cmd.Context(), c, args, env, all)
		if err != nil {
			return err
		}
		login, err := a.login()
		if err != nil {
			return err
		}
		text, err := yaml.Marshal(a.kubeconfig(c, login.Name, agents))
		if err != nil {
			return err
		}
		if file == "" {
			_, err = a.Out.Write(text)
			return err
		}
		if _, err := os.Stat(file); err == nil && !force {
			return failure(file+" exists, and is not overwritten", "choose another file, or --force")
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return fmt.Errorf("writing the kubeconfig: %w", err)
		}
		return a.say("Wrote %s with %d contexts: kubectl --kubeconfig %s get pods", file, len(agents), file)
	}
	cmd.Flags().StringVar(&env, "env", "", "all agents of an environment")
	cmd.Flags().BoolVar(&all, "all", false, "all agents of the tenant")
	cmd.Flags().StringVarP(&file, "file", "f", "", "write to this file instead of the standard output")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return cmd
}

// agentsFor returns the names of the agents that the user selected.
func (a *app) agentsFor(ctx context.Context, c *client.Client, names []string, env string, all bool) ([]string, error) {
	var out []string
	for _, name := range names {
		agent, err := client.Get[apiv1.Agent](ctx, c, c.In("agents", bareName(name, []string{"agent", "agents"})))
		if err != nil {
			return nil, err
		}
		out = append(out, agent.Name)
	}
	if env != "" {
		e, err := client.Get[apiv1.Environment](ctx, c, c.In("environments", env))
		if err != nil {
			return nil, err
		}
		out = append(out, e.Selected...)
	}
	if all {
		agents, err := client.List[apiv1.Agent](ctx, c, c.In("agents"), client.Everything(), 0)
		if err != nil {
			return nil, err
		}
		for _, agent := range agents {
			out = append(out, agent.Name)
		}
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) == 0 {
		return nil, failure("no agent is selected", "kedge kubeconfig AGENT, --env ENVIRONMENT or --all")
	}
	return out, nil
}

// kubeconfig is the kubeconfig for agents of a tenant. The first one is its current context.
func (a *app) kubeconfig(c *client.Client, login string, agents []string) map[string]any {
	// The names contain the server, so that merged kubeconfigs of two servers never mix up credentials.
	_, host, _ := strings.Cut(c.Server(), "://")
	user := "kedge/" + host
	name := func(agent string) string { return user + "/" + c.Tenant() + "/" + agent }
	var clusters, contexts []any
	for _, agent := range agents {
		cluster := map[string]any{"server": c.Server() + c.In("agents", agent, "kube")}
		if ca := c.CA(); len(ca) > 0 {
			cluster["certificate-authority-data"] = base64.StdEncoding.EncodeToString(ca)
		}
		clusters = append(clusters, map[string]any{"name": name(agent), "cluster": cluster})
		contexts = append(contexts, map[string]any{"name": name(agent), "context": map[string]any{"cluster": name(agent), "user": user}})
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Config", "clusters": clusters, "contexts": contexts, "current-context": name(agents[0]),
		"users": []any{map[string]any{"name": user, "user": map[string]any{"exec": map[string]any{
			"apiVersion": execVersion, "command": "kedge", "args": a.pluginArgs(c.Server(), login), "interactiveMode": "Never",
			"installHint": "kubectl needs the kedge program to log in.",
		}}}},
	}
}

// execVersion is the API of credential plugins.
const execVersion = "client.authentication.k8s.io/v1"

// pluginArgs are the arguments with which kubectl runs kedge. They name the server, so that a token of a later login at another
// server is never sent to this one.
func (a *app) pluginArgs(server, login string) []string {
	args := []string{"kube-token", "--server", server}
	for _, f := range []struct {
		name, value string
		path        bool
	}{{"--context", login, false}, {"--token-file", a.flags.tokenFile, true}, {"--ca-file", a.flags.caFile, true}} {
		if f.value == "" {
			continue
		}
		if full, err := filepath.Abs(f.value); f.path && err == nil {
			f.value = full
		}
		args = append(args, f.name, f.value)
	}
	return args
}

func (a *app) kubeTokenCommand() *cobra.Command {
	cmd := a.verb("kube-token", "Print a short-lived token for kubectl", 0, func(ctx context.Context, c *client.Client, _ []string) error {
		token, err := client.Send[apiv1.KubeToken](ctx, c, http.MethodPost, c.Top("kube-tokens"), nil)
		if err != nil {
			return err
		}
		return json.NewEncoder(a.Out).Encode(map[string]any{
			"apiVersion": execVersion, "kind": "ExecCredential",
			"status": map[string]any{"token": token.Token, "expirationTimestamp": token.ExpiresAt.Format(time.RFC3339)},
		})
	})
	cmd.Long = "Prints an ExecCredential with a token that is valid for 10 minutes, for requests to clusters only. kubectl runs this command when a\n" +
		"kubeconfig of kedge kubeconfig says so. The token ends with your login."
	return cmd
}
