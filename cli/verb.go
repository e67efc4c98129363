package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// verb is a command that connects and then does one thing.
func (a *app) verb(use, short string, args int, run func(ctx context.Context, c *client.Client, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, args)
		},
	}
}

// verbs is a verb on one or more resources: run is called for each name, without the kind that may stand before it. A
// name that fails does not stop the others.
func (a *app) verbs(use, short string, words []string, run func(ctx context.Context, c *client.Client, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			return eachName(args, words, func(name string) error { return run(cmd.Context(), c, name) })
		},
	}
}

// eachName calls run for each of the names and returns what failed.
func eachName(names, words []string, run func(name string) error) error {
	var failures errorList
	for _, name := range names {
		if err := run(bareName(name, words)); err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) == 1 {
		return failures[0]
	}
	return failures.orNil()
}

// say prints one line about what was done.
func (a *app) say(format string, args ...any) error {
	_, err := fmt.Fprintf(a.Out, format+"\n", args...)
	return err
}

// removeVerb deletes what path names.
func (a *app) removeVerb(noun, long string, words []string, path func(c *client.Client, name string) string) *cobra.Command {
	cmd := a.verbs("delete NAME…", "Delete "+article(noun), words, func(ctx context.Context, c *client.Client, name string) error {
		if err := client.Do(ctx, c, http.MethodDelete, path(c, name), nil); err != nil {
			return err
		}
		return a.say("%s %q deleted.", capital(noun), name)
	})
	cmd.Long = long
	return cmd
}

// suspendVerbs are suspend and resume of what path names.
func (a *app) suspendVerbs(noun string, words []string, path func(c *client.Client, name string) string) []*cobra.Command {
	var reason string
	suspend := a.verbs("suspend NAME…", "Stop sending changes to "+article(noun)+"; agents still correct drift", words,
		func(ctx context.Context, c *client.Client, name string) error {
			if err := client.Do(ctx, c, http.MethodPost, path(c, name)+"/suspend", apiv1.Suspend{Reason: reason}); err != nil {
				return err
			}
			return a.say("%s %q suspended. To resume: kedge %s resume %s", capital(noun), name, commandOf(noun), name)
		})
	suspend.Flags().StringVar(&reason, "reason", "", "why; everyone who reads the status sees it")
	resume := a.verbs("resume NAME…", "Resume "+article(noun), words, func(ctx context.Context, c *client.Client, name string) error {
		if err := client.Do(ctx, c, http.MethodPost, path(c, name)+"/resume", nil); err != nil {
			return err
		}
		return a.say("%s %q resumed.", capital(noun), name)
	})
	return []*cobra.Command{suspend, resume}
}

func commandOf(noun string) string {
	switch noun {
	case "deployment":
		return "deploy"
	case "environment":
		return "env"
	default:
		return noun
	}
}

func article(noun string) string {
	switch noun[0] {
	case 'a', 'e', 'i', 'o', 'u':
		return "an " + noun
	}
	return "a " + noun
}

func capital(noun string) string { return string(noun[0]-'a'+'A') + noun[1:] }

// waiting bounds how long a command waits for something to be done.
type waiting struct {
	wait    bool
	timeout time.Duration
}

func (w *waiting) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait until it is done")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 5*time.Minute, "with --wait: give up after this long; 0 is no limit")
}

// waitKinds are the changes after which an operation may wait for something else.
var waitKinds = []string{"run", "operation", "connection", "status", "deployment", "environment", "tenant", "settings", "repository"}

// awaitOperation follows an operation to its end. why says what it waits for; it may be nil.
func (a *app) awaitOperation(ctx context.Context, c *client.Client, id string, w waiting, why func(context.Context) (string, error)) error {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	var last apiv1.Operation
	said := ""
	relevant := func(change apiv1.Change) bool {
		return change.ID == id || why != nil && slices.Contains(waitKinds, change.Kind)
	}
	err := a.follow(ctx, []*client.Client{c}, relevant, func(ctx context.Context) (step, error) {
		op, err := client.Get[apiv1.Operation](ctx, c, c.In("operations", id))
		if err != nil {
			return step{}, err
		}
		if op.State != last.State {
			fmt.Fprintf(a.Err, "%s: %s\n", op.Action, op.State)
		}
		last = op
		if op.State == "Completed" || op.State == "Failed" {
			return step{done: true}, nil
		}
		if why == nil {
			return step{}, nil
		}
		text, err := why(ctx)
		if err == nil && text != "" && text != said {
			said = text
			fmt.Fprintf(a.Err, "waiting: %s\n", text)
		}
		return step{}, err
	})
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		text := fmt.Sprintf("%s of %s is not done after %s", last.Action, last.Name, w.timeout)
		if said != "" {
			text += "; it waits: " + said
		}
		return &exitError{exitTimeout, text, "kedge operation get " + id}
	case err != nil:
		return err
	case last.State == "Failed":
		return &exitError{exitUnhealthy, fmt.Sprintf("%s of %s has failed: %s", last.Action, last.Name, last.Message), "kedge status " + last.Name}
	}
	return nil
}
