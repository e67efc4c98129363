package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/fleet"
)

// printStatus shows a deployment on every target and each object that is not as it should be.
func (a *app) printStatus(d apiv1.Deployment) error {
	facts := table{header: []string{"", ""}, colour: a.colour(), rows: statusFacts(d, a.Now())}
	if err := facts.write(a.Out); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	if len(d.Targets) == 0 {
		_, err := fmt.Fprintf(a.Out, "No agent belongs to environment %s: kedge agent enroll NAME\n", d.Environment)
		return err
	}
	now := a.Now()
	targets := table{header: []string{"AGENT", "SYNC", "HEALTH", "COMMIT", "GENERATION", "AS OF", "MESSAGE"}, colour: a.colour()}
	objects := table{header: []string{"AGENT", "OBJECT", "SYNC", "HEALTH", "MESSAGE"}, colour: a.colour()}
	for _, t := range d.Targets {
		targets.rows = append(targets.rows, []string{
			t.Agent, targetSync(t), targetHealth(t, now), shortCommit(t.Commit),
			fmt.Sprintf("%d of %d", t.ObservedGeneration, t.Generation), stamp(t.AsOf), cell(t.Message),
		})
		for _, o := range t.Objects {
			if !well(o) {
				objects.rows = append(objects.rows, objectRow(t, o))
			}
		}
	}
	if err := targets.write(a.Out); err != nil {
		return err
	}
	if len(objects.rows) > 0 {
		fmt.Fprintln(a.Out)
		if err := objects.write(a.Out); err != nil {
			return err
		}
	}
	if err := a.printHeld(d); err != nil {
		return err
	}
	return a.printDetached(d)
}

// printHeld says how to go on when deletions wait to be confirmed.
func (a *app) printHeld(d apiv1.Deployment) error {
	n := d.Counts.HeldPrunes
	if n == 0 {
		return nil
	}
	return a.say("\nHeld is what has left the source and is not deleted before you say so (%s): kedge deploy prunes %s, kedge deploy confirm-prune %s --all --count %d",
		count(n, "deletion"), d.Name, d.Name, n)
}

// printDetached says what became of targets that were let go, and how to be rid of their lines.
func (a *app) printDetached(d apiv1.Deployment) error {
	for _, t := range d.Targets {
		if t.DetachedAt.IsZero() {
			continue
		}
		why := t.DetachedWhy
		if why == "" {
			why = "it left the environment"
		}
		if _, err := fmt.Fprintf(a.Out, "\n%s was let go at %s: %s. Its objects stay and nobody manages them; forget them with: kedge deploy dismiss %s --agent %s\n",
			t.Agent, stamp(t.DetachedAt), why, d.Name, t.Agent); err != nil {
			return err
		}
	}
	return nil
}

func well(o apiv1.Object) bool {
	return o.Sync == string(fleet.SyncSynced) && o.Health == string(fleet.HealthCurrent)
}

// objectRow keeps the whole message: it says what to mend.
func objectRow(t apiv1.Target, o apiv1.Object) []string {
	sync, health := o.Sync, o.Health
	if !t.StaleSince.IsZero() {
		sync, health = "was "+sync, "was "+health
	}
	return []string{t.Agent, objectName(o), sync, health, o.Message}
}

func statusFacts(d apiv1.Deployment, now time.Time) [][]string {
	revision := d.Source.Revision
	if revision == "" {
		revision = "the default branch"
	}
	path := d.Source.Path
	if path == "" {
		path = "."
	}
	rows := [][]string{
		{"Deployment", d.Name},
		{"Source", fmt.Sprintf("%s, folder %s, %s", d.Source.RepoURL, path, revision)},
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
			text = "no longer, since " + stamp(by.ReleasedAt) + ", by " + text
		}
		rows = append(rows, []string{"Declared", text})
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
	} else if d.Message != "" && d.Message != d.Held && d.Pending == nil {
		rows = append(rows, []string{"Message", d.Message})
	}
	if d.Held != "" {
		rows = append(rows, []string{"Held", d.Held})
	}
	if !d.DeletedAt.IsZero() {
		rows = append(rows, []string{"Deleted", stamp(d.DeletedAt) + ", while its objects are being deleted"})
	}
	return rows
}

// inForceText is the spec that agents have, in one line.
func inForceText(s apiv1.Spec) string {
	text := fmt.Sprintf("%s, folder %s, %s; environment %s, namespace %s", s.Source.RepoURL, cmp.Or(s.Source.Path, "."),
		cmp.Or(s.Source.Revision, "the default branch"), s.Environment, s.Namespace)
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
		how += ", uses time or randomness: rendered again only when what it reads has changed"
	}
	return kind + how
}
