package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func (a *app) agentEnrollCommand() *cobra.Command {
	var req apiv1.EnrollAgent
	var tokenFile, chosenFile string
	var kinds kindFlags
	cmd := &cobra.Command{
		Use:   "enroll NAME",
		Short: "Enroll an agent and print the manifest that installs it",
		Long: "Prints one manifest on standard output: applying it to a cluster is the whole installation. It holds the agent's token " +
			"and is shown this once. Kedge publishes no agent image yet: the server has one when it was started with --agent-image, and " +
			"without that --image is needed. An agent that runs outside of its cluster needs no image (--without-deployment) and reads " +
			"the token from a file, which --agent-token-file writes.",
		Example: "kedge agent enroll prod --image registry.example.com/kedge-agent:v1 | kubectl apply -f -\n" +
			"kedge agent enroll team-a --namespaces team-a,team-a-staging > agent.yaml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name, req.KindFilter = args[0], kinds.filter()
			var err error
			if req.Token, err = chosenToken(chosenFile); err != nil {
				return err
			}
			return a.enroll(cmd.Context(), req, tokenFile)
		},
	}
	f := cmd.Flags()
	f.StringToStringVar(&req.Labels, "label", nil, "labels that environments select by, KEY=VALUE,…; may be repeated")
	f.StringSliceVar(&req.Namespaces, "namespaces", nil, "limit the agent to these namespaces (default: the whole cluster)")
	kinds.add(f)
	f.StringVar(&req.EngineNamespace, "argocd-namespace", "", "namespace of an Argo CD in the cluster, which then fetches and applies (default: the agent applies)")
	f.BoolVar(&req.DeliverGitCredentials, "deliver-git-credentials", false, "let the agent store the credentials of private repositories as Secrets in the namespace of Argo CD")
	f.BoolVar(&req.EngineInstance, "engine-instance", false, "place push environments on the agent, whose Argo CD then applies to their clusters; needs --argocd-namespace")
	f.BoolVar(&req.Tunnel, "tunnel", false, "let callers with an access rule reach the API server of the cluster through the agent")
	f.StringVar(&req.Image, "image", "", "image of the agent (default: the server's --agent-image)")
	f.BoolVar(&req.WithoutDeployment, "without-deployment", false, "leave the Deployment out, for an agent that runs outside of its cluster")
	f.IntVar(&req.Replicas, "replicas", 0, "how many pods; one leads and the others wait to take over (default 1)")
	f.StringVar(&req.ServerAddress, "server-address", "", "how the agent reaches the server, such as grpcs://host:443 (default: the server's)")
	f.StringVar(&req.ConfigRepoURL, "config-repo", "", "URL of the Git repository that the agent's configuration is in (default: none)")
	f.StringVar(&chosenFile, "chosen-token-file", "", "file with your own token, as in the Secret of the cluster; the server refuses weak tokens")
	f.StringVar(&tokenFile, "agent-token-file", "", "also write the agent's token to this new file, readable for you alone")
	cmd.MarkFlagsMutuallyExclusive("image", "without-deployment")
	return cmd
}

func (a *app) enroll(ctx context.Context, req apiv1.EnrollAgent, tokenFile string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	keep, drop, err := newTokenFile(tokenFile)
	if err != nil {
		return err
	}
	made, err := client.Send[apiv1.Enrollment](ctx, c, http.MethodPost, c.In("agents"), req)
	if err != nil {
		drop()
		if problem := client.Problem(err); problem.Reason == string(fleet.ReasonAlreadyExists) {
			return failure(problem.Message, fmt.Sprintf("delete it first with kedge agent delete %s, or choose another name", req.Name))
		}
		return needsImage(err, req.Image)
	}
	if _, err := fmt.Fprint(a.Out, made.Manifest); err != nil {
		drop()
		return failure("the manifest could not be written, and it holds the only copy of the token: "+err.Error(),
			fmt.Sprintf("kedge agent token create %s makes another one; kedge agent manifest %s prints the rest", req.Name, req.Name))
	}
	if err := keep(made.Token); err != nil {
		return err
	}
	a.explainEnrollment(made)
	return nil
}

// needsImage tells the flags to somebody who gave no image to a server that has no default.
func needsImage(err error, given string) error {
	if given == "" && client.Refuses(err, "image") {
		return failure("the manifest would name no image of the agent: Kedge publishes none yet, and the server has no default",
			"build an image that holds kedge-agent and name it with --image, or start the server with --agent-image; "+
				"--without-deployment makes a manifest for an agent that runs outside of the cluster")
	}
	return err
}

// newTokenFile makes the file before there is a token: one that cannot be written must not cost the
// only copy, and one that exists is somebody's.
func newTokenFile(path string) (keep func(token string) error, drop func(), err error) {
	if path == "" {
		return func(string) error { return nil }, func() {}, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, failure("making the file for the token: "+err.Error(), "name a file that does not exist yet")
	}
	keep = func(token string) error {
		_, err := file.WriteString(token + "\n")
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("writing the token, of which there is no other copy here: %w", err)
		}
		return nil
	}
	return keep, func() { _, _ = file.Close(), os.Remove(path) }, nil
}

func (a *app) explainEnrollment(made apiv1.Enrollment) {
	fmt.Fprintf(a.Err, "Agent %q is enrolled. Apply the manifest above to its cluster with kubectl apply -f -; it holds the token and is not shown again.\n", made.Agent.Name)
	if len(made.Agent.Namespaces) > 0 {
		fmt.Fprintf(a.Err, "The namespaces %s have to exist there first.\n", strings.Join(made.Agent.Namespaces, ", "))
	}
	for _, warning := range manifestWarnings(made.Manifest) {
		fmt.Fprintln(a.Err, "Warning:", warning)
	}
	fmt.Fprintln(a.Err, "To see it connect: kedge get agents --watch")
}

// manifestWarnings tells what keeps a manifest from working in a cluster elsewhere.
func manifestWarnings(manifest string) []string {
	var out []string
	for _, word := range strings.Fields(manifest) {
		address, ok := strings.CutPrefix(word, "--server-address=")
		if !ok {
			continue
		}
		if u, err := url.Parse(address); err == nil && loopback(u.Hostname()) {
			out = append(out, "the agent connects to "+address+", which only the machine of the server can reach: "+
				"start the server with --external-url, or enroll with --server-address")
		}
	}
	return out
}
