package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the login, versions, agents, repositories and deployments for problems",
		Long: "Checks a tenant for problems: version skew, agents that are disconnected or never connected, push environments that are not ready,\n" +
			"configuration files and repositories that cannot be read, and deployments that have failed, drifted or hold deletions. Notices name deliberate states: a frozen fleet, suspended\n" +
			"environments and pinned deployments. The exit code is 1 if there is a problem.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.examine(cmd.Context(), c)
		},
	}
}

// parts are what doctor looks at, in the order in which it tells of it, with what it says when nothing is wrong;
// nil for nothing.
var parts = []struct {
	name string
	good func(apiv1.Diagnosis) string
}{
	{"fleet", func(apiv1.Diagnosis) string { return "nothing is frozen or suspended" }},
	{"agents", func(d apiv1.Diagnosis) string { return fmt.Sprintf("%d, all connected", d.Agents) }},
	{"environments", nil}, // only listed if a push environment has a problem
	{"repositories", func(d apiv1.Diagnosis) string { return fmt.Sprintf("%d, all can be read", d.Repositories) }},
	{"deployments", func(d apiv1.Diagnosis) string {
		return fmt.Sprintf("%d, none has failed, drifted or waits for you", d.Deployments)
	}},
}

func (a *app) examine(ctx context.Context, c *client.Client) error {
	problems, err := a.examineLogin(ctx, c)
	if err != nil {
		return err
	}
	d, err := client.Get[apiv1.Diagnosis](ctx, c, c.In("diagnosis"))
	if err != nil {
		return err
	}
	for _, part := range parts {
		found := slices.DeleteFunc(slices.Clone(d.Findings), func(f apiv1.Finding) bool { return f.Part != part.name })
		if len(found) == 0 && part.good != nil {
			a.diagnosed("ok", part.name, part.good(d), "")
		}
		for _, f := range found {
			text := f.Message
			if f.Subject != "" {
				text = f.Subject + ": " + text
			}
			a.diagnosed(f.Severity, part.name, text, f.Next)
			if f.Severity == "problem" {
				problems++
			}
		}
	}
	if d.Truncated {
		a.diagnosed("notice", "-", "there is more than is listed here", "kedge get deployments --sync Failed, kedge get agents --connected false")
	}
	if problems > 0 {
		return &exitError{code: exitFailed, text: "found " + count(problems, "problem")}
	}
	return nil
}

func (a *app) diagnosed(severity, part, text, next string) {
	fmt.Fprintf(a.Out, "%-8s %-13s %s\n", severity, part, strings.Join(strings.Fields(text), " "))
	if next != "" {
		fmt.Fprintf(a.Out, "                       next: %s\n", next)
	}
}

// examineLogin looks at what only this program knows: the rest is decided by the server, so that the console
// says the same.
func (a *app) examineLogin(ctx context.Context, c *client.Client) (problems int, err error) {
	who, err := client.Get[apiv1.Whoami](ctx, c, c.Top("whoami"))
	if err != nil {
		return 0, err
	}
	if who.ServerVersion != a.Version {
		a.diagnosed("problem", "login", fmt.Sprintf("this program is version %s, the server %s", a.Version, who.ServerVersion), "install the kedge of the server's version")
		return 1, nil
	}
	a.diagnosed("ok", "login", fmt.Sprintf("%s (%s), version %s", who.Name, who.Role, a.Version), "")
	return 0, nil
}
