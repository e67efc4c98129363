package control_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// detachedRows are the detached targets of the default tenant as "deployment agent".
func (d *fixture) detachedRows(t failer, f store.DetachedFilter) []string {
	t.Helper()
	found, err := d.DetachedTargets(d.ctx, root, "default", f)
	ok(t, err)
	var out []string
	for _, target := range found {
		out = append(out, target.DeploymentName+" "+target.AgentName)
	}
	slices.Sort(out)
	return out
}

// Detached rows are listed by name, and one call dismisses those of an agent or of a deployment, except those
// that an agent still manages.
func TestDetachedTargetsAreDismissedTogether(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	for _, agent := range []string{"paris", "rome", "oslo"} {
		d.enroll(t, "default", agent, nil)
	}
	for _, name := range []string{"app", "web"} {
		d.deploy(t, "default", name, "")
		d.render(t, "default", name, "1")
	}
	for _, agent := range []string{"paris", "rome"} {
		ok(t, d.DeleteAgent(d.ctx, root, "default", agent, control.Match{}))
	}
	want := []string{"app paris", "app rome", "web paris", "web rome"}
	if diff := cmp.Diff(want, d.detachedRows(t, store.DetachedFilter{})); diff != "" {
		t.Fatalf("detached (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"app paris"}, d.detachedRows(t, store.DetachedFilter{Deployment: "app", Agent: "paris"})); diff != "" {
		t.Errorf("by both names (-want +got):\n%s", diff)
	}
	done, err := d.DismissTargets(d.ctx, root, "default", "", "paris")
	ok(t, err)
	if len(done.Targets) != 2 || done.Kept != 0 {
		t.Errorf("%d dismissed, %d kept, want both of paris", len(done.Targets), done.Kept)
	}
	if diff := cmp.Diff([]string{"app rome", "web rome"}, d.detachedRows(t, store.DetachedFilter{})); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	_, err = d.DismissTargets(d.ctx, root, "default", "web", "")
	ok(t, err)
	d.wantPlaces(t, "default", "web", map[string]string{"oslo": "attached"})
	if _, err := d.DismissTargets(d.ctx, root, "default", "", ""); !errors.As(err, new(*fleet.InvalidError)) {
		t.Errorf("no name gives %v", err)
	}
	if _, err := d.DismissTargets(d.ctx, root, "default", "nope", ""); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown deployment gives %v", err)
	}
	if _, err := d.DismissTargets(d.ctx, root, "default", "", "nobody"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown agent gives %v", err)
	}
	if _, err := d.DismissTargets(d.ctx, root, "default", "", "oslo"); err != nil {
		t.Errorf("an agent without detached targets gives %v", err)
	}
}

func TestManyDetachedTargetsAreDismissed(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	const many = 510 // more than are read at once
	for i := range many {
		d.enroll(t, "default", fmt.Sprintf("agent-%d", i), nil)
	}
	d.deploy(t, "default", "app", "")
	d.render(t, "default", "app", "1") // a target that was never sent anything is removed with its agent
	for i := range many {
		ok(t, d.DeleteAgent(d.ctx, root, "default", fmt.Sprintf("agent-%d", i), control.Match{}))
	}
	if all := len(d.detachedRows(t, store.DetachedFilter{Page: store.Page{Limit: 2 * many}})); all != many {
		t.Fatalf("%d targets are detached, want %d", all, many)
	}
	done, err := d.DismissTargets(d.ctx, root, "default", "app", "")
	ok(t, err)
	if left := d.detachedRows(t, store.DetachedFilter{}); len(done.Targets) != many || len(left) != 0 {
		t.Errorf("%d of %d dismissed, %d left", len(done.Targets), many, len(left))
	}
}
