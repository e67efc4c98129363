package control_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

func secretYAML(value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {p: %s}\nstringData: {q: %s}\n", base64.StdEncoding.EncodeToString([]byte(value)), value)
}

// differing lists differences, as "change object: path old -> new".
func differing(d control.Diff) []string {
	var out []string
	for _, v := range d.Variants {
		for _, o := range v.Objects {
			if o.Kind != "changed" {
				out = append(out, fmt.Sprintf("%s %s", o.Kind, o.Ref))
				continue
			}
			for _, f := range o.Fields {
				out = append(out, fmt.Sprintf("%s: %s %s -> %s", o.Ref, f.Path, f.Old, f.New))
			}
		}
	}
	return out
}

func (r *replica) diff(t *testing.T, from, to string, want ...string) control.Diff {
	t.Helper()
	d, err := r.Diff(t.Context(), admin, "default", "app", from, to)
	ok(t, err)
	if diff := cmp.Diff(want, differing(d)); diff != "" {
		t.Errorf("from %q to %q (-want +got):\n%s", from, to, diff)
	}
	return d
}

func TestDiff(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	one := r.push(t, map[string]string{"app/a.yaml": configMap("a", "1"), "app/b.yaml": configMap("b", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(one))
	r.diff(t, "", "")
	two := r.push(t, map[string]string{"app/a.yaml": configMap("a", "2")})
	r.await(t, "app", atCommit(two))
	ok(t, r.repo.Switch(t.Context(), "next"))
	three, err := r.repo.CommitAndPush(t.Context(), map[string]string{"app/b.yaml": "\x00deleted", "app/c.yaml": configMap("c", "1")}, "three")
	ok(t, err)
	ok(t, r.repo.Push(t.Context(), "refs/heads/next"))

	changed := `ConfigMap default/a: data.value "1" -> "2"`
	added, removed := "added ConfigMap default/c", "removed ConfigMap default/b"
	r.diff(t, "1", "2", changed)
	r.diff(t, one, two, changed)
	r.diff(t, one[:9], "desired", changed)
	d := r.diff(t, "", "next", removed, added)
	if d.From.Commit != two || d.From.Name != control.DiffDesired || d.To.Commit != three || d.To.Name != "next" {
		t.Errorf("the sides are %+v and %+v", d.From, d.To)
	}
	if v := d.Variants[0]; v.Summary.Added != 1 || v.Summary.Removed != 1 || v.Summary.Unchanged != 1 || v.Count != 1 || v.Agents[0] != "paris" {
		t.Errorf("%+v", v)
	}
	r.diff(t, "1", "refs/heads/next", changed, removed, added)
	r.diff(t, three, "1", strings.Replace(changed, `"1" -> "2"`, `"2" -> "1"`, 1), "added ConfigMap default/b", "removed ConfigMap default/c")

	kept, err := r.Revisions(t.Context(), admin, "default", "app", store.Page{})
	if err != nil || len(kept) != 2 {
		t.Errorf("comparing has left a trace: %+v, %v", kept, err)
	}
	if _, err := r.Diff(t.Context(), admin, "default", "app", "99", ""); !isInvalid(err, "not kept") {
		t.Errorf("a revision that is not kept: %v", err)
	}
	if _, err := r.Diff(t.Context(), admin, "default", "app", "", "nowhere"); !isConflict(err, "nowhere") {
		t.Errorf("a branch that is not there: %v", err)
	}
	eve := auth.Principal{Name: "eve", Roles: map[fleet.TenantID]fleet.Role{"tnt-other": fleet.RoleAdmin}}
	if _, err := r.Diff(t.Context(), eve, "default", "app", "", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a caller without a role: %v", err)
	}
	r.git.SetDown(true)
	r.diff(t, "1", "2", changed) // kept ones need no Git
	if kept, err := r.Revisions(t.Context(), admin, "default", "app", store.Page{}); err != nil || kept[0].Message == "" || kept[0].Author == "" {
		t.Errorf("the history lacks message and author while Git is away: %+v, %v", kept, err)
	}
}

func TestDiffTellsNoSecret(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	const before, after = "planted-hunter2", "planted-battery-staple"
	one := r.push(t, map[string]string{"app/s.yaml": secretYAML(before)})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(one))
	two := r.push(t, map[string]string{"app/s.yaml": secretYAML(after)})
	r.await(t, "app", atCommit(two))
	for _, sides := range [][2]string{{"1", "2"}, {one, two}, {"desired", one}} {
		d, err := r.Diff(t.Context(), admin, "default", "app", sides[0], sides[1])
		ok(t, err)
		text, err := json.Marshal(d)
		ok(t, err)
		for _, value := range []string{"planted", base64.StdEncoding.EncodeToString([]byte("planted-")), before[8:], after[8:]} {
			if strings.Contains(string(text), value) {
				t.Errorf("%v: %q is in %s", sides, value, text)
			}
		}
		if len(d.Variants[0].Objects) != 1 || len(d.Variants[0].Objects[0].Fields) != 2 {
			t.Errorf("%v: the difference is not shown: %s", sides, text)
		}
	}
}

// covers: G13 (each variant is compared by itself)
func TestDiffOfVariants(t *testing.T) {
	t.Parallel()
	r, d := regional(t)
	was := byAgent(d)["paris"].Desired.Commit
	commit := r.push(t, map[string]string{"overlays/eu/cm.yaml": configMap("a", "changed ${where}")})
	r.await(t, "app", func(d control.DeploymentView) error {
		if byAgent(d)["lyon"].Desired.Commit != commit {
			return errors.New("not there yet")
		}
		return nil
	})
	diff, err := r.Diff(t.Context(), admin, "default", "app", was, "")
	ok(t, err)
	if len(diff.Variants) != 2 {
		t.Fatalf("%+v", diff)
	}
	for _, v := range diff.Variants {
		eu := v.Agents[0] != "boston"
		if eu != (len(v.Objects) == 1) || eu != (v.Count == 2) {
			t.Errorf("for %v: %+v", v.Agents, v)
		}
	}
}

func TestDiffSaysWhichSideIsBroken(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	r.enroll(t, "paris")
	one := r.push(t, map[string]string{"app/a.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(one))
	r.push(t, map[string]string{"app/a.yaml": "not: [yaml"})
	d, err := r.Diff(t.Context(), admin, "default", "app", "", "")
	ok(t, err)
	if p := d.Variants[0].Problem; !strings.Contains(p, "HEAD") || !strings.Contains(p, "app/a.yaml") {
		t.Errorf("the problem is %q", p)
	}
}

// A comparison with a number shows the result of a rollback to it, even if a cluster was upgraded since. It
// needs no Git.
func TestDiffToANumberIsWhatARollbackGives(t *testing.T) {
	t.Parallel()
	r, lyon, _ := manualChart(t)
	r.capable(t, lyon, "v1.29.0")
	r.git.SetDown(true)
	d, err := r.Diff(t.Context(), admin, "default", "app", "", "1")
	ok(t, err)
	if len(d.Variants) != 2 {
		t.Fatalf("%+v", d)
	}
	for _, v := range d.Variants {
		if len(v.Objects) > 0 || v.Problem != "" {
			t.Errorf("for %v, whom a rollback tells nothing new, it has %+v, %q", v.Agents, v.Objects, v.Problem)
		}
	}
}

// A rollback does not change a variant that a kept revision does not have, and nothing is rendered instead.
func TestDiffToANumberRendersNothing(t *testing.T) {
	t.Parallel()
	r, _ := regional(t)
	r.push(t, map[string]string{"overlays/asia/cm.yaml": configMap("a", "asia")})
	_, err := r.SuspendEnvironment(t.Context(), admin, "default", "default", "audit")
	ok(t, err)
	_, err = r.UpdateAgent(t.Context(), admin, "default", "lyon", control.UpdateAgent{Labels: &map[string]string{"region": "asia"}}, control.Match{})
	ok(t, err)
	d, err := r.Diff(t.Context(), admin, "default", "app", "", "1")
	ok(t, err)
	for _, v := range d.Variants {
		if lyon := v.Agents[0] == "lyon"; lyon != strings.Contains(v.Problem, "does not change these clusters") || len(v.Objects) > 0 {
			t.Errorf("for %v it has %+v, %q", v.Agents, v.Objects, v.Problem)
		}
	}
}
