package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) repoCommand() *cobra.Command {
	cmd := group("repo", "Work with Git repositories", a.repoAddCommand(), a.repoSetCommand(), a.repoRefreshCommand(), a.repoWebhookCommand(),
		a.repoDeleteCommand(), getCommand(a, "get", repositoryResource()))
	cmd.Aliases = []string{"repository", "repositories", "repos"}
	return cmd
}

// repository finds one by its URL or ID.
func repository(ctx context.Context, c *client.Client, urlOrID string) (apiv1.Repository, error) {
	repos, err := client.List[apiv1.Repository](ctx, c, c.In("repositories"), client.Everything(), 0)
	if err != nil {
		return apiv1.Repository{}, err
	}
	for _, r := range repos {
		if r.URL == urlOrID || r.ID == urlOrID {
			return r, nil
		}
	}
	return apiv1.Repository{}, failure("there is no repository "+urlOrID, "kedge repo get lists what there is; kedge repo add URL adds one")
}

// onRepository is a verb on repositories, by URL or ID.
func (a *app) onRepository(use, short string, run func(ctx context.Context, c *client.Client, r apiv1.Repository) error) *cobra.Command {
	return a.verbs(use, short, repositoryResource().words(), func(ctx context.Context, c *client.Client, name string) error {
		r, err := repository(ctx, c, name)
		if err != nil {
			return err
		}
		return run(ctx, c, r)
	})
}

func (a *app) repoAddCommand() *cobra.Command {
	var req apiv1.CreateRepository
	var signersFile string
	cmd := a.verb("add URL", "Add a repository, with a credential if it needs one", 1, func(ctx context.Context, c *client.Client, args []string) (err error) {
		req.URL = args[0]
		if req.Signers, err = a.readSigners(signersFile); err != nil {
			return err
		}
		if err := client.Do(ctx, c, http.MethodPost, c.In("repositories"), req); err != nil {
			return err
		}
		return a.say("Repository %s added.", args[0])
	})
	cmd.Long = "Creating a deployment adds its repository. Add a repository yourself if it needs a credential."
	cmd.Flags().StringVar(&req.Credential, "credential", "", "name of the credential to read it with")
	cmd.Flags().BoolVar(&req.Submodules, "submodules", false, "allow paths into submodules")
	cmd.Flags().StringVar(&signersFile, "signers-file", "", signersUsage)
	return cmd
}

const signersUsage = "file with the keys that must have signed commits or tags: lines of an allowed_signers file or armored OpenPGP keys; empty for no signatures"

// readSigners reads a file of signers; "" names none.
func (a *app) readSigners(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", failure("the file of signers cannot be read: "+err.Error(), "give the path of an allowed_signers file or of an armored OpenPGP public key")
	}
	return string(data), nil
}

func (a *app) repoSetCommand() *cobra.Command {
	var credential, signersFile string
	var submodules bool
	var cmd *cobra.Command
	cmd = a.onRepository("set URL", "Change the credential, submodules or signers of a repository", func(ctx context.Context, c *client.Client, r apiv1.Repository) error {
		var req apiv1.UpdateRepository
		if cmd.Flags().Changed("credential") {
			req.Credential = &credential
		}
		if cmd.Flags().Changed("submodules") {
			req.Submodules = &submodules
		}
		if cmd.Flags().Changed("signers-file") {
			signers, err := a.readSigners(signersFile)
			if err != nil {
				return err
			}
			req.Signers = &signers
		}
		if err := client.Do(ctx, c, http.MethodPatch, c.In("repositories", r.ID), req); err != nil {
			return err
		}
		return a.say("%s", howRead(r.URL, req))
	})
	cmd.Flags().StringVar(&credential, "credential", "", "name of the credential; empty for none")
	cmd.Flags().BoolVar(&submodules, "submodules", false, "allow paths into submodules; --submodules=false forbids them")
	cmd.Flags().StringVar(&signersFile, "signers-file", "", signersUsage)
	cmd.MarkFlagsOneRequired("credential", "submodules", "signers-file")
	return cmd
}

// howRead says what an edit has made of a repository.
func howRead(url string, req apiv1.UpdateRepository) string {
	var how []string
	if req.Credential != nil && *req.Credential == "" {
		how = append(how, "without a credential")
	} else if req.Credential != nil {
		how = append(how, fmt.Sprintf("with credential %q", *req.Credential))
	}
	if req.Submodules != nil && *req.Submodules {
		how = append(how, "through its submodules")
	} else if req.Submodules != nil {
		how = append(how, "without its submodules")
	}
	if req.Signers != nil && *req.Signers == "" {
		how = append(how, "without required signatures")
	} else if req.Signers != nil {
		how = append(how, "with required signatures")
	}
	return fmt.Sprintf("Repository %s is read %s.", url, strings.Join(how, ", "))
}

func (a *app) repoRefreshCommand() *cobra.Command {
	return a.onRepository("refresh URL…", "Fetch a repository now", func(ctx context.Context, c *client.Client, r apiv1.Repository) error {
		if err := client.Do(ctx, c, http.MethodPost, c.In("repositories", r.ID, "refresh"), nil); err != nil {
			return err
		}
		return a.say("Repository %s will be fetched now.", r.URL)
	})
}

func (a *app) repoDeleteCommand() *cobra.Command {
	return a.onRepository("delete URL…", "Delete a repository that no deployment uses", func(ctx context.Context, c *client.Client, r apiv1.Repository) error {
		if err := client.Do(ctx, c, http.MethodDelete, c.In("repositories", r.ID), nil); err != nil {
			return err
		}
		return a.say("Repository %s deleted.", r.URL)
	})
}

func (a *app) repoWebhookCommand() *cobra.Command {
	cmd := a.onRepository("webhook URL", "Show the webhook address and secret to configure at the Git host",
		func(ctx context.Context, c *client.Client, r apiv1.Repository) error {
			hook, err := client.Send[apiv1.Webhook](ctx, c, http.MethodPost, c.In("repositories", r.ID, "webhook"), nil)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "url            %s\nsecret         %s\n", hook.URL, hook.Secret)
			if hook.SigningToken != "" {
				fmt.Fprintf(a.Out, "signing token  %s\n", hook.SigningToken)
			}
			return nil
		})
	cmd.Long = "Shows address and secret of a repository's webhook, for push and tag events of GitHub, GitLab, Gitea, Forgejo and\n" +
		"Bitbucket. GitLab takes the secret as its secret token or, better, the signing token. Anything else signs the body with\n" +
		"HMAC-SHA256 in the header X-Kedge-Signature: sha256=<hex>."
	return cmd
}
