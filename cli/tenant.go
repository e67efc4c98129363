package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) tenantCommand() *cobra.Command {
	path := func(c *client.Client, name string) string { return c.Top("tenants", name) }
	cmd := group("tenant", "Manage tenants, their quotas and members",
		a.tenantCreateCommand(), a.tenantQuotaCommand(), getCommand(a, "get", tenantResource()), a.memberCommand(),
		a.removeVerb("tenant", "Deletes an empty tenant. Agents, environments, repositories, credentials and deployments must be deleted first.", tenantResource().words(), path))
	cmd.Aliases = []string{"tenants"}
	cmd.AddCommand(a.suspendVerbs("tenant", tenantResource().words(), path)...)
	return cmd
}

func quotaFlags(f *pflag.FlagSet, q *apiv1.Quota) {
	f.IntVar(&q.Agents, "max-agents", 0, "maximum number of agents; 0 is no limit")
	f.IntVar(&q.Environments, "max-environments", 0, "maximum number of environments")
	f.IntVar(&q.Repositories, "max-repositories", 0, "maximum number of repositories")
	f.IntVar(&q.Deployments, "max-deployments", 0, "maximum number of deployments")
	f.IntVar(&q.Targets, "max-targets", 0, "maximum number of targets: deployments times clusters")
	f.IntVar(&q.Tokens, "max-tokens", 0, "maximum number of API tokens")
}

func (a *app) tenantCreateCommand() *cobra.Command {
	var req apiv1.CreateTenant
	cmd := a.verb("create NAME", "Create a tenant, with an environment \"default\"", 1, func(ctx context.Context, c *client.Client, args []string) error {
		req.Name = args[0]
		if err := client.Do(ctx, c, http.MethodPost, c.Top("tenants"), req); err != nil {
			return err
		}
		return a.say("Tenant %q created. To work in it: --tenant %s", args[0], args[0])
	})
	quotaFlags(cmd.Flags(), &req.Quota)
	return cmd
}

func (a *app) tenantQuotaCommand() *cobra.Command {
	var wanted apiv1.Quota
	var cmd *cobra.Command
	cmd = a.verb("quota NAME", "Change the quota of a tenant; limits without a flag stay as they are", 1, func(ctx context.Context, c *client.Client, args []string) error {
		now, err := client.Get[apiv1.Tenant](ctx, c, c.Top("tenants", args[0]))
		if err != nil {
			return err
		}
		merged := now.Quota
		for flag, field := range map[string][2]*int{
			"max-agents": {&merged.Agents, &wanted.Agents}, "max-environments": {&merged.Environments, &wanted.Environments},
			"max-repositories": {&merged.Repositories, &wanted.Repositories}, "max-deployments": {&merged.Deployments, &wanted.Deployments},
			"max-targets": {&merged.Targets, &wanted.Targets}, "max-tokens": {&merged.Tokens, &wanted.Tokens},
		} {
			if cmd.Flags().Changed(flag) {
				*field[0] = *field[1]
			}
		}
		if err := client.Do(ctx, c, http.MethodPatch, c.Top("tenants", args[0]), apiv1.UpdateTenant{Quota: &merged}); err != nil {
			return err
		}
		return a.say("The quota of tenant %q is %s.", args[0], quotaText(merged))
	})
	quotaFlags(cmd.Flags(), &wanted)
	return cmd
}

func quotaText(q apiv1.Quota) string {
	var parts []string
	for _, p := range []struct {
		n    int
		noun string
	}{{q.Agents, "agents"}, {q.Environments, "environments"}, {q.Repositories, "repositories"}, {q.Deployments, "deployments"}, {q.Targets, "targets"}, {q.Tokens, "tokens"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("at most %d %s", p.n, p.noun))
		}
	}
	if len(parts) == 0 {
		return "no limits"
	}
	return strings.Join(parts, ", ")
}

func tenantResource() resource[apiv1.Tenant] {
	name := func(v apiv1.Tenant) string { return v.Name }
	return resource[apiv1.Tenant]{
		kind: "tenant", use: "tenants", global: true, short: "List the tenants that you may read", changes: []string{"tenant"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Tenant, error) {
			return client.List[apiv1.Tenant](ctx, c, c.Top("tenants"), nil, 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Tenant, error) {
			return client.Get[apiv1.Tenant](ctx, c, c.Top("tenants", name))
		},
		key: name, name: name, header: []string{"NAME", "STATE", "QUOTA", "AGE"},
		rows: func(v apiv1.Tenant, now time.Time) [][]string {
			return [][]string{{v.Name, suspended(v.Suspension, "Active", now), cell(quotaText(v.Quota)), output.Age(v.CreatedAt, now)}}
		},
	}
}

// suspended reads a suspension, or what is true without one.
func suspended(s *apiv1.Suspension, otherwise string, now time.Time) string {
	if s == nil {
		return otherwise
	}
	text := fmt.Sprintf("Suspended by %s (%s)", s.By, output.Age(s.At, now))
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return cell(text)
}

func (a *app) memberCommand() *cobra.Command {
	path := func(c *client.Client, kind, subject string) string { return c.In("members", kind, subject) }
	set := a.verb("set person|group SUBJECT ROLE", "Give a person or a group a role: viewer, deployer or admin", 3,
		func(ctx context.Context, c *client.Client, args []string) error {
			if err := client.Do(ctx, c, http.MethodPut, path(c, args[0], args[1]), apiv1.PutMember{Role: args[2]}); err != nil {
				return err
			}
			return a.say("%s %q is %s of tenant %q.", capital(args[0]), args[1], args[2], c.Tenant())
		})
	set.Long = "Names are those of the identity provider. The tenant is that of --tenant."
	set.Example = "kedge tenant member set group web-team deployer --tenant shop"
	remove := a.verb("remove person|group SUBJECT", "Remove a role", 2, func(ctx context.Context, c *client.Client, args []string) error {
		if err := client.Do(ctx, c, http.MethodDelete, path(c, args[0], args[1]), nil); err != nil {
			return err
		}
		return a.say("%s %q no longer has a role in tenant %q.", capital(args[0]), args[1], c.Tenant())
	})
	kinds := cobra.FixedCompletions([]string{"person", "group"}, cobra.ShellCompDirectiveNoFileComp)
	set.ValidArgsFunction, remove.ValidArgsFunction = kinds, kinds
	return group("member", "Manage the roles of people and groups in a tenant", set, remove, getCommand(a, "get", memberResource()))
}

func memberResource() resource[apiv1.Member] {
	name := func(v apiv1.Member) string { return v.Kind + "/" + v.Subject }
	return resource[apiv1.Member]{
		kind: "member", use: "members", short: "List the members of the tenant and their roles", changes: []string{"tenant"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Member, error) {
			return client.List[apiv1.Member](ctx, c, c.In("members"), nil, 0)
		},
		key: name, name: name, header: []string{"KIND", "SUBJECT", "ROLE", "AGE"},
		rows: func(v apiv1.Member, now time.Time) [][]string {
			return [][]string{{v.Kind, v.Subject, v.Role, output.Age(v.CreatedAt, now)}}
		},
	}
}
