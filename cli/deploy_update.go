package cli

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// deploySetCommand changes only what is named on the command line.
func (a *app) deploySetCommand() *cobra.Command {
	var repo, path, revision, env, namespace string
	var globs []string
	var labels, variables map[string]string
	var prune, noCheck bool
	var policy policyFlags
	var source sourceFlags
	var cmd *cobra.Command
	cmd = a.verb("set NAME", "Change a deployment; fields without a flag stay as they are", 1, func(ctx context.Context, c *client.Client, args []string) error {
		f := cmd.Flags()
		var req apiv1.UpdateDeployment
		for name, text := range map[string]struct {
			value *string
			into  **string
		}{
			"repo": {&repo, &req.Source.RepoURL}, "path": {&path, &req.Source.Path}, "revision": {&revision, &req.Source.Revision},
			"env": {&env, &req.Environment}, "namespace": {&namespace, &req.Namespace},
		} {
			if f.Changed(name) {
				*text.into = text.value
			}
		}
		var now apiv1.Deployment
		if namesLimit(f) || source.namesHelm(f) {
			var err error
			if now, err = c.Deployment(ctx, args[0]); err != nil {
				return err
			}
		}
		if err := source.change(f, &req.Source, now.Source.Helm); err != nil {
			return err
		}
		req.Policy = policy.change(f, now.Policy.PruneLimit)
		if f.Changed("prune") {
			req.Policy.Prune = &prune
		}
		if f.Changed("glob") {
			req.Source.Globs = append([]string{}, globs...)
		}
		req.Source.Variables, req.Labels = variables, labels
		changed, err := client.Send[apiv1.Deployment](ctx, c, http.MethodPatch, unchecked(deploymentPath(c, args[0]), noCheck), req)
		if err != nil {
			return err
		}
		a.warn(changed.Warnings)
		return a.say("Deployment %q changed.", args[0])
	})
	cmd.Long = "Changing the source brings the new objects and, unless pruning is off, removes those that are gone. Labels, variables and globs are replaced whole, and so are the values files of a chart and, with --values, its values; " +
		"--set and its kind change single values, and override the values set before; --set= with nothing after it removes all that were set."
	cmd.Example = "kedge deploy set web --revision v1.4\nkedge deploy set web --manual    # from now on: kedge sync web"
	f := cmd.Flags()
	f.StringVar(&repo, "repo", "", "URL of the Git repository")
	f.StringVar(&path, "path", "", "folder in the repository; may use {agent.name} and {agent.labels.KEY}")
	f.StringVar(&revision, "revision", "", "branch, tag or commit; empty is the default branch")
	f.StringArrayVar(&globs, "glob", nil, "which files below the path; may be repeated")
	source.add(f)
	pairsFlag(f, &variables, "var", "replace ${NAME} in the objects; empty removes them")
	pairsFlag(f, &labels, "label", "labels of the deployment; empty removes them")
	f.StringVar(&env, "env", "", "environment to deploy to; OWNER/NAME for a granted one")
	f.StringVar(&namespace, "namespace", "", "namespace of objects that name none")
	f.BoolVar(&prune, "prune", true, "delete objects that have left the source")
	policy.add(f)
	noCheckFlag(f, &noCheck)
	return cmd
}

func (a *app) deployReleaseCommand() *cobra.Command {
	return a.verbs("release NAME…", "Unpin a deployment after a rollback, so that it follows its source again", deploymentResource().words(),
		func(ctx context.Context, c *client.Client, name string) error {
			if err := client.Do(ctx, c, http.MethodPost, deploymentPath(c, name)+"/release", nil); err != nil {
				return err
			}
			return a.say("Deployment %q follows its source again.", name)
		})
}

func (a *app) deployHistoryCommand() *cobra.Command {
	return getOf(a, "history NAME", "List the revisions that a rollback can use, newest first", deploymentResource().words(), revisionResource)
}

func (a *app) historyCommand() *cobra.Command {
	cmd := a.deployHistoryCommand()
	cmd.Use, cmd.Long = "history DEPLOYMENT", "The same as kedge deploy history."
	return cmd
}

func revisionResource(deployment string) resource[apiv1.Revision] {
	seq := func(v apiv1.Revision) string { return strconv.FormatInt(v.Seq, 10) }
	var d apiv1.Deployment
	var newest int64
	return resource[apiv1.Revision]{
		kind: "revision", use: "revisions", changes: []string{"deployment"}, bounded: true,
		list: func(ctx context.Context, c *client.Client) (kept []apiv1.Revision, err error) {
			if d, err = c.Deployment(ctx, deployment); err != nil {
				return nil, err
			}
			kept, err = client.List[apiv1.Revision](ctx, c, c.In("deployments", deployment, "revisions"), nil, 0)
			if len(kept) > 0 {
				newest = kept[0].Seq
			}
			return kept, err
		},
		key: seq, name: seq, header: []string{"REVISION", "COMMIT", "AUTHOR", "AGE", "STATE", "MESSAGE"},
		rows: func(v apiv1.Revision, now time.Time) [][]string {
			state := "-"
			switch {
			case d.Pin != nil && d.Pin.Revision == v.Seq:
				state = fmt.Sprintf("Pinned by %s (%s)", d.Pin.By, output.Age(d.Pin.At, now))
			case v.Seq == newest:
				state = "Newest"
			}
			return [][]string{{seq(v), shortCommit(v.Commit), orDash(printable(v.Author)), output.Age(v.RenderedAt, now), state, cell(printable(v.Message))}}
		},
	}
}
