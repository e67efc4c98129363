package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) deployDeleteCommand() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a deployment, and its objects in every cluster",
		Long: "Deletes a deployment and its objects in every cluster. Namespaces, CustomResourceDefinitions and PersistentVolumeClaims are kept,\n" +
			"because others or data may depend on them, and so is what is annotated kedge.dev/prune: disabled; events name what was kept.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.deleteDeployment(cmd.Context(), c, args[0], wait, timeout)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until its objects are gone in every cluster")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "with --wait: give up after this long; 0 is never")
	return cmd
}

func (a *app) deleteDeployment(ctx context.Context, c *client.Client, name string, wait bool, timeout time.Duration) error {
	d, err := c.Deployment(ctx, name)
	if err != nil {
		return err
	}
	if err := client.Do(ctx, c, http.MethodDelete, c.In("deployments", name), nil); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Deployment %q is being deleted; clusters that are away follow when they are back.\n", name)
	if !wait {
		return nil
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if err := a.awaitGone(ctx, c, d.ID); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &exitError{exitTimeout, fmt.Sprintf("deployment %q is not gone everywhere after %s", name, timeout), "kedge get deployments, kedge get agents"}
		}
		return err
	}
	return a.tellGone(ctx, c, d)
}

// awaitGone waits until a deployment is listed no longer: its agents have deleted its objects.
func (a *app) awaitGone(ctx context.Context, c *client.Client, id string) error {
	relevant := func(change apiv1.Change) bool {
		return change.DeploymentID == id || change.ID == id || change.Kind == "agent"
	}
	return a.follow(ctx, c, relevant, func(ctx context.Context) (step, error) {
		left, err := client.List[apiv1.Deployment](ctx, c, c.In("deployments"), client.Everything(), 0)
		return step{done: err == nil && !slices.ContainsFunc(left, func(v apiv1.Deployment) bool { return v.ID == id })}, err
	})
}

// tellGone says what each agent said when it was done: it names what was kept.
func (a *app) tellGone(ctx context.Context, c *client.Client, d apiv1.Deployment) error {
	events, err := c.Events(ctx, url.Values{"deployment": {d.Name}, "limit": {"500"}})
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Reason == "TargetDeleted" && !e.At.Before(d.CreatedAt) {
			fmt.Fprintf(a.Out, "%s: %s\n", e.Agent, e.Message)
		}
	}
	fmt.Fprintf(a.Out, "Deployment %q is gone.\n", d.Name)
	return nil
}
