package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

type uninstallOptions struct {
	deleteObjects, yes bool
	timeout            time.Duration
}

func (a *app) agentUninstallCommand() *cobra.Command {
	var o uninstallOptions
	cmd := &cobra.Command{
		Use:   "uninstall NAME",
		Short: "Print how to uninstall an agent; with --delete-objects, delete its objects first",
		Long: "Without --delete-objects nothing is deleted: the command prints how to remove the installation, and all deployed objects stay. With\n" +
			"--delete-objects the agent deletes its objects after you confirm their number. The deployments stay, and so do their objects on other\n" +
			"agents. Namespaces, CustomResourceDefinitions and PersistentVolumeClaims are kept and listed.",
		Example: "kedge agent uninstall prod\nkedge agent uninstall prod --delete-objects",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			return a.uninstall(cmd.Context(), c, args[0], o)
		},
	}
	cmd.Flags().BoolVar(&o.deleteObjects, "delete-objects", false, "delete the objects that the agent has deployed, and wait for it")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 10*time.Minute, "give up after this long; 0 is no limit")
	return cmd
}

func (a *app) uninstall(ctx context.Context, c *client.Client, name string, o uninstallOptions) error {
	path := c.In("agents", name, "objects")
	found, err := client.Send[apiv1.AgentObjects](ctx, c, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if o.deleteObjects {
		if err := a.confirmUninstall(name, found, o.yes); err != nil {
			return err
		}
		began := time.Now().Add(-time.Minute) // clocks differ
		if _, err := client.Send[apiv1.AgentObjects](ctx, c, http.MethodPost, path+"/delete", apiv1.DeleteAgentObjects{Objects: found.Objects}); err != nil {
			return err
		}
		if err := a.awaitDeleted(ctx, c, name, path, o.timeout); err != nil {
			return err
		}
		if err := a.tellKept(ctx, c, name, began); err != nil {
			return err
		}
	} else if err := a.say("Nothing was deleted: %s of %s stay in the cluster of agent %q.",
		count(found.Objects, "object"), count(len(found.Deployments), "deployment"), name); err != nil {
		return err
	}
	return a.say("Uninstall the agent with:\n  kedge agent manifest %s | kubectl delete -f -\n  kedge agent delete %s", name, name)
}

// confirmUninstall asks, with counts, whether the objects of an agent may be deleted.
func (a *app) confirmUninstall(name string, found apiv1.AgentObjects, yes bool) error {
	if found.Uninstalling {
		return nil // it was asked for before: go on waiting
	}
	what := fmt.Sprintf("%s of %s (%s) in the cluster of agent %q", count(found.Objects, "object"), count(len(found.Deployments), "deployment"),
		cell(strings.Join(found.Deployments, ", ")), name)
	if yes {
		return nil
	}
	const again = "--yes deletes without a question"
	if !isTerminal(a.In) {
		return failure("the deletion of "+what+" is not confirmed: nothing was deleted", again)
	}
	fmt.Fprintf(a.Err, "This deletes %s. The deployments stay, and so do their objects on other agents.\nType the name of the agent to continue: ", what)
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if strings.TrimSpace(answer) != name {
		return errors.Join(failure("stopped; nothing was deleted", again), err)
	}
	return nil
}

// awaitDeleted waits until the agent has deleted its objects.
func (a *app) awaitDeleted(ctx context.Context, c *client.Client, name, path string, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var left apiv1.AgentObjects
	every := func(apiv1.Change) bool { return true }
	err := a.follow(ctx, []*client.Client{c}, every, func(ctx context.Context) (_ step, err error) {
		left, err = client.Send[apiv1.AgentObjects](ctx, c, http.MethodGet, path, nil)
		return step{done: err == nil && len(left.Deployments) == 0}, err
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &exitError{exitTimeout, fmt.Sprintf("agent %q has not deleted everything after %s: %s left of %s", name, timeout,
			count(left.Objects, "object"), strings.Join(left.Deployments, ", ")), "kedge status NAME shows why; kedge agent uninstall " + name + " --delete-objects continues to wait"}
	}
	return err
}

// tellKept says what the agent said of each deployment: it names what was kept.
func (a *app) tellKept(ctx context.Context, c *client.Client, name string, since time.Time) error {
	events, err := c.Events(ctx, url.Values{"agent": {name}, "limit": {"500"}})
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Reason == "TargetDeleted" && e.At.After(since) {
			if err := a.say("%s: %s", e.Deployment, e.Message); err != nil {
				return err
			}
		}
	}
	return nil
}
