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
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func agentResource() resource[apiv1.Agent] {
	name := func(v apiv1.Agent) string { return v.Name }
	query := client.Everything()
	return resource[apiv1.Agent]{
		kind: "agent", use: "agents", aliases: []string{"ag"}, short: "List agents, one line per replica",
		changes: []string{"agent", "connection", "token"}, query: query, labelled: true,
		flags: func(f *pflag.FlagSet) {
			labelFilterFlag(f, query)
			queryFlag(f, query, "q", "q", "only agents with this text in their name")
			queryFlag(f, query, "connected", "connected", "only agents that are connected (true) or not (false)")
		},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Agent, error) {
			return client.List[apiv1.Agent](ctx, c, c.In("agents"), query, 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Agent, error) {
			return client.Get[apiv1.Agent](ctx, c, c.In("agents", name))
		},
		key: name, name: name,
		header: []string{"NAME", "STATE", "REPLICA", "VERSION", "KUBERNETES", "CONNECTED", "LAST SEEN", "SCOPE", "TARGETS", "AGE", "+CLUSTER", "+ADDRESS", "+LABELS"},
		rows:   agentRows,
		warnings: func(v apiv1.Agent) []string {
			var out []string
			for _, w := range v.Warnings {
				out = append(out, fmt.Sprintf("agent %s: %s: %s", v.Name, w.Reason, w.Message))
			}
			return out
		},
	}
}

func agentRows(v apiv1.Agent, now time.Time) [][]string {
	row := func(state, replica, version, kubernetes, connected, seen, cluster, address string) []string {
		return []string{
			v.Name, state, orDash(replica), orDash(version), orDash(kubernetes), connected, seen, cell(agentScope(v)), strconv.Itoa(v.Targets),
			output.Age(v.CreatedAt, now), orDash(cluster), orDash(address), orDash(labelText(v.Labels)),
		}
	}
	if len(v.Connections) == 0 {
		return [][]string{row("Never connected", "", "", "", "-", "-", "", "")}
	}
	var rows [][]string
	for _, c := range v.Connections {
		connected, seen := output.Age(c.ConnectedAt, now), "0s"
		if !c.Connected {
			connected, seen = "-", output.Age(c.LastSeenAt, now)
		}
		rows = append(rows, row(connectionState(c, v.Connected, now), c.Replica, c.Version, c.KubeVersion, connected, seen,
			c.ClusterUID[:min(8, len(c.ClusterUID))], c.RemoteAddr))
	}
	return rows
}

func agentScope(v apiv1.Agent) string {
	if len(v.Namespaces) > 0 {
		return strings.Join(v.Namespaces, ",")
	}
	return v.Scope
}

func deploymentResource() resource[apiv1.Deployment] {
	query := client.Everything()
	return resource[apiv1.Deployment]{
		kind: "deployment", use: "deployments", aliases: []string{"dep", "deploy"}, short: "List deployments with their sync and health",
		changes: []string{"deployment", "desired", "status", "connection", "agent", "environment"}, query: query, labelled: true,
		flags: func(f *pflag.FlagSet) {
			queryFlag(f, query, "env", "environment", "only deployments of this environment")
			queryFlag(f, query, "agent", "agent", "only deployments with a target on this agent")
			queryFlag(f, query, "repo", "repository", "only deployments of the repository with this URL")
			queryFlag(f, query, "sync", "sync", "only deployments with a target in this state: Synced, Syncing, OutOfSync, Pending, Failed, …")
			queryFlag(f, query, "health", "health", "only deployments with a target of this health: Current, InProgress, Failed, Stale, …")
			labelFilterFlag(f, query)
			queryFlag(f, query, "q", "q", "only deployments with this text in their name, repository, path, commit or source error")
		},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Deployment, error) {
			return client.List[apiv1.Deployment](ctx, c, c.In("deployments"), query, 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Deployment, error) {
			return c.Deployment(ctx, name)
		},
		// One that is being deleted may share its name with its successor.
		key: func(v apiv1.Deployment) string {
			return v.Name + strings.Repeat(" (deleting)", btoi(!v.DeletedAt.IsZero()))
		},
		name:   func(v apiv1.Deployment) string { return v.Name },
		header: []string{"NAME", "SYNC", "HEALTH", "READY", "REVISION", "COMMIT", "ENVIRONMENT", "NAMESPACE", "AGE", "+REPOSITORY", "+PATH", "+POLICY", "+LABELS", "REASON", "MESSAGE"},
		rows:   deploymentRows,
	}
}

func deploymentRows(v apiv1.Deployment, now time.Time) [][]string {
	sync := deploymentSync(v)
	if !v.DeletedAt.IsZero() {
		sync = "Deleting"
	}
	return [][]string{{
		v.Name, sync, deploymentHealth(v, now), readyText(v), revisionText(v.Source), deploymentCommit(v), v.Environment, v.Namespace,
		output.Age(v.CreatedAt, now), v.Source.RepoURL, pathText(v.Source), shortened(orDash(policyText(v.Policy)), maxPolicy), orDash(labelText(v.Labels)),
		orDash(v.Reason), cell(sentence(v.Message)),
	}}
}

func environmentResource() resource[apiv1.Environment] {
	name := func(v apiv1.Environment) string { return v.Name }
	return resource[apiv1.Environment]{
		kind: "environment", use: "environments", aliases: []string{"env", "envs"}, short: "List environments and the agents that they select",
		changes: []string{"environment", "agent", "deployment"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Environment, error) {
			return client.List[apiv1.Environment](ctx, c, c.In("environments"), client.Everything(), 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.Environment, error) {
			return client.Get[apiv1.Environment](ctx, c, c.In("environments", name))
		},
		key: name, name: name,
		header: []string{"NAME", "STATE", "SELECTS", "AGENTS", "DEPLOYMENTS", "AGE", "+SELECTED"},
		rows: func(v apiv1.Environment, now time.Time) [][]string {
			return [][]string{{
				v.Name, suspended(v.Suspension, "Active", now), cell(selects(v)), strconv.Itoa(len(v.Selected)), strconv.Itoa(v.Deployments),
				output.Age(v.CreatedAt, now), cell(orDash(strings.Join(v.Selected, ","))),
			}}
		},
	}
}

func selects(v apiv1.Environment) string {
	parts := slices.Clone(v.Agents)
	if len(v.MatchLabels) > 0 {
		parts = append(parts, "agents with "+labelText(v.MatchLabels))
	}
	if len(parts) == 0 {
		return "every agent"
	}
	return strings.Join(parts, ", ")
}

func eventResource(now func() time.Time) resource[apiv1.Event] {
	query := url.Values{}
	return resource[apiv1.Event]{
		kind: "event", use: "events", aliases: []string{"ev"}, short: "List events, newest last",
		changes: []string{"event"}, bounded: true, query: query,
		flags: func(f *pflag.FlagSet) {
			queryFlag(f, query, "deployment", "deployment", "only events of this deployment")
			queryFlag(f, query, "agent", "agent", "only events of this agent")
			timeFlag(f, query, "since", "only events after this: a duration such as 10m, or a time (RFC 3339)", now)
			queryFlag(f, query, "before", "before", "only events before the one with this number: the field seq in -o json")
			queryFlag(f, query, "limit", "limit", "at most this many of the newest events, up to 500 (default 100)")
		},
		list:   func(ctx context.Context, c *client.Client) ([]apiv1.Event, error) { return c.Events(ctx, query) },
		key:    func(v apiv1.Event) string { return strconv.FormatInt(v.Seq, 10) },
		name:   func(v apiv1.Event) string { return strconv.FormatInt(v.Seq, 10) },
		header: []string{"LAST SEEN", "TYPE", "REASON", "AGENT", "DEPLOYMENT", "OBJECT", "+TIME", "MESSAGE"},
		rows: func(v apiv1.Event, now time.Time) [][]string {
			return [][]string{{output.Age(v.At, now), v.Type, v.Reason, orDash(v.Agent), orDash(v.Deployment), orDash(v.Object), stamp(v.At), eventMessage(v)}}
		},
	}
}

func repositoryResource() resource[apiv1.Repository] {
	name := func(v apiv1.Repository) string { return v.ID }
	return resource[apiv1.Repository]{
		kind: "repository", use: "repositories", aliases: []string{"repo", "repos"},
		short:   "List repositories (kedge repo webhook URL shows how to receive pushes at once)",
		changes: []string{"repository"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.Repository, error) {
			return client.List[apiv1.Repository](ctx, c, c.In("repositories"), client.Everything(), 0)
		},
		get: repository,
		key: name, name: name,
		header: []string{"ID", "URL", "STATE", "CHECKED", "DEPLOYMENTS", "AGE", "+CREDENTIAL", "+WEBHOOK", "REASON", "MESSAGE"},
		rows: func(v apiv1.Repository, now time.Time) [][]string {
			return [][]string{{
				v.ID, v.URL, repositoryState(v), output.Age(v.CheckedAt, now), strconv.Itoa(v.Deployments), output.Age(v.CreatedAt, now),
				orDash(v.Credential), v.WebhookURL, orDash(v.Reason), cell(sentence(v.Error)),
			}}
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
