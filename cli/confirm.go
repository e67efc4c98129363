package cli

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// confirmation asks before something is deleted that no command brings back.
type confirmation struct{ yes bool }

func (q *confirmation) flags(f *pflag.FlagSet) {
	f.BoolVarP(&q.yes, "yes", "y", false, "do not ask for confirmation; required in scripts")
}

// ask says on a terminal what is about to happen and returns nil once it is agreed to. Where nobody can be
// asked it refuses, unless --yes was given. command is what to type to go on.
func (q *confirmation) ask(a *app, consequence, command string) error {
	if q.yes {
		return nil
	}
	if !isTerminal(a.In) {
		return &exitError{exitUsage, consequence + " Standard input is not a terminal, so this needs --yes; nothing was changed",
			"to go ahead: " + command + " --yes"}
	}
	fmt.Fprintf(a.Err, "%s\nContinue? [y/N] ", consequence)
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(a.Err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return failure("not confirmed: nothing was changed", "")
}

// askLeaving asks before agents may leave an environment, if deployments are in it that delete their objects in
// clusters which leave.
func (q *confirmation) askLeaving(ctx context.Context, a *app, c *client.Client, environment, command string) error {
	if q.yes {
		return nil
	}
	all, err := client.List[apiv1.Deployment](ctx, c, c.In("deployments"), url.Values{"environment": {environment}, "limit": {"500"}}, 0)
	if err != nil {
		return err
	}
	var names []string
	for _, d := range all {
		if d.Policy.PruneOnDetach && d.Environment == environment {
			names = append(names, d.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return q.ask(a, fmt.Sprintf("If an agent leaves environment %q, it deletes the objects of %s with the policy pruneOnDetach in its cluster: %s.",
		environment, count(len(names), "deployment"), cell(strings.Join(names, ", "))), command)
}

// leaves are the environments that an agent is in by its labels: other ones may take it out.
func leaves(ctx context.Context, c *client.Client, agent string) ([]string, error) {
	all, err := environmentResource().list(ctx, c)
	var out []string
	for _, env := range all {
		if len(env.MatchLabels) > 0 && slices.Contains(env.Selected, agent) && !slices.Contains(env.Agents, agent) {
			out = append(out, env.Name)
		}
	}
	return out, err
}
