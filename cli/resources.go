package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func agentResource() resource[apiv1.Agent] {
	name := func(v apiv1.Agent) string { return v.Name }
	filter := client.Everything()
	return resource[apiv1.Agent]{
		use: "agents", aliases: []string{"agent"}, short: "List agents, one line per replica",
		kinds: []string{"agent", "connection", "token"},
		flags: func(f *pflag.FlagSet) {
			queryFlag(f, filter, "label", "only those with this label, key=value; may be repeated")
			queryFlag(f, filter, "q", "only those with this text in their name")
			queryFlag(f, filter, "connected", "only those that are connected (true) or not (false)")
		},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Agent, error) {
			return client.List[apiv1.Agent](ctx, c, c.In("agents"), filter, 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Agent, error) {
			return client.Get[apiv1.Agent](ctx, c, c.In("agents", name))
		},
		key: name, name: name,
		header: []string{"NAME", "STATE", "REPLICA", "VERSION", "KUBERNETES", "CLUSTER", "CONNECTED SINCE", "LAST SEEN", "SCOPE", "TARGETS"},
		rows:   agentRows,
		warnings: func(v apiv1.Agent) []string {
			var out []string
			for _, w := range v.Warnings {
				out = append(out, fmt.Sprintf("agent %s: %s", v.Name, w))
			}
			return out
		},
	}
}

func agentRows(v apiv1.Agent, now time.Time) [][]string {
	scope := v.Scope
	if len(v.Namespaces) > 0 {
		scope = strings.Join(v.Namespaces, ",")
	}
	targets := strconv.Itoa(v.Targets)
	if len(v.Connections) == 0 {
		return [][]string{{v.Name, "Never connected", "-", "-", "-", "-", "-", "-", cell(scope), targets}}
	}
	var rows [][]string
	for _, c := range v.Connections {
		since, seen := stamp(c.ConnectedAt), "now"
		if !c.Connected {
			since, seen = "-", stamp(c.LastSeenAt)
		}
		rows = append(rows, []string{
			v.Name, connectionState(c, v.Connected, now), c.Replica, orDash(c.Version), orDash(c.KubeVersion),
			orDash(c.ClusterUID[:min(8, len(c.ClusterUID))]), since, seen, cell(scope), targets,
		})
	}
	return rows
}

func deploymentResource() resource[apiv1.Deployment] {
	filter := client.Everything()
	return resource[apiv1.Deployment]{
		use: "deployments", aliases: []string{"deployment", "deploy"}, short: "List deployments and how they are doing",
		kinds: []string{"deployment", "desired", "status", "connection", "agent", "environment"},
		flags: func(f *pflag.FlagSet) {
			queryFlag(f, filter, "environment", "only those of this environment")
			queryFlag(f, filter, "agent", "only those with a target on this agent")
			queryFlag(f, filter, "repository", "only those of this repository, by its URL")
			queryFlag(f, filter, "sync", "only those with a target that is Synced, Syncing, OutOfSync, Pending, Failed, …")
			queryFlag(f, filter, "health", "only those with a target that is Current, InProgress, Failed, Stale, …")
			queryFlag(f, filter, "label", "only those with this label, key=value; may be repeated")
			queryFlag(f, filter, "q", "only those with this text in name, repository, path, commit or source error")
		},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Deployment, error) {
			return client.List[apiv1.Deployment](ctx, c, c.In("deployments"), filter, 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Deployment, error) {
			return c.Deployment(ctx, name)
		},
		// One that is being deleted may share its name with its successor.
		key: func(v apiv1.Deployment) string {
			return v.Name + strings.Repeat(" (deleting)", btoi(!v.DeletedAt.IsZero()))
		},
		name:   func(v apiv1.Deployment) string { return v.Name },
		header: []string{"NAME", "SYNC", "HEALTH", "READY", "COMMIT", "ENVIRONMENT", "NAMESPACE", "POLICY", "MESSAGE"},
		rows:   deploymentRows,
	}
}

func deploymentRows(v apiv1.Deployment, now time.Time) [][]string {
	sync := deploymentSync(v)
	if !v.DeletedAt.IsZero() {
		sync = "Deleting"
	}
	return [][]string{{
		v.Name, sync, deploymentHealth(v, now), fmt.Sprintf("%d/%d", v.Counts.Ready, v.Counts.Targets-v.Counts.Detached), deploymentCommit(v),
		v.Environment, v.Namespace, shortened(orDash(policyText(v.Policy)), maxPolicy), cell(v.Message),
	}}
}

func environmentResource() resource[apiv1.Environment] {
	name := func(v apiv1.Environment) string { return v.Name }
	return resource[apiv1.Environment]{
		use: "environments", aliases: []string{"environment", "env", "envs"}, short: "List environments and what they select",
		kinds: []string{"environment", "agent", "deployment"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Environment, error) {
			return client.List[apiv1.Environment](ctx, c, c.In("environments"), client.Everything(), 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Environment, error) {
			return client.Get[apiv1.Environment](ctx, c, c.In("environments", name))
		},
		key: name, name: name,
		header: []string{"NAME", "STATE", "SELECTS", "AGENTS", "DEPLOYMENTS", "CREATED"},
		rows: func(v apiv1.Environment, _ time.Time) [][]string {
			return [][]string{{
				v.Name, suspended(v.Suspension, "Active"), cell(selects(v)), strconv.Itoa(len(v.Selected)), strconv.Itoa(v.Deployments), stamp(v.CreatedAt),
			}}
		},
	}
}

func selects(v apiv1.Environment) string {
	parts := slices.Clone(v.Agents)
	if len(v.MatchLabels) > 0 {
		var labels []string
		for key, value := range v.MatchLabels {
			labels = append(labels, key+"="+value)
		}
		slices.Sort(labels)
		parts = append(parts, "agents with "+strings.Join(labels, ","))
	}
	if len(parts) == 0 {
		return "every agent"
	}
	return strings.Join(parts, ", ")
}

func eventResource(now func() time.Time) resource[apiv1.Event] {
	filter := url.Values{}
	return resource[apiv1.Event]{
		use: "events", aliases: []string{"event"}, short: "List what happened, newest last",
		kinds: []string{"event"}, bounded: true,
		flags: func(f *pflag.FlagSet) {
			queryFlag(f, filter, "deployment", "only events of this deployment")
			queryFlag(f, filter, "agent", "only events of this agent")
			timeFlag(f, filter, "since", "only what happened after this: a duration such as 10m, or a time (RFC 3339)", now)
			queryFlag(f, filter, "before", "only events before this one, by its number: see -o name")
			queryFlag(f, filter, "limit", "at most this many of the newest, up to 500; 100 when absent")
		},
		list:   func(ctx context.Context, c *client.Client) ([]apiv1.Event, error) { return c.Events(ctx, filter) },
		key:    func(v apiv1.Event) string { return strconv.FormatInt(v.Seq, 10) },
		name:   func(v apiv1.Event) string { return strconv.FormatInt(v.Seq, 10) },
		header: []string{"TIME", "TYPE", "REASON", "AGENT", "DEPLOYMENT", "OBJECT", "MESSAGE"},
		rows: func(v apiv1.Event, _ time.Time) [][]string {
			return [][]string{{stamp(v.At), v.Type, v.Reason, orDash(v.Agent), orDash(v.Deployment), orDash(v.Object), strings.Join(strings.Fields(v.Message), " ")}}
		},
	}
}

func repositoryResource() resource[apiv1.Repository] {
	name := func(v apiv1.Repository) string { return v.ID }
	return resource[apiv1.Repository]{
		use: "repositories", aliases: []string{"repository", "repos", "repo"},
		short: "List repositories (kedge repo webhook URL shows how pushes arrive at once)",
		kinds: []string{"repository"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Repository, error) {
			return client.List[apiv1.Repository](ctx, c, c.In("repositories"), client.Everything(), 0)
		},
		key: name, name: name,
		header: []string{"ID", "URL", "STATE", "SINCE", "WEBHOOK", "PROBLEM"},
		rows: func(v apiv1.Repository, _ time.Time) [][]string {
			return [][]string{{v.ID, v.URL, repositoryState(v), stamp(v.CheckedAt), v.WebhookURL, cell(orDash(v.Error))}}
		},
	}
}

func repositoryState(v apiv1.Repository) string {
	switch {
	case v.CheckedAt.IsZero():
		return "Pending"
	case v.Error != "":
		return "Unreadable"
	default:
		return "Readable"
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
