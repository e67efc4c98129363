package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// maxHealthy bounds how many healthy objects status lists; tree lists all.
const maxHealthy = 200

// printStatus shows a deployment, its targets and their objects: those with a problem first.
func (a *app) printStatus(d apiv1.Deployment, o outputFlags) error {
	if err := a.facts(statusFacts(d, a.Now())); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	if len(d.Targets) == 0 {
		return a.say("No agent belongs to environment %s: kedge agent enroll NAME", d.Environment)
	}
	now := a.Now()
	targets := a.table(o, []string{"AGENT", "SYNC", "HEALTH", "COMMIT", "GENERATION", "REPORTED", "REASON", "MESSAGE"})
	var problems, healthy [][]string
	for _, t := range d.Targets {
		targets.Rows = append(targets.Rows, []string{
			t.Agent, targetSync(t), targetHealth(t, now), shortCommit(t.Commit),
			fmt.Sprintf("%d/%d", t.ObservedGeneration, t.Generation), output.Age(t.AsOf, now), orDash(t.Reason), cell(sentence(t.Message)),
		})
		for _, object := range t.Objects {
			if well(object) && t.StaleSince.IsZero() {
				healthy = append(healthy, objectRow(t, object))
			} else {
				problems = append(problems, objectRow(t, object))
			}
		}
	}
	if err := targets.Write(a.Out); err != nil {
		return err
	}
	if err := a.printObjects(d, o, problems, healthy); err != nil {
		return err
	}
	if err := a.printHeld(d); err != nil {
		return err
	}
	return a.printDetached(d)
}

func (a *app) printObjects(d apiv1.Deployment, o outputFlags, problems, healthy [][]string) error {
	shown := healthy[:min(len(healthy), maxHealthy)]
	if len(problems)+len(shown) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	objects := a.table(o, []string{"AGENT", "OBJECT", "SYNC", "HEALTH", "REASON", "MESSAGE"}, slices.Concat(problems, shown)...)
	if err := objects.Write(a.Out); err != nil {
		return err
	}
	if more := len(healthy) - len(shown); more > 0 {
		return a.say("%s not shown: kedge tree %s", count(more, "healthy object"), d.Name)
	}
	return nil
}

// printHeld says how to go on when deletions wait to be confirmed.
func (a *app) printHeld(d apiv1.Deployment) error {
	n := d.Counts.HeldPrunes
	if n == 0 {
		return nil
	}
	return a.say("\nDeletions that wait for confirmation: %d. To list them: kedge deploy prunes %s. To confirm them: kedge deploy confirm-prune %s --all --count %d",
		n, d.Name, d.Name, n)
}

// printDetached explains detached targets and how to remove them from the list.
func (a *app) printDetached(d apiv1.Deployment) error {
	for _, t := range d.Targets {
		if t.DetachedAt.IsZero() {
			continue
		}
		why := t.DetachedWhy
		if why == "" {
			why = "it left the environment"
		}
		if err := a.say("\nThe target on agent %s is detached (%s): %s. Its objects stay in the cluster unmanaged. To remove it from this list: kedge deploy dismiss %s --agent %s",
			t.Agent, output.Age(t.DetachedAt, a.Now()), why, d.Name, t.Agent); err != nil {
			return err
		}
	}
	return nil
}

func well(o apiv1.Object) bool {
	return o.Sync == string(fleet.SyncSynced) && o.Health == string(fleet.HealthCurrent)
}

// objectRow keeps the whole message: it names the cause.
func objectRow(t apiv1.Target, o apiv1.Object) []string {
	sync, health, reason := o.Sync, o.Health, o.Reason
	if !t.StaleSince.IsZero() {
		sync, health, reason = "was "+sync, "was "+health, t.Reason
	}
	return []string{t.Agent, objectName(o), sync, health, orDash(reason), sentence(o.Message)}
}

func statusFacts(d apiv1.Deployment, now time.Time) [][]string {
	rows := [][]string{
		{"Deployment", d.Name},
		{"Source", sourceText(d.Source)},
		{"Destination", fmt.Sprintf("environment %s, namespace %s", d.Environment, d.Namespace)},
		{"Commit", orDash(d.Commit)},
		{"Sync", deploymentSync(d)},
		{"Health", deploymentHealth(d, now)},
	}
	if d.RunningCommit != d.Commit || d.RunningOther > 0 {
		rows = slices.Insert(rows, 4, []string{"Running", deploymentCommit(d)})
	}
	if by := d.DeclaredBy; by != nil {
		text := fmt.Sprintf("%s of %s, for agent %s", by.File, by.RepoURL, by.Agent)
		if !by.ReleasedAt.IsZero() {
			text = fmt.Sprintf("no longer (%s), by %s", output.Age(by.ReleasedAt, now), text)
		}
		rows = append(rows, []string{"Declared", text})
	}
	if by := d.ManagedBy; by != nil {
		rows = append(rows, []string{"Managed by", by.String()})
	}
	if policy := policyText(d.Policy); policy != "" {
		rows = slices.Insert(rows, 3, []string{"Policy", policy})
	}
	if kind := kindText(d); kind != "" {
		rows = slices.Insert(rows, 2, []string{"Kind", kind})
	}
	if p := d.Pending; p != nil {
		rows = append(rows, []string{"Pending", p.Message})
		rows = append(rows, []string{"In force", inForceText(p.InForce)})
	}
	if d.SourceError != "" {
		rows = append(rows, []string{"Problem", d.SourceError})
	} else if d.Message != "" && d.Message != d.Held.Text() && d.Pending == nil {
		rows = append(rows, []string{"Message", d.Message})
	}
	if d.Held != nil {
		rows = append(rows, []string{"Held", d.Held.Message})
	}
	if !d.DeletedAt.IsZero() {
		rows = append(rows, []string{"Deleted", fmt.Sprintf("deleting its objects (%s)", output.Age(d.DeletedAt, now))})
	}
	return rows
}

// sourceText is a source in one line.
func sourceText(s apiv1.Source) string {
	return fmt.Sprintf("%s, path %s, revision %s", s.RepoURL, pathText(s), revisionText(s))
}

// inForceText is the spec that agents have, in one line.
func inForceText(s apiv1.Spec) string {
	text := fmt.Sprintf("%s; environment %s, namespace %s", sourceText(s.Source), s.Environment, s.Namespace)
	if policy := policyText(s.Policy); policy != "" {
		text += "; " + policy
	}
	return text
}

// kindText says how a source is rendered; "" for plain manifests, which need no word.
func kindText(d apiv1.Deployment) string {
	kind, how := d.Source.Kind, ""
	if kind == "" {
		kind, how = d.Source.Detected, " (detected)"
	}
	if kind == "" || kind == "plain" {
		return ""
	}
	if d.Volatile {
		how += ", uses time or random values: rendered again only when its input changes"
	}
	return kind + how
}
