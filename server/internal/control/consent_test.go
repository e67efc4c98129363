package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// given waits until the target of "app" on an agent has a newer version, and reports that the agent has applied
// it.
func (r *replica) given(t *testing.T, agent fleet.Agent, after fleet.Version) fleet.Desired {
	t.Helper()
	r.await(t, "app", func(d control.DeploymentView) error {
		if got := d.Targets[0].Desired; got.Version.Compare(after) <= 0 || got.Digest == "" {
			return fmt.Errorf("still at %+v: %s", got.Version, d.Message)
		}
		return nil
	})
	target := r.target(t, agent)
	r.report(t, agent, target, fleet.SyncSynced)
	return target.Desired
}

func (r *replica) edit(t *testing.T, req control.UpdateDeployment) {
	t.Helper()
	_, err := r.UpdateDeployment(t.Context(), admin, "default", "app", req, control.Match{})
	ok(t, err)
}

func (r *replica) source(path, revision string) control.UpdateDeployment {
	return control.UpdateDeployment{Source: &fleet.Source{RepoURL: r.url, Path: path, Revision: revision}}
}

// looked waits until the last edit of "app" is in force.
func (r *replica) looked(t *testing.T) {
	t.Helper()
	r.await(t, "app", func(d control.DeploymentView) error {
		if d.Pending != nil {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

func TestAnEditConsentsAndACommitDoesNot(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1"), "other/cm.yaml": configMap("b", "1")})
	r.deploy(t, "app", "app")
	last := r.given(t, paris, fleet.Version{})
	steps := []struct {
		reason string
		do     func()
		want   bool
	}{
		{"a commit", func() { r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")}) }, false},
		{"another path", func() { r.edit(t, r.source("other", "")) }, true},
		{"a commit after the edit", func() { r.push(t, map[string]string{"other/cm.yaml": configMap("b", "2")}) }, false},
		{"another namespace", func() { r.edit(t, control.UpdateDeployment{Namespace: ptr("shop")}) }, true},
		{"a part of the policy that deletes nothing", func() {
			r.edit(t, control.UpdateDeployment{Policy: &fleet.Policy{Prune: true, Drift: fleet.DriftReport}})
		}, false},
		{"a policy that prunes no longer", func() { r.edit(t, control.UpdateDeployment{Policy: &fleet.Policy{}}) }, false},
		{"one that prunes again", func() { r.edit(t, control.UpdateDeployment{Policy: &fleet.Policy{Prune: true}}) }, true},
		{"a commit after an edit that led to the same objects", func() {
			r.edit(t, r.source("other", "main"))
			r.looked(t)
			r.push(t, map[string]string{"other/cm.yaml": configMap("b", "3")})
		}, false},
		{"an edit that had to wait for the end of a suspension", func() {
			_, err := r.SuspendDeployment(t.Context(), admin, "default", "app", "x")
			ok(t, err)
			r.edit(t, r.source("app", "main"))
			r.looked(t)
			_, err = r.ResumeDeployment(t.Context(), admin, "default", "app")
			ok(t, err)
		}, false},
		{"a rollback", func() {
			_, err := r.Rollback(t.Context(), admin, "default", "app", control.Rollback{Revision: 1})
			ok(t, err)
		}, false},
		{"the release of a pin under which it was edited", func() {
			r.edit(t, r.source("other", "main"))
			r.looked(t)
			ok(t, release(t, r))
		}, false},
	}
	for _, step := range steps {
		step.do()
		got := r.given(t, paris, last.Version)
		if got.Consent != step.want {
			t.Fatalf("%s: consent is %v: %+v", step.reason, got.Consent, got)
		}
		last = got
		r.looked(t) // so that no step finishes in the next one
	}
}

// An edit is a consent to the current content of Git, and not to the commit that fixes it days later.
func TestAnEditIsNoConsentToALaterCommit(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1"), "other/cm.yaml": "kind: {"})
	r.deploy(t, "app", "app")
	last := r.given(t, paris, fleet.Version{})
	r.edit(t, r.source("other", ""))
	r.await(t, "app", func(d control.DeploymentView) error {
		if d.Pending == nil || d.Pending.Problem == "" {
			return fmt.Errorf("nothing is wrong yet")
		}
		return nil
	})
	if got := r.target(t, paris).Desired; got.Version != last.Version {
		t.Fatalf("it was given %+v", got)
	}
	r.push(t, map[string]string{"other/cm.yaml": configMap("b", "1")})
	if got := r.given(t, paris, last.Version); got.Consent {
		t.Errorf("got %+v", got)
	}
}

func TestAPolicyIsCheckedAndStoredInOneForm(t *testing.T) {
	t.Parallel()
	bad := map[string]fleet.Policy{
		"policy.drift":              {Drift: "fix"},
		"policy.propagation":        {Propagation: "background"},
		"policy.pruneTimeout":       {PruneTimeout: -time.Second},
		"policy.readyTimeout":       {ReadyTimeout: time.Second + time.Microsecond},
		"policy.pruneLimit.objects": {PruneLimit: fleet.PruneLimit{Objects: -1}},
		"policy.pruneLimit.percent": {PruneLimit: fleet.PruneLimit{Percent: 101}},
		"policy.serviceAccount":     {ServiceAccount: "deployer"},
		"policy.ignore":             {Ignore: []string{"*:/spec/\n"}},
	}
	d := newFixture(t)
	d.deploy(t, "default", "web", "default")
	quiet := d.lastChange(t)
	for field, policy := range bad {
		_, err := d.UpdateDeployment(d.ctx, root, "default", "web", control.UpdateDeployment{Policy: &policy}, control.Match{})
		wantInvalid(t, err, field)
		_, err = d.CreateDeployment(d.ctx, root, "default", control.CreateDeployment{
			Name: "new", Source: fleet.Source{RepoURL: "https://git.example.com/apps.git"}, Policy: &policy,
		})
		wantInvalid(t, err, field)
	}
	_, err := d.UpdateDeployment(d.ctx, root, "default", "web", control.UpdateDeployment{Policy: &fleet.Policy{
		Prune: true, Drift: fleet.DriftCorrect, Propagation: fleet.PropagationBackground, PruneLimit: fleet.DefaultPruneLimit,
	}}, control.Match{})
	ok(t, err)
	if d.lastChange(t) != quiet {
		t.Error("defaults in words, or what is wrong, changed something")
	}
}
