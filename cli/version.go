package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and, when logged in, of the server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(a.Out, "kedge ", a.Version)
			c, notLoggedIn := a.connect()
			if notLoggedIn != nil {
				return nil // there is no server to ask
			}
			who, err := client.Get[apiv1.Whoami](cmd.Context(), c, c.Top("whoami"))
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, "server", who.ServerVersion)
			return nil
		},
	}
}
