package cli

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func deploymentPath(c *client.Client, name string) string { return c.In("deployments", name) }

func (a *app) syncCommand() *cobra.Command {
	var req apiv1.CreateRun
	var w waiting
	cmd := a.verbs("sync DEPLOYMENT…", "Sync deployments to the newest commit of their source, or to a revision", deploymentResource().words(),
		func(ctx context.Context, c *client.Client, name string) error {
			run, err := client.Send[apiv1.SyncRun](ctx, c, http.MethodPost, c.In("deployments", name, "runs"), req)
			if err != nil {
				return err
			}
			return a.followRun(ctx, c, run, w)
		})
	cmd.Long = "Syncs a deployment to the newest commit of its source, or to a revision. Syncing an automated deployment to a revision pins it there\n" +
		"until kedge deploy release. Runs of one deployment run one after another. A sync also corrects drift, with\n" +
		"every drift policy. With the policy previewOnly it changes nothing."
	cmd.Flags().StringVar(&req.Revision, "revision", "", "branch, tag or commit (default: the deployment's own)")
	w.flags(cmd)
	return cmd
}

func (a *app) rollbackCommand() *cobra.Command {
	var req apiv1.Rollback
	var w waiting
	cmd := a.verb("rollback DEPLOYMENT", "Roll back to a kept revision, also while Git is unavailable", 1, func(ctx context.Context, c *client.Client, args []string) error {
		if req.Revision == 0 && req.Commit == "" {
			before, err := revisionBefore(ctx, c, args[0])
			if err != nil {
				return err
			}
			req.Revision = before
		}
		run, err := client.Send[apiv1.SyncRun](ctx, c, http.MethodPost, c.In("deployments", args[0], "rollback"), req)
		if err != nil {
			return err
		}
		return a.followRun(ctx, c, run, w)
	})
	cmd.Long = "Rolls back to a revision of kedge history, by default to the one before the deployed one. An automated deployment stays pinned to it\n" +
		"until kedge deploy release. A rollback terminates running sync runs of the deployment."
	cmd.Flags().Int64Var(&req.Revision, "revision", 0, "number of a kept revision (kedge deploy history NAME)")
	cmd.Flags().StringVar(&req.Commit, "commit", "", "commit of a kept revision")
	cmd.MarkFlagsMutuallyExclusive("revision", "commit")
	w.flags(cmd)
	return cmd
}

// revisionBefore is the newest kept revision that is older than what is deployed.
func revisionBefore(ctx context.Context, c *client.Client, name string) (int64, error) {
	d, err := c.Deployment(ctx, name)
	if err != nil {
		return 0, err
	}
	kept, err := client.List[apiv1.Revision](ctx, c, c.In("deployments", name, "revisions"), nil, 0)
	if err != nil {
		return 0, err
	}
	deployed := int64(0)
	if d.Pin != nil {
		deployed = d.Pin.Revision
	} else if len(kept) > 0 {
		deployed = kept[0].Seq
	}
	for _, r := range kept {
		if r.Seq < deployed {
			return r.Seq, nil
		}
	}
	return 0, failure(fmt.Sprintf("deployment %q has no older revision", name), "kedge deploy history "+name)
}

// followRun says that a run was asked for, or waits for its end.
func (a *app) followRun(ctx context.Context, c *client.Client, run apiv1.SyncRun, w waiting) error {
	if !w.wait {
		fmt.Fprintf(a.Err, "To follow it: kedge run get %s, kedge status %s --watch\n", run.Deployment, run.Deployment)
		return a.say("Run %s (%s %d of deployment %q) is %s.", run.ID, run.Kind, run.Seq, run.Deployment, run.Phase)
	}
	if err := a.awaitOperation(ctx, c, run.Operation, w, func(ctx context.Context) (string, error) { return waitsFor(ctx, c, run.ID) }); err != nil {
		return err
	}
	done, err := client.Get[apiv1.SyncRun](ctx, c, c.In("runs", run.ID))
	if err != nil {
		return err
	}
	d, err := c.Deployment(ctx, run.Deployment)
	if err != nil {
		return err
	}
	return a.sayRunEnded(done, d)
}

// sayRunEnded says how a run has ended that did not fail, and what of it was not done.
func (a *app) sayRunEnded(run apiv1.SyncRun, d apiv1.Deployment) error {
	text := fmt.Sprintf("Run %s (%s of deployment %q to %s)", run.ID, run.Kind, run.Deployment, shortCommit(run.Commit))
	if d.Policy.PreviewOnly {
		return a.say("%s: preview only: nothing was applied. To see the changes: kedge status %s. To apply them: kedge deploy set %s --preview-only=false", text, d.Name, d.Name)
	}
	text += " has " + lower(run.Phase)
	if run.Message != "" {
		text += ": " + run.Message
	}
	if err := a.say("%s.", text); err != nil {
		return err
	}
	a.sayHeldPrunes(d)
	return nil
}

// waitsFor says what a run waits for.
func waitsFor(ctx context.Context, c *client.Client, id string) (string, error) {
	v, err := client.Get[apiv1.RunWaiting](ctx, c, c.In("runs", id, "waiting"))
	var parts []string
	for _, w := range v.For {
		if w.Agent != "" {
			w.Message = "agent " + w.Agent + ": " + w.Message
		}
		parts = append(parts, w.Message)
	}
	if v.More > 0 {
		parts = append(parts, fmt.Sprintf("and %s more", count(v.More, "agent")))
	}
	return cell(strings.Join(parts, "; ")), err
}

func lower(phase string) string { return string(phase[0]-'A'+'a') + phase[1:] }

func (a *app) runCommand() *cobra.Command {
	get := getOf(a, "get DEPLOYMENT", "List the sync runs of a deployment, newest first", deploymentResource().words(), runResource)
	terminate := a.verb("terminate ID", "Terminate a run: agents stop, and applied objects stay", 1, func(ctx context.Context, c *client.Client, args []string) error {
		run, err := client.Send[apiv1.SyncRun](ctx, c, http.MethodPost, c.In("runs", args[0], "terminate"), nil)
		if err != nil {
			return err
		}
		return a.say("Run %s is %s.", run.ID, lower(run.Phase))
	})
	terminate.ValidArgsFunction = cobra.NoFileCompletions // which run depends on the deployment
	cmd := group("run", "List and terminate sync runs", get, terminate)
	cmd.Aliases = []string{"runs"}
	return cmd
}

func runResource(deployment string) resource[apiv1.SyncRun] {
	id := func(v apiv1.SyncRun) string { return v.ID }
	return resource[apiv1.SyncRun]{
		kind: "run", use: "runs", changes: []string{"run"}, bounded: true,
		list: func(ctx context.Context, c *client.Client) ([]apiv1.SyncRun, error) {
			return client.List[apiv1.SyncRun](ctx, c, c.In("deployments", deployment, "runs"), nil, 100)
		},
		key: id, name: id, header: []string{"ID", "RUN", "KIND", "REVISION", "COMMIT", "PHASE", "BY", "DURATION", "AGE", "REASON", "MESSAGE"},
		rows: func(v apiv1.SyncRun, now time.Time) [][]string {
			revision := orDash(v.Revision)
			if v.Kept > 0 {
				revision = "#" + strconv.FormatInt(v.Kept, 10)
			}
			return [][]string{{v.ID, strconv.FormatInt(v.Seq, 10), v.Kind, revision, shortCommit(v.Commit), v.Phase, orDash(v.By), runDuration(v, now), output.Age(v.CreatedAt, now), orDash(v.Reason), cell(sentence(v.Message))}}
		},
	}
}

func runDuration(v apiv1.SyncRun, now time.Time) string {
	switch {
	case v.StartedAt.IsZero():
		return "-"
	case v.FinishedAt.IsZero():
		return output.Age(v.StartedAt, now)
	default:
		return output.Duration(v.FinishedAt.Sub(v.StartedAt))
	}
}
