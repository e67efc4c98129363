package cli

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) personCommand() *cobra.Command {
	logout := a.verb("logout NAME", "End all sessions of a person, at once", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodDelete, c.Top("people", args[0], "sessions"), nil); err != nil {
			return err
		}
		return a.say("%s is logged out of all sessions. Roles stay: kedge tenant member remove deletes them.", args[0])
	})
	logout.Long = "Requests with these sessions are refused from now on, and what they follow ends within seconds, on every server. " +
		"The person can log in again, unless the identity provider says no. Everybody may do this to themselves."
	forget := a.verb("forget NAME", "Delete a person who has left, so that the name can be used again", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodDelete, c.Top("people", args[0]), nil); err != nil {
			return err
		}
		return a.say("Person %s deleted, with all sessions and roles.", args[0])
	})
	forget.Long = "A name belongs to the person who first logged in with it. If the identity provider gives the name to another person, delete it here first.\n" +
		"The sessions and roles of the name are deleted too."
	cmd := group("person", "List the people who have logged in, and log them out", getCommand(a, "get", personResource()), logout, forget)
	cmd.Aliases = []string{"people", "persons"}
	return cmd
}

func personResource() resource[apiv1.Person] {
	name := func(v apiv1.Person) string { return v.Name }
	return resource[apiv1.Person]{
		kind: "person", use: "people", aliases: []string{"persons"}, short: "List the people who have logged in", global: true, changes: []string{"token"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Person, error) {
			return client.List[apiv1.Person](ctx, c, c.Top("people"), nil, 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Person, error) {
			return client.Get[apiv1.Person](ctx, c, c.Top("people", name))
		},
		key: name, name: name, header: []string{"NAME", "DISPLAY NAME", "SESSIONS", "LAST LOGIN", "AGE", "+SUBJECT", "+ISSUER"},
		rows: func(v apiv1.Person, now time.Time) [][]string {
			return [][]string{{v.Name, cell(orDash(v.DisplayName)), strconv.Itoa(v.Sessions), output.Age(v.LoggedInAt, now), output.Age(v.CreatedAt, now), cell(v.Subject), v.Issuer}}
		},
	}
}
