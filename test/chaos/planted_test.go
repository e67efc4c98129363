package chaos_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
)

// plantedEnv selects one bug of a server that was built with all planted bugs.
const plantedEnv = "KEDGE_PLANTED"

// planted is a bug, with a run that is known to find it.
type planted struct {
	name   string // what plantedEnv says
	reason string
	class  string // the expected find
	file   string // where it is, from the root of the module
	// old is replaced by new, in which planted == name is true if the bug is active.
	old, new string
	seed     uint64
	script   []string // see plan
	byChance bool     // random runs without the script have to find it, too
	steps    int
	limit    time.Duration // how long a lost update is waited for
}

var bugs = []planted{
	{
		name: "lost-row", class: lostUpdate, seed: 1, steps: 16, limit: 8 * time.Second,
		reason: "a commit gives the new state to all targets but one",
		file:   "server/internal/rollout/desired.go",
		old:    "		if !change {\n",
		new:    "		if !change || planted == \"lost-row\" && i == 1 {\n",
	},
	{
		name: "lost-change", class: lostUpdate, seed: 1, steps: 16, limit: 8 * time.Second,
		reason: "a row of the outbox is lost: nobody hears of what was written",
		file:   "server/internal/store/sqlstore/targets_write.go",
		old:    "	return s.recordTarget(store.ChangeDesired, tenant, id, agent, deployment)\n",
		new:    "	if planted == \"lost-change\" {\n		return nil\n	}\n	return s.recordTarget(store.ChangeDesired, tenant, id, agent, deployment)\n",
	},
	{
		name: "reordered-commit", class: olderState, seed: 1, steps: 24, limit: patience,
		byChance: true,
		script:   []string{"create", "create", "create", "rest", "push", "rest", "push", "rest", "push", "rest", "push", "rest"},
		reason:   "the commit before arrives once more, after the newer one, with a higher version",
		file:     "server/internal/reposync/evaluate_commit.go",
		old:      "	for _, o := range changed {\n		w.rememberEvaluations(o)\n	}\n",
		new: `	for _, o := range changed {
		w.rememberEvaluations(o)
		if planted == "reordered-commit" && len(o.parts) == 1 && o.parts[0].Was.Digest != "" {
			time.AfterFunc(200*time.Millisecond, func() {
				_ = w.svc.store.Update(context.Background(), func(tx store.Tx) error {
					d, ok, err := w.current(context.Background(), tx, o.deployment)
					if err != nil || !ok {
						return err
					}
					d.Rendered = o.parts[0].Was
					return w.svc.planner.Reconcile(context.Background(), tx, d)
				})
			})
		}
	}
`,
	},
	{
		name: "tombstone-for-detached", class: wrongDeletion, seed: 1, steps: 40, limit: patience,
		byChance: true,
		script:   []string{"create", "create", "create", "rest", "relabel", "rest", "relabel", "rest", "relabel", "rest", "relabel", "rest", "relabel", "rest"},
		reason:   "an agent that leaves an environment is told to delete instead of to let go",
		file:     "server/internal/placement/assign.go",
		old:      "	if prune {\n		last.Tombstone",
		new:      "	if prune || planted == \"tombstone-for-detached\" {\n		last.Tombstone",
	},
	{
		name: "rewind-without-hold", class: wrongDeletion, seed: 1, steps: 9, limit: patience,
		script: []string{"create", "create", "create", "rest", "back up", "edit the source", "rest", "restore", "rest"},
		reason: "what comes after a restored backup prunes at once",
		file:   "server/internal/rollout/desired.go",
		old:    "	return want, true\n",
		new:    "	want.HoldPrune = want.HoldPrune && planted != \"rewind-without-hold\"\n	return want, true\n",
	},
	{
		name: "sent-in-freeze", class: sentInFreeze, seed: 1, steps: 24, limit: patience,
		byChance: true,
		script:   []string{"create", "create", "create", "rest", "freeze or lift", "push", "push", "push", "rest"},
		reason:   "what is rendered in a freeze is sent",
		file:     "server/internal/rollout/desired.go",
		old:      "	if held.IsZero() {\n		if err := st.writeDesired(",
		new:      "	if held.IsZero() || planted == \"sent-in-freeze\" {\n		if err := st.writeDesired(",
	},
	{
		name: "edit-in-parts", class: otherSpec, seed: 1, steps: 24, limit: patience,
		byChance: true,
		script:   []string{"create", "create", "create", "rest", "edit everything", "edit everything", "rest", "edit everything", "edit everything", "rest"},
		reason:   "the policy of an edit is sent at once, and its source when it is rendered",
		file:     "server/internal/control/deployments_pending.go",
		old:      "	return s.planner.NextRun(ctx, tx, e.inForce.TenantID, e.inForce.ID) // runs wait for it from now on\n",
		new: `	if planted == "edit-in-parts" {
		d := e.inForce
		d.Policy = e.wanted.Policy
		return s.edited(ctx, tx, p, fleet.Tenant{ID: d.TenantID}, d, "deployment.update", what)
	}
	return s.planner.NextRun(ctx, tx, e.inForce.TenantID, e.inForce.ID)
`,
	},
	{
		name: "foreign-row", class: foreignRow, seed: 1, steps: 8, limit: patience,
		reason: "a query forgets whose rows are asked for",
		file:   "server/internal/store/sqlstore/events.go",
		old:    "	where := `tenant_id = ` + a.add(tenant)\n",
		new:    "	where := map[bool]string{false: `tenant_id = `, true: `'' <> `}[planted == \"foreign-row\"] + a.add(tenant)\n",
	},
}

// TestPlantedBugsAreFound checks that the runs of this package can fail: each class of bug is planted in the
// server and must be found with its class.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	binary := buildPlanted(t)
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			found, how := run(t, plan{seed: bug.seed, script: bug.script, steps: bug.steps, limit: bug.limit, binary: binary, store: newSQLite, planted: bug.name})
			if !slices.ContainsFunc(found, func(v violation) bool { return v.class == bug.class }) {
				t.Errorf("%s: found %v, want a %s\n%s", bug.reason, found, bug.class, how)
			}
		})
	}
}

// TestRandomRunsFindPlantedBugs checks that random runs can find the bugs of the scripts too.
func TestRandomRunsFindPlantedBugs(t *testing.T) {
	t.Parallel()
	const tries = 10 // each finds its bug in at least half of its runs
	binary := buildPlanted(t)
	for _, bug := range bugs {
		if !bug.byChance {
			continue
		}
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			seeds := rand.New(rand.NewPCG(testkit.Seed(t), 0))
			hit := func(v violation) bool { return v.class == bug.class }
			for try := range tries {
				var found []violation
				t.Run(fmt.Sprint("try ", try), func(t *testing.T) {
					found, _ = run(t, plan{seed: seeds.Uint64(), steps: 40, limit: bug.limit, binary: binary, store: newSQLite, planted: bug.name})
				})
				if slices.ContainsFunc(found, hit) {
					return
				}
			}
			t.Errorf("%s: %d random runs found no %s", bug.reason, tries, bug.class)
		})
	}
}

// buildPlanted builds one server with all bugs, each with its name as a switch.
func buildPlanted(t *testing.T) string {
	t.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	texts := map[string]string{}
	for _, bug := range bugs {
		path := filepath.Join(root, bug.file)
		if texts[path] == "" {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(raw)
		}
		if n := strings.Count(texts[path], bug.old); n != 1 {
			t.Fatalf("%s has %d places for the bug %q, want 1: the code has changed, so plant the bug again", bug.file, n, bug.name)
		}
		texts[path] = strings.Replace(texts[path], bug.old, bug.new, 1)
		if strings.Contains(bug.new, "time.") && !strings.Contains(texts[path], "\t\"time\"\n") {
			texts[path] = strings.Replace(texts[path], "import (\n", "import (\n\t\"time\"\n", 1)
		}
		// The switch is a separate file in each package.
		texts[filepath.Join(filepath.Dir(path), "planted.go")] = "package " + filepath.Base(filepath.Dir(path)) +
			"\n\nimport \"os\"\n\nvar planted = os.Getenv(\"" + plantedEnv + "\")\n"
	}
	overlay := struct{ Replace map[string]string }{Replace: map[string]string{}}
	for path, text := range texts {
		planted := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, root), string(filepath.Separator), "_"))
		if err := os.WriteFile(planted, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[path] = planted
	}
	raw, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "kedge-server")
	if err := build(t, binary, "-overlay", file); err != nil {
		t.Fatal(err)
	}
	return binary
}
