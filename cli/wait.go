package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// waitConditions are what kedge wait waits for, by the value of --for. The forms of kubectl wait are accepted too.
var waitConditions = map[string]string{
	"synced": "synced", "healthy": "healthy", "deleted": "deleted",
	"condition=synced": "synced", "condition=healthy": "healthy", "condition=ready": "healthy", "delete": "deleted",
}

type waitOptions struct {
	condition string
	timeout   time.Duration
	selector  string
}

func (a *app) waitCommand() *cobra.Command {
	var o waitOptions
	cmd := &cobra.Command{
		Use: "wait DEPLOYMENT… --for=synced|healthy|deleted", Short: "Wait until deployments meet a condition", Args: cobra.ArbitraryArgs,
		Long: "Waits until all of the deployments meet a condition:\n\n" +
			"  synced   every target holds the newest generation of its objects\n" +
			"  healthy  every target is synced and all of its objects are Current\n" +
			"  deleted  the deployment is gone; a name that does not exist counts as deleted\n\n" +
			"The command follows the server's change stream. The exit code is 4 if the timeout passes first.",
		Example: "kedge wait web --for=healthy --timeout 2m\nkedge wait -l team=web --for=synced\nkedge wait deployment/web --for=deleted",
		RunE: func(cmd *cobra.Command, args []string) error {
			condition, ok := waitConditions[strings.ToLower(o.condition)]
			switch {
			case !ok:
				return &exitError{exitUsage, fmt.Sprintf("--for=%s is not a condition", o.condition), "use --for=synced, --for=healthy or --for=deleted"}
			case (len(args) == 0) == (o.selector == ""):
				return &exitError{exitUsage, "name deployments or select them with -l, one of the two", cmd.CommandPath() + " --help"}
			}
			o.condition = condition
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.wait(cmd.Context(), c, args, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.condition, "for", "", "the condition: synced, healthy or deleted")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "give up after this long; 0 is no limit")
	f.StringVarP(&o.selector, "selector", "l", "", "wait for the deployments that this label selector selects now")
	must(cmd.MarkFlagRequired("for"))
	must(cmd.RegisterFlagCompletionFunc("for", fixed("synced", "healthy", "deleted")))
	return cmd
}

func (a *app) wait(ctx context.Context, c *client.Client, names []string, o waitOptions) error {
	for i := range names {
		names[i] = deploymentResource().bare(names[i])
	}
	ids := map[string]string{} // by name; of those that there were
	if o.selector != "" {
		found, err := client.List[apiv1.Deployment](ctx, c, c.In("deployments"), url.Values{"labelSelector": {o.selector}, "limit": {"500"}}, 0)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return failure(fmt.Sprintf("no deployment matches %q", o.selector), "kedge get deployments")
		}
		for _, d := range found {
			names = append(names, d.Name)
		}
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	err := a.follow(ctx, []*client.Client{c}, waitRelevant, func(ctx context.Context) (step, error) {
		var left []string
		for _, name := range names {
			met, err := a.conditionMet(ctx, c, name, o.condition, ids)
			if err != nil {
				return step{}, err
			}
			if !met {
				left = append(left, name)
			}
		}
		names = left
		return step{done: len(left) == 0}, nil
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &exitError{
			exitTimeout, fmt.Sprintf("timed out after %s waiting for %s to be %s", o.timeout, "deployment/"+strings.Join(names, ", deployment/"), o.condition),
			"kedge status " + strings.Join(names, " "),
		}
	}
	return err
}

func waitRelevant(change apiv1.Change) bool {
	return slices.Contains([]string{"deployment", "desired", "status", "connection", "agent", "environment"}, change.Kind)
}

// conditionMet reads a deployment and prints a line when it meets the condition. ids remembers which one had the name: its
// successor is another one.
func (a *app) conditionMet(ctx context.Context, c *client.Client, name, condition string, ids map[string]string) (bool, error) {
	d, err := c.Deployment(ctx, name)
	if condition != "deleted" {
		if err != nil {
			return false, err
		}
		if !meets(d, condition) {
			return false, nil
		}
		return true, a.say("deployment/%s condition met", name)
	}
	if err != nil && client.Status(err) != http.StatusNotFound {
		return false, err
	}
	if err == nil && (ids[name] == "" || ids[name] == d.ID) {
		ids[name] = d.ID
		return false, nil
	}
	leaving, err := a.leaving(ctx, c, name, ids[name])
	if err != nil || leaving {
		return false, err
	}
	return true, a.say("deployment/%s condition met", name)
}

// leaving reports whether a deployment of that name, or with that ID, still deletes its objects.
func (a *app) leaving(ctx context.Context, c *client.Client, name, id string) (bool, error) {
	found, err := client.List[apiv1.Deployment](ctx, c, c.In("deployments"), url.Values{"q": {name}, "limit": {"500"}}, 0)
	return slices.ContainsFunc(found, func(d apiv1.Deployment) bool {
		return d.Name == name && !d.DeletedAt.IsZero() && (id == "" || d.ID == id)
	}), err
}

// meets reports whether every target of a deployment meets a condition at its newest generation.
func meets(d apiv1.Deployment, condition string) bool {
	targets := attached(d)
	if d.Pending != nil || len(targets) == 0 || d.Commit == "" {
		return false
	}
	return !slices.ContainsFunc(targets, func(t apiv1.Target) bool {
		if condition == "healthy" {
			return !arrived(t)
		}
		return t.Sync != string(fleet.SyncSynced) || t.ObservedGeneration != t.Generation || !t.StaleSince.IsZero()
	})
}
