package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// defaultFailAfter is how long a failure has to last before it is called one: what a first try
// could not apply, the next one often can.
const defaultFailAfter = 5 * time.Second

type watchOptions struct {
	timeout, failAfter time.Duration
	commit             string
}

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	var w watchOptions
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "status NAME…",
		Short: "Show the targets and objects of a deployment",
		Long: "Shows the state of a deployment, its targets and their objects.\n\n" +
			"With --watch the command follows the deployment until every target is Synced and Current at the newest generation (exit code 0), " +
			"something has failed for --fail-after (3), or --timeout has passed (4). --commit waits for a commit. A commit that does not change the " +
			"deployment is reached when the server has evaluated it and all targets hold the objects from before. Without --watch the exit code is 3 " +
			"if something has failed, also if the agent is disconnected now, else 0.",
		Example: "kedge status web\nkedge status web --watch --timeout 2m --commit $(git rev-parse HEAD)",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkStatusFlags(cmd, watch, &out, len(args)); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			words := deploymentResource().words()
			if watch {
				return eachName(args, words, func(name string) error { return a.watchStatus(cmd.Context(), c, name, w) })
			}
			first := true
			return eachName(args, words, func(name string) error {
				if !first && out.IsTable() {
					fmt.Fprintln(a.Out)
				}
				first = false
				return a.status(cmd.Context(), c, name, out)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&watch, "watch", "w", false, "follow until every target is synced and healthy, or has failed")
	f.DurationVar(&w.timeout, "timeout", 0, "with --watch: give up after this long; 0 is no limit")
	f.DurationVar(&w.failAfter, "fail-after", defaultFailAfter, "with --watch: how long a failure has to last")
	f.StringVar(&w.commit, "commit", "", "with --watch: wait for this commit, full or its beginning")
	out.add(cmd)
	return cmd
}

// checkStatusFlags refuses flags that have no effect together.
func checkStatusFlags(cmd *cobra.Command, watch bool, out *outputFlags, names int) error {
	help := cmd.CommandPath() + " --help"
	if err := out.parse(); err != nil {
		return err
	}
	if watch && !out.IsTable() {
		return &exitError{exitUsage, "-o " + out.text + " cannot be used with --watch", "kedge get deployments NAME --watch -o " + out.text + " prints every change; or see " + help}
	}
	if names > 1 && !out.IsTable() && !out.IsName() {
		return &exitError{exitUsage, "-o " + out.text + " takes one deployment", "kedge get deployments NAME… -o " + out.text}
	}
	for _, name := range []string{"commit", "timeout", "fail-after"} {
		if !watch && cmd.Flags().Changed(name) {
			return &exitError{exitUsage, "--" + name + " needs --watch", help}
		}
	}
	return nil
}

func (a *app) status(ctx context.Context, c *client.Client, name string, out outputFlags) error {
	d, err := c.Deployment(ctx, name)
	if err != nil {
		return err
	}
	err = a.printOne(out, d, "deployment/"+d.Name, func() error { return a.printStatus(d, out) })
	if err != nil {
		return err
	}
	if readsFailed(d) {
		return &exitError{code: exitUnhealthy}
	}
	return nil
}

// readsFailed reports whether anything that status prints reads Failed, also what was so when its agent was
// last heard of: nobody has said since that it has passed.
func readsFailed(d apiv1.Deployment) bool {
	return failed(d) != "" || d.Sync == string(fleet.SyncFailed) || d.Health == string(fleet.HealthFailed) ||
		slices.ContainsFunc(attached(d), func(t apiv1.Target) bool {
			return t.Sync == string(fleet.SyncFailed) || slices.ContainsFunc(t.Objects, func(o apiv1.Object) bool {
				return o.Sync == string(fleet.SyncFailed) || o.Health == string(fleet.HealthFailed)
			})
		})
}

// arrived reports whether a target holds the newest generation and is well. One whose agent is lost
// has the health Stale. What has left the source and waits to be confirmed does not keep the rest from arriving.
func arrived(t apiv1.Target) bool {
	synced := t.Sync == string(fleet.SyncSynced) || t.Sync == string(fleet.SyncOutOfSync) && t.HeldPrunes > 0
	return synced && t.Health == string(fleet.HealthCurrent) && t.ObservedGeneration == t.Generation
}

// attached are the targets that belong: one that was let go is listed, and nothing more comes to it.
func attached(d apiv1.Deployment) []apiv1.Target {
	return slices.DeleteFunc(slices.Clone(d.Targets), func(t apiv1.Target) bool { return !t.DetachedAt.IsZero() })
}

// failed is why the newest generation does not arrive, or "". What is known only from before an
// agent was lost is no failure: it may have passed.
func failed(d apiv1.Deployment) string {
	if reason := sourceProblem(d); reason != "" {
		return reason
	}
	for _, t := range attached(d) {
		now := t.StaleSince.IsZero() && t.ObservedGeneration == t.Generation
		if now && (t.Sync == string(fleet.SyncFailed) || t.Health == string(fleet.HealthFailed)) {
			return strings.TrimSuffix(fmt.Sprintf("agent %s: %s", t.Agent, t.Message), ": ")
		}
	}
	return ""
}

// sourceProblem is why nothing newer can come at all, or "": a revision that cannot be used, or a
// repository that cannot be read, which only the state of the whole deployment tells.
func sourceProblem(d apiv1.Deployment) string {
	if p := d.Pending; p != nil && p.Reason != string(fleet.ReasonSourceNotRead) {
		return p.Message
	}
	if d.SourceError != "" {
		return d.SourceError
	}
	if d.Sync != string(fleet.SyncFailed) || slices.ContainsFunc(d.Targets, func(t apiv1.Target) bool { return summedUp(d, t) }) {
		return ""
	}
	return cmp.Or(d.Message, "its source cannot be read")
}

// summedUp reports whether d has failed only because t has.
func summedUp(d apiv1.Deployment, t apiv1.Target) bool {
	return t.Sync == string(fleet.SyncFailed) && (d.Message == "" || d.Message == t.Agent+": "+t.Message)
}

// watchStatus follows a deployment until it has arrived everywhere or has failed.
func (a *app) watchStatus(ctx context.Context, c *client.Client, name string, w watchOptions) error {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	s := &statusWatch{app: a, opts: w, printed: map[string]string{}}
	err := a.follow(ctx, []*client.Client{c}, s.relevant, func(ctx context.Context) (step, error) {
		d, err := c.Deployment(ctx, name)
		if err != nil {
			return step{}, err
		}
		return s.look(d)
	})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		if s.last.Name != "" {
			if err := a.printStatus(s.last, outputFlags{}); err != nil {
				return err
			}
		}
		return &exitError{exitTimeout, fmt.Sprintf("deployment %q is not synced and healthy on all targets after %s", name, w.timeout), "kedge status " + name + ", kedge get events --deployment " + name}
	}
	return err
}

// sayHeldPrunes says how many deletions wait to be confirmed, if any.
func (a *app) sayHeldPrunes(d apiv1.Deployment) {
	if n := d.Counts.HeldPrunes; n > 0 {
		fmt.Fprintf(a.Out, "Deletions that wait for confirmation: %d. To list them: kedge deploy prunes %s\n", n, d.Name)
	}
}

type statusWatch struct {
	app     *app
	opts    watchOptions
	id      atomic.Value // string: the deployment's, known to the feed too
	last    apiv1.Deployment
	printed map[string]string // what was said of each target
	failing time.Time         // since when something has failed; zero while nothing has
}

func (s *statusWatch) relevant(c apiv1.Change) bool {
	id, _ := s.id.Load().(string)
	return c.DeploymentID == id || c.ID == id || slices.Contains([]string{"connection", "agent", "repository"}, c.Kind)
}

func (s *statusWatch) look(d apiv1.Deployment) (step, error) {
	s.last = d
	s.id.Store(d.ID)
	s.report(d)
	if reason := failed(d); reason != "" {
		return s.fail(d, reason)
	}
	s.failing = time.Time{}
	if !s.complete(d) {
		return step{}, nil
	}
	fmt.Fprintf(s.app.Out, "Deployment %q is synced and healthy on %s at commit %s.\n", d.Name, count(len(attached(d)), "target"), shortCommit(d.Commit))
	s.app.sayHeldPrunes(d)
	if !strings.HasPrefix(d.Commit, s.opts.commit) {
		fmt.Fprintf(s.app.Out, "Commit %s does not change it.\n", shortCommit(d.EvaluatedCommit))
	}
	return step{done: true}, nil
}

func (s *statusWatch) complete(d apiv1.Deployment) bool {
	targets := attached(d)
	at := strings.HasPrefix(d.Commit, s.opts.commit) || strings.HasPrefix(d.EvaluatedCommit, s.opts.commit)
	if d.Pending != nil || len(targets) == 0 || d.Commit == "" || !at {
		return false
	}
	for _, t := range targets {
		if !arrived(t) {
			return false
		}
	}
	return true
}

// fail gives up once a failure has lasted.
func (s *statusWatch) fail(d apiv1.Deployment, reason string) (step, error) {
	now := s.app.Now()
	if s.failing.IsZero() {
		s.failing = now
	}
	if left := s.opts.failAfter - now.Sub(s.failing); left > 0 {
		return step{again: left}, nil
	}
	if err := s.app.printStatus(d, outputFlags{}); err != nil {
		return step{}, err
	}
	return step{}, &exitError{exitUnhealthy, fmt.Sprintf("deployment %q has failed: %s", d.Name, reason),
		"fix the source and push, or see kedge get events --deployment " + d.Name}
}

// report prints one line for each target that has changed.
func (s *statusWatch) report(d apiv1.Deployment) {
	say := func(key, line string) {
		if s.printed[key] != line {
			s.printed[key] = line
			fmt.Fprintln(s.app.Out, line)
		}
	}
	if problem := sourceProblem(d); problem != "" {
		say("", "source: "+problem)
	} else if d.Pending != nil {
		say("", d.Pending.Message)
	} else if len(attached(d)) == 0 {
		say("", fmt.Sprintf("no agent belongs to environment %s yet", d.Environment))
	}
	if d.Held != nil {
		say("held", "held: "+d.Held.Message)
	}
	for _, t := range d.Targets {
		health := t.Health
		if !t.StaleSince.IsZero() {
			health = "Stale since " + stamp(t.StaleSince) // an age would make a new line each time
		}
		line := fmt.Sprintf("%s: %s, %s at %s", t.Agent, targetSync(t), health, shortCommit(t.Commit))
		if t.Message != "" {
			line += ": " + cell(t.Message)
		}
		say(t.ID, line)
	}
}
