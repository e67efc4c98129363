package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) repoCommand() *cobra.Command {
	return group("repo", "Work with Git repositories", a.repoAddCommand(), a.repoSetCommand(), a.repoRefreshCommand(), a.repoWebhookCommand(),
		a.repoDeleteCommand(), getCommand(a, "get", repositoryResource()))
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

// onRepository is a verb on the repository that the first argument names.
func (a *app) onRepository(use, short string, run func(ctx context.Context, c *client.Client, r apiv1.Repository) error) *cobra.Command {
	return a.verb(use, short, 1, func(ctx context.Context, c *client.Client, args []string) error {
		r, err := repository(ctx, c, args[0])
		if err != nil {
			return err
		}
		return run(ctx, c, r)
	})
}

func (a *app) repoAddCommand() *cobra.Command {
	var req apiv1.CreateRepository
	cmd := a.verb("add URL", "Add a repository before any deployment uses it, to say how it is read", 1, func(ctx context.Context, c *client.Client, args []string) error {
		req.URL = args[0]
		if err := client.Do(ctx, c, http.MethodPost, c.In("repositories"), req); err != nil {
			return err
		}
		return a.say("Repository %s is added.", args[0])
	})
	cmd.Long = "A deployment adds its repository by itself. One that needs a credential is added before, or set afterwards."
	cmd.Flags().StringVar(&req.Credential, "credential", "", "name of the credential to read it with")
	return cmd
}

func (a *app) repoSetCommand() *cobra.Command {
	var credential string
	cmd := a.onRepository("set URL --credential NAME", "Change with which credential a repository is read", func(ctx context.Context, c *client.Client, r apiv1.Repository) error {
		if err := client.Do(ctx, c, http.MethodPatch, c.In("repositories", r.ID), apiv1.UpdateRepository{Credential: &credential}); err != nil {
			return err
		}
		if credential == "" {
			return a.say("Repository %s is read without a credential.", r.URL)
		}
		return a.say("Repository %s is read with credential %q.", r.URL, credential)
	})
	cmd.Flags().StringVar(&credential, "credential", "", "name of the credential; empty for none")
	must(cmd.MarkFlagRequired("credential"))
	return cmd
}

func (a *app) repoRefreshCommand() *cobra.Command {
	return a.onRepository("refresh URL", "Look at a repository now", func(ctx context.Context, c *client.Client, r apiv1.Repository) error {
		if err := client.Do(ctx, c, http.MethodPost, c.In("repositories", r.ID, "refresh"), nil); err != nil {
			return err
		}
		return a.say("Repository %s is looked at.", r.URL)
	})
}

func (a *app) repoDeleteCommand() *cobra.Command {
	return a.onRepository("delete URL", "Delete a repository that no deployment uses", func(ctx context.Context, c *client.Client, r apiv1.Repository) error {
		if err := client.Do(ctx, c, http.MethodDelete, c.In("repositories", r.ID), nil); err != nil {
			return err
		}
		return a.say("Repository %s is deleted.", r.URL)
	})
}

func (a *app) repoWebhookCommand() *cobra.Command {
	cmd := a.onRepository("webhook URL", "Show what a Git host has to be told so that pushes arrive at once",
		func(ctx context.Context, c *client.Client, r apiv1.Repository) error {
			hook, err := client.Send[apiv1.Webhook](ctx, c, http.MethodPost, c.In("repositories", r.ID, "webhook"), nil)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "url     %s\nsecret  %s\n", hook.URL, hook.Secret)
			return nil
		})
	cmd.Long = "Shows address and secret of a repository's webhook. At GitHub choose the content type application/json and push\n" +
		"events; other hosts sign the body with HMAC-SHA256 in the header X-Kedge-Signature: sha256=<hex>."
	return cmd
}
