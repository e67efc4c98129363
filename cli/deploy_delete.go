package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

type deleteOptions struct {
	keepObjects bool
	wait        waiting
	confirmation
}

func (a *app) deployDeleteCommand() *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:   "delete NAME…",
		Short: "Delete a deployment, and its objects in every cluster",
		Long: "Deletes deployments and their objects in every cluster. The command shows the number of objects and asks for confirmation. Namespaces,\n" +
			"CustomResourceDefinitions, PersistentVolumeClaims and objects annotated kedge.dev/prune: disabled are kept, and events name them. With\n" +
			"--keep-objects all objects stay in their clusters, unmanaged.",
		Example: "kedge deploy delete web --wait\nkedge deploy delete web --keep-objects    # stop managing it; the clusters keep running it",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.deleteDeployments(cmd.Context(), c, args, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.keepObjects, "keep-objects", false, "delete no objects: they stay in their clusters, unmanaged")
	f.BoolVar(&o.wait.wait, "wait", false, "wait until every cluster has deleted its objects")
	f.DurationVar(&o.wait.timeout, "timeout", 5*time.Minute, "with --wait: give up after this long; 0 is no limit")
	o.confirmation.flags(f)
	return cmd
}

// deleteDeployments asks about all of the deployments before it deletes the first.
func (a *app) deleteDeployments(ctx context.Context, c *client.Client, names []string, o deleteOptions) error {
	words := deploymentResource().words()
	var found []apiv1.Deployment
	failed := eachName(names, words, func(name string) error {
		d, err := c.Deployment(ctx, name)
		if err != nil {
			return err
		}
		found = append(found, d)
		return a.confirmDeletion(ctx, c, name, o)
	})
	if failed != nil {
		return failed
	}
	var failures errorList
	for _, d := range found {
		if err := a.deleteDeployment(ctx, c, d, o); err != nil {
			failures = append(failures, err)
		}
	}
	return failures.orNil()
}

func (a *app) deleteDeployment(ctx context.Context, c *client.Client, d apiv1.Deployment, o deleteOptions) error {
	name := d.Name
	if err := c.DeleteDeployment(ctx, name, o.keepObjects); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Deployment %q is being deleted%s; disconnected clusters follow when they reconnect.\n", name, keeping(o))
	if !o.wait.wait {
		return nil
	}
	if timeout := o.wait.timeout; timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if err := a.awaitGone(ctx, c, d.ID); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &exitError{exitTimeout, fmt.Sprintf("deployment %q is not gone everywhere after %s", name, o.wait.timeout), "kedge get deployments, kedge get agents"}
		}
		return err
	}
	return a.tellGone(ctx, c, d)
}

func keeping(o deleteOptions) string {
	if o.keepObjects {
		return ", and its objects are kept"
	}
	return ""
}

// confirmDeletion counts what would be deleted, and asks.
func (a *app) confirmDeletion(ctx context.Context, c *client.Client, name string, o deleteOptions) error {
	if o.yes {
		return nil
	}
	would, err := client.Get[apiv1.Deletion](ctx, c, c.In("deployments", name, "deletion"))
	if err != nil {
		return err
	}
	command := "kedge deploy delete " + name
	what := fmt.Sprintf("This deletes deployment %q and its %s on %s", name, count(would.Objects, "object"), count(would.Clusters, "cluster"))
	if o.keepObjects {
		command += " --keep-objects"
		what = fmt.Sprintf("This deletes deployment %q; its %s on %s stay, unmanaged",
			name, count(would.Objects+would.Kept, "object"), count(would.Clusters, "cluster"))
	} else if would.Kept > 0 {
		what += fmt.Sprintf("; %s of a protected kind (Namespace, CustomResourceDefinition or PersistentVolumeClaim) will be kept", count(would.Kept, "object"))
	}
	if would.Away > 0 {
		what += fmt.Sprintf("; %s not connected and will follow later", areNot(would.Away))
	}
	return o.ask(a, what+".", command)
}

func areNot(n int) string {
	if n == 1 {
		return "1 of the clusters is"
	}
	return fmt.Sprintf("%d of the clusters are", n)
}

// awaitGone waits until a deployment is listed no longer: its agents have deleted its objects.
func (a *app) awaitGone(ctx context.Context, c *client.Client, id string) error {
	relevant := func(change apiv1.Change) bool {
		return change.DeploymentID == id || change.ID == id || change.Kind == "agent"
	}
	return a.follow(ctx, []*client.Client{c}, relevant, func(ctx context.Context) (step, error) {
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
