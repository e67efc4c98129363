package cli

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/cli/internal/resourcefile"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) accessCommand() *cobra.Command {
	cmd := group("access", "Manage access rules: who reaches the API servers of clusters through the tunnels of agents", a.accessCreateCommand(), a.accessSetCommand(),
		getCommand(a, "get", accessRuleResource()),
		a.removeVerb("access rule", "Deletes an access rule. Its subjects lose the access that no other rule gives them.", accessRuleResource().words(), accessRulePath))
	cmd.Aliases = []string{"access-rule", "access-rules"}
	return cmd
}

func accessRulePath(c *client.Client, name string) string { return c.In("access-rules", name) }

// accessFlags describe an access rule.
type accessFlags struct {
	tokens, people, groups, agents, environments []string
	allAgents, readOnly                          bool
}

func (f *accessFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.tokens, "token", nil, "name of an API token of the tenant, or fleet/NAME for a token of the fleet; may be repeated")
	flags.StringArrayVar(&f.people, "person", nil, "name of a person, as in kedge get people; may be repeated")
	flags.StringArrayVar(&f.groups, "group", nil, "name of a group of the identity provider; may be repeated")
	flags.StringSliceVar(&f.agents, "agents", nil, "names of agents, a,b,…")
	flags.StringSliceVar(&f.environments, "envs", nil, "names of environments, a,b,…: the agents that they select")
	flags.BoolVar(&f.allAgents, "all-agents", false, "every agent of the tenant, also later ones")
	flags.BoolVar(&f.readOnly, "read-only", false, "allow only requests that change nothing")
}

func (f *accessFlags) subjects() []apiv1.AccessSubject {
	var out []apiv1.AccessSubject
	for _, of := range []struct {
		kind  string
		names []string
	}{{"token", f.tokens}, {"person", f.people}, {"group", f.groups}} {
		for _, name := range of.names {
			out = append(out, apiv1.AccessSubject{Kind: of.kind, Name: name})
		}
	}
	return out
}

func (a *app) accessCreateCommand() *cobra.Command {
	var f accessFlags
	cmd := a.verb("create NAME", "Let tokens, people and groups reach the clusters of agents", 1, func(ctx context.Context, c *client.Client, args []string) error {
		v, err := client.Send[apiv1.AccessRule](ctx, c, http.MethodPost, c.In("access-rules"), apiv1.CreateAccessRule{
			Name: args[0], Subjects: f.subjects(), AllAgents: f.allAgents, Agents: f.agents, Environments: f.environments, ReadOnly: f.readOnly,
		})
		if err != nil {
			return err
		}
		return a.say("Access rule %q created: %s.", v.Name, accessText(v))
	})
	cmd.Long = "Without a rule, nobody reaches a cluster through its agent, whatever the role. A rule needs at least one of --token, --person and --group,\n" +
		"and --agents, --envs or --all-agents. The tunnel of the agent must be open too: kedge agent set AGENT --tunnel. What a caller may do in\n" +
		"the cluster is decided by the RBAC of the cluster."
	cmd.Example = "kedge access create oncall --group oncall --envs prod --read-only\n" +
		"kedge access create ci --token ci --person alice@example.com --agents prod-1,prod-2"
	f.add(cmd.Flags())
	cmd.MarkFlagsOneRequired("token", "person", "group")
	cmd.MarkFlagsOneRequired("agents", "envs", "all-agents")
	return cmd
}

func (a *app) accessSetCommand() *cobra.Command {
	var f accessFlags
	var cmd *cobra.Command
	cmd = a.verb("set NAME", "Change an access rule", 1, func(ctx context.Context, c *client.Client, args []string) error {
		v, err := client.Send[apiv1.AccessRule](ctx, c, http.MethodPatch, accessRulePath(c, args[0]), f.change(cmd.Flags()))
		if err != nil {
			return err
		}
		return a.say("Access rule %q changed: %s.", v.Name, accessText(v))
	})
	cmd.Long = "The given values replace the current ones: --token, --person and --group together replace all subjects. --all-agents removes the lists of\n" +
		"agents and environments. --agents and --envs replace --all-agents. The change applies to the next request of each caller."
	cmd.Example = "kedge access set oncall --group oncall --group leads\nkedge access set oncall --envs prod,staging --read-only=false"
	f.add(cmd.Flags())
	cmd.MarkFlagsOneRequired("token", "person", "group", "agents", "envs", "all-agents", "read-only")
	return cmd
}

// change returns what the flags on the command line change.
func (f *accessFlags) change(flags *pflag.FlagSet) apiv1.UpdateAccessRule {
	var out apiv1.UpdateAccessRule
	if flags.Changed("token") || flags.Changed("person") || flags.Changed("group") {
		out.Subjects = f.subjects()
	}
	if flags.Changed("agents") {
		out.Agents = append([]string{}, f.agents...)
	}
	if flags.Changed("envs") {
		out.Environments = append([]string{}, f.environments...)
	}
	switch {
	case flags.Changed("all-agents"):
		out.AllAgents = &f.allAgents
		if f.allAgents && out.Agents == nil && out.Environments == nil {
			out.Agents, out.Environments = []string{}, []string{}
		}
	case len(out.Agents)+len(out.Environments) > 0:
		out.AllAgents = new(false)
	}
	if flags.Changed("read-only") {
		out.ReadOnly = &f.readOnly
	}
	return out
}

func accessRuleResource() resource[apiv1.AccessRule] {
	name := func(v apiv1.AccessRule) string { return v.Name }
	return resource[apiv1.AccessRule]{
		kind: "access-rule", use: "access-rules", aliases: []string{"access", "accessrule", "accessrules"}, short: "List access rules: who reaches which clusters through agents",
		changes: []string{"accessrule", "agent", "environment"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.AccessRule, error) {
			return client.List[apiv1.AccessRule](ctx, c, c.In("access-rules"), client.Everything(), 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.AccessRule, error) {
			return client.Get[apiv1.AccessRule](ctx, c, accessRulePath(c, name))
		},
		key: name, name: name,
		header: []string{"NAME", "SUBJECTS", "AGENTS", "ENVIRONMENTS", "ACCESS", "AGE"},
		rows: func(v apiv1.AccessRule, now time.Time) [][]string {
			agents := orDash(strings.Join(v.Agents, ","))
			if v.AllAgents {
				agents = "all"
			}
			return [][]string{{
				v.Name, cell(orDash(subjectText(v))), cell(agents), cell(orDash(strings.Join(v.Environments, ","))), accessMode(v), output.Age(v.CreatedAt, now),
			}}
		},
	}
}

func subjectText(v apiv1.AccessRule) string {
	var out []string
	for _, x := range v.Subjects {
		out = append(out, x.Kind+"/"+x.Name)
	}
	return strings.Join(out, ",")
}

func accessMode(v apiv1.AccessRule) string {
	if v.ReadOnly {
		return "read-only"
	}
	return "read-write"
}

// accessText says in one line what a rule allows.
func accessText(v apiv1.AccessRule) string {
	var places []string
	if v.AllAgents {
		places = append(places, "every agent")
	}
	if len(v.Agents) > 0 {
		places = append(places, "agents "+strings.Join(v.Agents, ", "))
	}
	if len(v.Environments) > 0 {
		places = append(places, "the agents of environments "+strings.Join(v.Environments, ", "))
	}
	return subjectText(v) + " may reach " + orNone(places) + ", " + accessMode(v)
}

func (a *app) describeAccessRule(_ context.Context, c *client.Client, v apiv1.AccessRule, w *describer) error {
	w.field(0, "Name", v.Name)
	w.field(0, "Tenant", c.Tenant())
	w.field(0, "Created", output.Timestamp(v.CreatedAt))
	w.field(0, "Access", accessMode(v))
	if v.AllAgents {
		w.field(0, "Agents", "all")
	} else {
		w.field(0, "Agents", strings.Join(v.Agents, ","))
		w.field(0, "Environments", strings.Join(v.Environments, ","))
	}
	var rows [][]string
	for _, x := range v.Subjects {
		rows = append(rows, []string{x.Kind, x.Name})
	}
	w.table("Subjects", []string{"Kind", "Name"}, rows)
	return nil
}

type accessRuleSpec struct {
	Subjects     []apiv1.AccessSubject `json:"subjects"`
	AllAgents    bool                  `json:"allAgents,omitempty"`
	Agents       []string              `json:"agents,omitempty"`
	Environments []string              `json:"environments,omitempty"`
	ReadOnly     bool                  `json:"readOnly,omitempty"`
}

// sortAccess brings a rule into the form that the server returns.
func sortAccess(s *accessRuleSpec) error {
	slices.SortFunc(s.Subjects, func(a, b apiv1.AccessSubject) int { return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name) })
	slices.Sort(s.Agents)
	slices.Sort(s.Environments)
	return nil
}

func accessRuleKind() declaredKind {
	as := func(v apiv1.AccessRule) current {
		return current{metadata: resourcefile.Metadata{Name: v.Name}, spec: accessRuleSpec{v.Subjects, v.AllAgents, v.Agents, v.Environments, v.ReadOnly}}
	}
	return declaredKind{
		kind: "AccessRule", words: accessRuleResource().words(), parse: parseSpec(sortAccess),
		list: func(ctx context.Context, c *client.Client) ([]current, error) {
			return listAll(ctx, c, c.In("access-rules"), as, every)
		},
		read: func(ctx context.Context, c *client.Client, name string) (*current, error) {
			return readOne(ctx, c, accessRulePath(c, name), as)
		},
		create: func(ctx context.Context, c *client.Client, m resourcefile.Metadata, spec any) error {
			s := spec.(accessRuleSpec)
			return client.Do(ctx, c, http.MethodPost, c.In("access-rules"), apiv1.CreateAccessRule{
				Name: m.Name, Subjects: s.Subjects, AllAgents: s.AllAgents, Agents: s.Agents, Environments: s.Environments, ReadOnly: s.ReadOnly,
			})
		},
		update: func(ctx context.Context, c *client.Client, now current, _ resourcefile.Metadata, spec any) (string, error) {
			s := spec.(accessRuleSpec)
			return patch(ctx, c, now, apiv1.UpdateAccessRule{
				Subjects: append([]apiv1.AccessSubject{}, s.Subjects...), AllAgents: &s.AllAgents, Agents: append([]string{}, s.Agents...),
				Environments: append([]string{}, s.Environments...), ReadOnly: &s.ReadOnly,
			})
		},
	}
}
