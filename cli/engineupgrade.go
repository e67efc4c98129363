package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

func (a *app) engineUpgradeCommand() *cobra.Command {
	cmd := group("engine-upgrade", "Upgrade instances of Argo CD, one after another", a.engineUpgradeStartCommand(),
		getCommand(a, "get", engineUpgradeResource()), a.engineUpgradeHaltCommand())
	cmd.Aliases = []string{"engine-upgrades"}
	return cmd
}

func engineUpgradeResource() resource[apiv1.EngineUpgrade] {
	name := func(v apiv1.EngineUpgrade) string { return v.Name }
	return resource[apiv1.EngineUpgrade]{
		kind: "engine-upgrade", use: "engine-upgrades", short: "List upgrades of Argo CD, one line per instance", changes: []string{"engineupgrade"},
		list: func(ctx context.Context, c *client.Client) ([]apiv1.EngineUpgrade, error) {
			return client.List[apiv1.EngineUpgrade](ctx, c, c.In("engine-upgrades"), nil, 0)
		},
		get: func(ctx context.Context, c *client.Client, name string) (apiv1.EngineUpgrade, error) {
			return client.Get[apiv1.EngineUpgrade](ctx, c, c.In("engine-upgrades", name))
		},
		key: name, name: name,
		header: []string{"NAME", "REVISION", "PHASE", "AGENT", "INSTANCE", "COMMIT", "BEFORE", "AGE", "+DEPLOYMENT", "+CANARY", "+BY", "REASON", "MESSAGE"},
		rows:   engineUpgradeRows,
	}
}

func engineUpgradeRows(v apiv1.EngineUpgrade, now time.Time) [][]string {
	var rows [][]string
	for _, i := range v.Instances {
		rows = append(rows, []string{
			v.Name, v.Revision, v.Phase, i.Agent, i.Phase, shortCommit(i.Commit), shortCommit(i.BeforeCommit), output.Age(v.CreatedAt, now),
			i.Deployment, i.Canary, orDash(v.By), orDash(i.Reason), cell(sentence(i.Message)),
		})
	}
	return rows
}

func (a *app) describeEngineUpgrade(_ context.Context, c *client.Client, v apiv1.EngineUpgrade, w *describer) error {
	w.field(0, "Name", v.Name)
	w.field(0, "Tenant", c.Tenant())
	w.field(0, "Revision", v.Revision)
	w.field(0, "Timeout", (time.Duration(v.TimeoutSeconds) * time.Second).String())
	w.field(0, "Started", output.Timestamp(v.CreatedAt)+" by "+orDash(v.By))
	if !v.FinishedAt.IsZero() {
		w.field(0, "Finished", output.Timestamp(v.FinishedAt))
	}
	w.field(0, "Phase", v.Phase)
	w.optional(0, "Reason", v.Reason)
	w.optional(0, "Message", v.Message)
	if v.Halt != "" {
		w.field(0, "Halted", v.Halt+" by "+v.HaltedBy)
	}
	rows := make([][]string, 0, len(v.Instances))
	for _, i := range v.Instances {
		rows = append(rows, []string{
			i.Agent, i.Deployment, i.Canary, i.Phase, shortCommit(i.Commit), shortCommit(i.BeforeCommit), orDash(i.Run), orDash(i.Reason), orDash(sentence(i.Message)),
		})
	}
	w.table("Instances", []string{"Agent", "Deployment", "Canary", "Phase", "Commit", "Before", "Run", "Reason", "Message"}, rows)
	return nil
}

func (a *app) engineUpgradeStartCommand() *cobra.Command {
	var req apiv1.CreateEngineUpgrade
	var instances []string
	var perInstance time.Duration
	var w waiting
	cmd := a.verb("start NAME", "Start an upgrade", 1, func(ctx context.Context, c *client.Client, args []string) error {
		req.Name, req.TimeoutSeconds, req.Instances = args[0], int(perInstance.Seconds()), nil
		for _, text := range instances {
			instance, err := parseInstance(text)
			if err != nil {
				return err
			}
			req.Instances = append(req.Instances, instance)
		}
		made, err := client.Send[apiv1.EngineUpgrade](ctx, c, http.MethodPost, c.In("engine-upgrades"), req)
		if err != nil {
			return err
		}
		return a.followUpgrade(ctx, c, made, w)
	})
	cmd.Long = "Installs a revision of Argo CD in the instances, in the given order. For each instance, the deployment that installs Argo CD is synced to\n" +
		"the revision. When it is healthy, the upgraded Argo CD must sync the canary. Only then the next instance starts. If an instance fails or\n" +
		"takes too long, it is rolled back and checked again, and the upgrade is halted. Later instances are not touched."
	cmd.Example = "kedge engine-upgrade start argocd-3-1 --revision v3.1.0 \\\n" +
		"  --instance agent=test-argocd,deployment=argocd-test,canary=guestbook-test \\\n" +
		"  --instance agent=prod-argocd,deployment=argocd-prod,canary=guestbook-prod --wait"
	f := cmd.Flags()
	f.StringVar(&req.Revision, "revision", "", "branch, tag or commit to install")
	f.StringArrayVar(&instances, "instance", nil, "an instance: agent=NAME,deployment=NAME,canary=NAME; repeat it in the order of the upgrade")
	f.DurationVar(&perInstance, "instance-timeout", 10*time.Minute, "time for an instance to be installed and checked, and the same for its way back")
	must(cmd.MarkFlagRequired("revision"))
	must(cmd.MarkFlagRequired("instance"))
	w.flags(cmd)
	must(f.Set("timeout", "0"))
	f.Lookup("timeout").DefValue = "0s"
	return cmd
}

// parseInstance reads agent=NAME,deployment=NAME,canary=NAME.
func parseInstance(text string) (apiv1.CreateEngineUpgradeInstance, error) {
	var out apiv1.CreateEngineUpgradeInstance
	fields := map[string]*string{"agent": &out.Agent, "deployment": &out.Deployment, "canary": &out.Canary}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if into := fields[key]; ok && into != nil && *into == "" {
			*into = value
			continue
		}
		return out, &exitError{exitUsage, fmt.Sprintf("--instance: %q is not agent=NAME, deployment=NAME or canary=NAME", part), "kedge engine-upgrade start --help"}
	}
	if out.Agent == "" || out.Deployment == "" || out.Canary == "" {
		return out, &exitError{exitUsage, fmt.Sprintf("--instance: %q needs agent=NAME,deployment=NAME,canary=NAME", text), "kedge engine-upgrade start --help"}
	}
	return out, nil
}

func (a *app) engineUpgradeHaltCommand() *cobra.Command {
	var req apiv1.HaltEngineUpgrade
	var w waiting
	cmd := a.verb("halt NAME", "Halt an upgrade: later instances are not touched", 1, func(ctx context.Context, c *client.Client, args []string) error {
		v, err := client.Send[apiv1.EngineUpgrade](ctx, c, http.MethodPost, c.In("engine-upgrades", args[0], "halt"), req)
		if err != nil {
			return err
		}
		return a.followUpgrade(ctx, c, v, w)
	})
	cmd.Long = "Halts an upgrade. The current instance is finished and checked first, or with --rollback rolled back and checked."
	cmd.Flags().BoolVar(&req.RollBack, "rollback", false, "roll the current instance back")
	w.flags(cmd)
	return cmd
}

// followUpgrade says how far an upgrade is, or waits for its end.
func (a *app) followUpgrade(ctx context.Context, c *client.Client, v apiv1.EngineUpgrade, w waiting) error {
	if !w.wait {
		fmt.Fprintf(a.Err, "To follow it: kedge engine-upgrade get %s --watch\n", v.Name)
		return a.say("Engine upgrade %q to %s: %s.", v.Name, v.Revision, upgradeText(v))
	}
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	said := ""
	err := a.follow(ctx, []*client.Client{c}, func(change apiv1.Change) bool { return change.Kind == "engineupgrade" }, func(ctx context.Context) (step, error) {
		now, err := client.Get[apiv1.EngineUpgrade](ctx, c, c.In("engine-upgrades", v.Name))
		if err != nil {
			return step{}, err
		}
		v = now
		if text := upgradeText(v); text != said {
			said = text
			fmt.Fprintln(a.Err, text)
		}
		return step{done: v.Phase != "Running"}, nil
	})
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &exitError{exitTimeout, fmt.Sprintf("engine upgrade %q is not done after %s: %s", v.Name, w.timeout, said), "kedge describe engine-upgrade " + v.Name}
	case err != nil:
		return err
	case v.Phase == "Succeeded":
		return a.say("Engine upgrade %q to %s has succeeded: %s.", v.Name, v.Revision, v.Message)
	}
	return &exitError{exitUnhealthy, fmt.Sprintf("engine upgrade %q to %s: %s: %s", v.Name, v.Revision, v.Phase, v.Message), "kedge describe engine-upgrade " + v.Name}
}

// upgradeText says how far each instance is.
func upgradeText(v apiv1.EngineUpgrade) string {
	parts := make([]string, 0, len(v.Instances))
	for _, i := range v.Instances {
		parts = append(parts, i.Agent+" "+i.Phase)
	}
	text := v.Phase + " (" + strings.Join(parts, ", ") + ")"
	if v.Halt != "" && v.Phase == "Running" {
		text += ", halting: " + v.Halt
	}
	return text
}
