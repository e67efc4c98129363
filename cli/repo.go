package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) repoCommand() *cobra.Command {
	return group("repo", "Work with Git repositories", a.repoWebhookCommand())
}

func (a *app) repoWebhookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "webhook URL",
		Short: "Show what a Git host has to be told so that pushes arrive at once",
		Long: "Shows address and secret of a repository's webhook. At GitHub choose the content type application/json and push\n" +
			"events; other hosts sign the body with HMAC-SHA256 in the header X-Kedge-Signature: sha256=<hex>.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			repos, err := c.Repositories(cmd.Context())
			if err != nil {
				return err
			}
			for _, r := range repos {
				if r.URL != args[0] && r.ID != args[0] {
					continue
				}
				hook, err := c.Webhook(cmd.Context(), r.ID)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Out, "url     %s\nsecret  %s\n", hook.URL, hook.Secret)
				return nil
			}
			return fmt.Errorf("no deployment uses the repository %s: see kedge get repositories", args[0])
		},
	}
}
