package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/profile"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// account is the answer of kedge whoami.
type account struct {
	Server string `json:"server"`
	Tenant string `json:"tenant"`
	apiv1.Whoami
}

func (a *app) whoamiCommand() *cobra.Command {
	var out outputFlags
	cmd := a.verb("whoami", "Show who you are, and your roles", 0, func(ctx context.Context, c *client.Client, _ []string) error {
		if err := out.parse(); err != nil {
			return err
		}
		who, err := client.Get[apiv1.Whoami](ctx, c, c.Top("whoami"))
		if err != nil {
			return err
		}
		return a.printOne(out, account{c.Server(), c.Tenant(), who}, who.Name, func() error { return a.facts(accountFacts(c, who)) })
	})
	out.add(cmd)
	return cmd
}

func accountFacts(c *client.Client, who apiv1.Whoami) [][]string {
	kind := "API token"
	if who.Session {
		kind = "Session"
	}
	rows := [][]string{{"Name", who.Name}, {"Login", kind}, {"Role", orDash(who.Role)}, {"Server", c.Server()}, {"Tenant", c.Tenant()}}
	var roles []string
	for _, m := range who.Tenants {
		roles = append(roles, fmt.Sprintf("%s (%s)", m.Tenant, m.Role))
	}
	if len(roles) > 0 {
		rows = append(rows, []string{"Tenants", strings.Join(roles, ", ")})
	}
	return rows
}

func (a *app) logoutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "logout [CONTEXT]", Short: "End the session and delete the stored login", Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeContexts,
		Long: "Deletes a context with its token, by default the current one. A session of kedge login --sso ends on the server too. An API token\n" +
			"stays valid until it expires or is revoked.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			a.flags.context = args[0]
		}
		login, err := a.login()
		if err != nil {
			return err
		}
		if login.Name == "" {
			return errNotLoggedIn
		}
		ended := a.endSession(cmd.Context(), login)
		return a.withProfile(func(file *profile.File) (bool, error) {
			file.Remove(login.Name)
			if ended {
				return true, a.say("Logged out of context %q.", login.Name)
			}
			return true, a.say("Logged out of context %q. Its token is still valid: kedge token revoke ID revokes one.", login.Name)
		})
	}
	return cmd
}

// endSession ends the session of a login on the server, if it is one. A server that does not answer does not keep the user
// from logging out here.
func (a *app) endSession(ctx context.Context, login profile.Context) bool {
	c, err := a.client(login.Server, login.Token, []byte(login.CA), login.Tenant)
	if err != nil {
		return false
	}
	who, err := client.Get[apiv1.Whoami](ctx, c, c.Top("whoami"))
	if err == nil && who.Session {
		err = client.Do(ctx, c, http.MethodPost, c.Top("auth", "logout"), nil)
	}
	switch {
	case client.Status(err) == http.StatusUnauthorized:
		return true // it has ended already
	case err != nil:
		fmt.Fprintf(a.Err, "Warning: ending the session on the server failed: %v\n", err)
		return false
	}
	return who.Session
}
