package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) tokenCommand() *cobra.Command {
	cmd := group("token", "Create and revoke API tokens", a.tokenCreateCommand(), getCommand(a, "get", tokenResource()), a.tokenRevokeCommand())
	cmd.Aliases = []string{"tokens"}
	return cmd
}

// tokens is where the tokens of the tenant, or of the fleet, are.
func tokens(c *client.Client, fleet bool, parts ...string) string {
	if fleet {
		return c.Top(append([]string{"tokens"}, parts...)...)
	}
	return c.In(append([]string{"tokens"}, parts...)...)
}

func fleetFlag(f *pflag.FlagSet, fleet *bool) {
	f.BoolVar(fleet, "fleet", false, "of the whole fleet, not of the tenant")
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var req apiv1.CreateAPIToken
	var fleet bool
	var file string
	cmd := a.verb("create NAME --role ROLE", "Create an API token and print it, this once", 1, func(ctx context.Context, c *client.Client, args []string) error {
		keep, drop, err := newTokenFile(file)
		if err != nil {
			return err
		}
		req.Name = args[0]
		made, err := client.Send[apiv1.NewAPIToken](ctx, c, http.MethodPost, tokens(c, fleet), req)
		if err != nil {
			drop()
			return err
		}
		if file == "" {
			return a.say("%s", made.Token)
		}
		if err := keep(made.Token); err != nil {
			return err
		}
		return a.say("Token %s is in %s.", made.ID, file)
	})
	cmd.Long = "The token can do what its role can do in the tenant, and never more than you can. It is printed on standard output, or written to a new file."
	cmd.Example = "kedge token create ci --role deployer --expires-in 90d --to-file ci.token"
	f := cmd.Flags()
	f.StringVar(&req.Role, "role", "", "viewer, deployer or admin; with --fleet: fleet-admin")
	f.StringVar(&req.ExpiresIn, "expires-in", "", "how long it is valid, such as 12h or 90d (default: without end)")
	f.StringVar(&file, "to-file", "", "write it to this new file, readable for you alone, instead of printing it")
	fleetFlag(f, &fleet)
	must(cmd.MarkFlagRequired("role"))
	must(cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"viewer", "deployer", "admin", "fleet-admin"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	var fleet bool
	cmd := a.verb("revoke ID", "Revoke an API token", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodDelete, tokens(c, fleet, args[0]), nil); err != nil {
			return err
		}
		return a.say("Token %s revoked.", args[0])
	})
	fleetFlag(cmd.Flags(), &fleet)
	return cmd
}

func tokenResource() resource[apiv1.APIToken] {
	var fleet bool
	return resource[apiv1.APIToken]{
		kind: "token", use: "tokens", short: "List API tokens, without the tokens themselves", changes: []string{"token"},
		flags: func(f *pflag.FlagSet) { fleetFlag(f, &fleet) },
		list: func(ctx context.Context, c *client.Client) ([]apiv1.APIToken, error) {
			return client.List[apiv1.APIToken](ctx, c, tokens(c, fleet), nil, 0)
		},
		key: func(v apiv1.APIToken) string { return v.ID }, name: func(v apiv1.APIToken) string { return v.ID },
		header: []string{"ID", "NAME", "ROLE", "STATE", "BY", "EXPIRES", "AGE"},
		rows: func(v apiv1.APIToken, now time.Time) [][]string {
			return [][]string{{v.ID, v.Name, v.Role, validity(v.Valid, v.RevokedAt), orDash(v.CreatedBy), output.Until(v.ExpiresAt, now), output.Age(v.CreatedAt, now)}}
		},
	}
}

func validity(valid bool, revoked time.Time) string {
	switch {
	case valid:
		return "Valid"
	case !revoked.IsZero():
		return "Revoked"
	default:
		return "Expired"
	}
}

func (a *app) agentTokenCommand() *cobra.Command {
	path := func(c *client.Client, parts ...string) string {
		return c.In(append([]string{"agents", parts[0], "tokens"}, parts[1:]...)...)
	}
	get := getOf(a, "get AGENT", "List the tokens of an agent, without the tokens themselves", agentResource().words(), agentTokenResource)
	var chosen string
	create := a.verb("create AGENT", "Create a second token of an agent and print it, this once", 1, func(ctx context.Context, c *client.Client, args []string) error {
		req, err := chosenToken(chosen)
		if err != nil {
			return err
		}
		made, err := client.Send[apiv1.NewAgentToken](ctx, c, http.MethodPost, path(c, args[0]), apiv1.CreateAgentToken{Token: req})
		if err != nil {
			return err
		}
		return a.say("%s", made.Token)
	})
	create.Flags().StringVar(&chosen, "chosen-token-file", "", "file with your own token; the server refuses weak tokens")
	revoke := a.verb("revoke AGENT ID", "Revoke a token of an agent; its connections end within seconds", 2,
		func(ctx context.Context, c *client.Client, args []string) error {
			if err := client.Do(ctx, c, http.MethodDelete, path(c, args[0], args[1]), nil); err != nil {
				return err
			}
			return a.say("Token %s of agent %q revoked. Deployed objects stay.", args[1], args[0])
		})
	return group("token", "Manage the tokens of an agent", create, get, revoke)
}

func agentTokenResource(agent string) resource[apiv1.AgentToken] {
	id := func(v apiv1.AgentToken) string { return v.ID }
	return resource[apiv1.AgentToken]{
		kind: "token", use: "tokens", changes: []string{"token"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.AgentToken, error) {
			return client.List[apiv1.AgentToken](ctx, c, c.In("agents", agent, "tokens"), nil, 0)
		},
		key: id, name: id, header: []string{"ID", "STATE", "BY", "LAST USED", "AGE"},
		rows: func(v apiv1.AgentToken, now time.Time) [][]string {
			return [][]string{{v.ID, validity(v.Valid, v.RevokedAt), orDash(v.CreatedBy), output.Age(v.LastUsedAt, now), output.Age(v.CreatedAt, now)}}
		},
	}
}

func chosenToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	return readToken(file)
}

func (a *app) agentRotateCommand() *cobra.Command {
	var w waiting
	cmd := a.verb("rotate-token NAME", "Rotate the token of an agent over its connection, without a restart", 1,
		func(ctx context.Context, c *client.Client, args []string) error {
			op, err := client.Send[apiv1.Operation](ctx, c, http.MethodPost, c.In("agents", args[0], "rotate-token"), nil)
			if err != nil {
				return err
			}
			if !w.wait {
				fmt.Fprintf(a.Err, "To follow it: kedge operation get %s --watch\n", op.ID)
				return nil
			}
			if err := a.awaitOperation(ctx, c, op.ID, w, nil); err != nil {
				return err
			}
			return a.say("Agent %q has a new token.", args[0])
		})
	w.flags(cmd)
	return cmd
}
