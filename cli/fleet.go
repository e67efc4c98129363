package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) fleetCommand() *cobra.Command {
	var reason string
	freeze := a.verb("freeze", "Stop sending changes to all clusters; agents still correct drift", 0, func(ctx context.Context, c *client.Client, _ []string) error {
		if err := client.Do(ctx, c, http.MethodPost, c.Top("fleet", "freeze"), apiv1.Suspend{Reason: reason}); err != nil {
			return err
		}
		return a.say("The fleet is frozen. To end it: kedge fleet unfreeze")
	})
	freeze.Flags().StringVar(&reason, "reason", "", "why; everyone who reads the status sees it")
	unfreeze := a.verb("unfreeze", "End the freeze: every cluster gets the newest revision", 0, func(ctx context.Context, c *client.Client, _ []string) error {
		if err := client.Do(ctx, c, http.MethodPost, c.Top("fleet", "unfreeze"), nil); err != nil {
			return err
		}
		return a.say("The fleet is no longer frozen.")
	})
	var out outputFlags
	get := a.verb("get", "Show the size of the fleet and whether it is frozen", 0, func(ctx context.Context, c *client.Client, _ []string) error {
		if err := out.parse(); err != nil {
			return err
		}
		v, err := client.Get[apiv1.Fleet](ctx, c, c.Top("fleet"))
		if err != nil {
			return err
		}
		return a.printOne(out, v, "fleet", func() error {
			return a.table(out, []string{"STATE", "AGENTS", "CONNECTED", "DEPLOYMENTS", "TARGETS"}, []string{
				suspended(v.Suspension, "Active", a.Now()), strconv.Itoa(v.Agents), strconv.Itoa(v.Connected), strconv.Itoa(v.Deployments), strconv.Itoa(v.Targets),
			}).Write(a.Out)
		})
	})
	get.Aliases = listAliases
	out.add(get)
	return group("fleet", "See and freeze the whole fleet", get, freeze, unfreeze)
}

func (a *app) operationCommand() *cobra.Command {
	cmd := group("operation", "Follow asynchronous operations", getCommand(a, "get", operationResource()))
	cmd.Aliases = []string{"operations", "op", "ops"}
	return cmd
}

func operationResource() resource[apiv1.Operation] {
	name := func(v apiv1.Operation) string { return v.ID }
	filter := url.Values{}
	return resource[apiv1.Operation]{
		kind: "operation", use: "operations", aliases: []string{"op", "ops"}, short: "List operations, newest first", changes: []string{"operation"}, bounded: true,
		flags: func(f *pflag.FlagSet) {
			queryFlag(f, filter, "state", "state", "only those that are Waiting, InProgress, Completed or Failed")
			queryFlag(f, filter, "kind", "kind", "only those of this kind of resource, such as deployment")
			queryFlag(f, filter, "name", "name", "only those of the resource of this name")
		},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Operation, error) {
			return client.List[apiv1.Operation](ctx, c, c.In("operations"), filter, 100)
		},
		get: func(ctx context.Context, c *client.Client, id string) (apiv1.Operation, error) {
			return client.Get[apiv1.Operation](ctx, c, c.In("operations", id))
		},
		key: name, name: name, header: []string{"ID", "ACTION", "RESOURCE", "STATE", "BY", "AGE", "MESSAGE"},
		rows: func(v apiv1.Operation, now time.Time) [][]string {
			return [][]string{{v.ID, v.Action, v.Kind + "/" + v.Name, v.State, orDash(v.By), output.Age(v.CreatedAt, now), cell(sentence(v.Message))}}
		},
	}
}

// queryFlag is a flag that sets a parameter of a listing.
func queryFlag(f *pflag.FlagSet, into url.Values, name, parameter, usage string) {
	f.Func(name, usage, func(value string) error {
		into.Add(parameter, value)
		return nil
	})
}

// labelFilterFlag is the older form of --selector, kept for scripts.
func labelFilterFlag(f *pflag.FlagSet, into url.Values) {
	queryFlag(f, into, "label", "label", "only resources with this label, KEY=VALUE")
	must(f.MarkHidden("label"))
}

// timeFlag is a queryFlag that takes a time, or a duration before now.
func timeFlag(f *pflag.FlagSet, into url.Values, name, usage string, now func() time.Time) {
	f.Func(name, usage, func(value string) error {
		at, err := moment(value, now())
		if err == nil {
			into.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
		return err
	})
}

func moment(value string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(value, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if ago, err := time.ParseDuration(value); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, errors.New("is neither a duration, such as 10m, 2h or 3d, nor a time, such as 2006-01-02T15:04:05Z")
	}
	return at, nil
}

func (a *app) auditCommand() *cobra.Command {
	cmd := getCommand(a, "audit", auditResource(a.Now))
	cmd.Short = "Show the audit log, newest first"
	return cmd
}

func auditResource(now func() time.Time) resource[apiv1.AuditEvent] {
	var fleet bool
	most := 100
	filter := url.Values{}
	key := func(v apiv1.AuditEvent) string { return strconv.FormatInt(v.Seq, 10) }
	return resource[apiv1.AuditEvent]{
		use: "audit events", short: "Show the audit log, newest first", changes: []string{"event"}, bounded: true,
		flags: func(f *pflag.FlagSet) {
			queryFlag(f, filter, "actor", "actor", "only actions of this token or person")
			queryFlag(f, filter, "action", "action", "only this action, such as deployment.create")
			queryFlag(f, filter, "kind", "kind", "only actions on this kind of resource")
			queryFlag(f, filter, "name", "name", "only actions on the resource of this name")
			timeFlag(f, filter, "since", "only actions after this: a duration such as 10m, or a time (RFC 3339)", now)
			timeFlag(f, filter, "until", "only actions before this: a duration such as 10m, or a time (RFC 3339)", now)
			f.IntVar(&most, "limit", most, "at most this many")
			fleetFlag(f, &fleet)
		},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.AuditEvent, error) {
			path := c.In("audit")
			if fleet {
				path = c.Top("audit")
			}
			filter.Set("limit", strconv.Itoa(min(most, 500))) // of a page
			found, err := client.List[apiv1.AuditEvent](ctx, c, path, filter, most)
			if err != nil {
				return nil, err
			}
			return found[:min(most, len(found))], nil
		},
		key: key, name: key, header: []string{"AGE", "ACTOR", "API", "ACTION", "RESOURCE", "ADDRESS", "+TIME", "DETAIL"},
		rows: func(v apiv1.AuditEvent, now time.Time) [][]string {
			return [][]string{{output.Age(v.At, now), v.Actor, orDash(v.Component), v.Action, orDash(v.Name), orDash(v.Address), stamp(v.At), cell(orDash(v.Detail))}}
		},
	}
}
