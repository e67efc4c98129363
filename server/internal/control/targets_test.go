package control_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/rollout"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// target returns the one target of an agent that there is something to say about.
func (r *replica) target(t *testing.T, agent fleet.Agent) fleet.Target {
	t.Helper()
	targets, err := r.TargetsOf(t.Context(), agent, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(targets) != 1 {
		t.Fatalf("agent %s has %d targets, not one", agent.Name, len(targets))
	}
	return targets[0].Target
}

// report reports that an agent has applied the desired state of a target.
func (r *replica) report(t *testing.T, agent fleet.Agent, target fleet.Target, sync fleet.SyncState) {
	t.Helper()
	err := r.Report(t.Context(), []rollout.AgentReports{{Agent: agent, Reports: []store.Report{{
		Target: target.ID, Full: true, Observed: fleet.Observed{
			Version: target.Desired.Version, Digest: target.Desired.Digest, Sync: sync, Health: fleet.HealthCurrent, AsOf: time.Now(),
		},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *replica) deployed(t *testing.T, agent fleet.Agent) fleet.Target {
	t.Helper()
	commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(commit))
	return r.target(t, agent)
}

func TestAgentEnrolledLaterGetsWhatItsEnvironmentHolds(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	first := r.deployed(t, r.enroll(t, "paris"))
	late := r.target(t, r.enroll(t, "rome"))
	if late.Desired.Digest != first.Desired.Digest || late.Desired.Generation != 1 {
		t.Fatalf("got %+v", late.Desired)
	}
}

func TestDeletedDeploymentIsATombstoneUntilItsAgentHasCarriedItOut(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	before := r.deployed(t, paris)
	r.report(t, paris, before, fleet.SyncSynced)
	if _, err := r.DeleteDeployment(t.Context(), admin, "default", "app", control.Match{}); err != nil {
		t.Fatal(err)
	}
	tombstone := r.target(t, paris)
	if !tombstone.Desired.Tombstone || tombstone.Desired.Version.Compare(before.Desired.Version) <= 0 {
		t.Fatalf("got %+v", tombstone.Desired)
	}
	// A late report of the old version does not count as the executed tombstone.
	r.report(t, paris, before, fleet.SyncDeleted)
	if left := r.list(t); len(left) != 1 || left[0].DeletedAt.IsZero() {
		t.Fatalf("the deployment went with an old report: %+v", left)
	}
	r.report(t, paris, tombstone, fleet.SyncDeleted)
	if left := r.list(t); len(left) != 0 {
		t.Fatalf("left: %+v", left)
	}
}

func (r *replica) list(t *testing.T) []control.DeploymentView {
	t.Helper()
	list, err := r.Deployments(t.Context(), admin, "default", control.ListDeployments{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestNameOfADeletedDeploymentIsFreeAtOnce(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	r.deployed(t, paris)
	for range 3 {
		if _, err := r.DeleteDeployment(t.Context(), admin, "default", "app", control.Match{}); err != nil {
			t.Fatal(err)
		}
		r.deploy(t, "app", "app")
	}
	if _, err := r.CreateDeployment(t.Context(), admin, "default", control.CreateDeployment{
		Name: "app", Source: fleet.Source{RepoURL: r.url},
	}); !errors.Is(err, store.ErrExists) {
		t.Fatalf("a taken name gives %v", err)
	}
}

// Invariant 4: a server whose database is older than the cluster neither reverts nor prunes.
func TestAgentAheadOfTheServerIsRewoundThenContinuedWithoutPruning(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	target := r.deployed(t, paris)
	ahead := fleet.Version{Epoch: 1, Generation: 41}
	if err := r.AgentAhead(t.Context(), paris, target.ID, ahead); err != nil {
		t.Fatal(err)
	}
	d := r.await(t, "app", func(d control.DeploymentView) error {
		if got := d.Targets[0].Desired.Generation; got != 42 {
			return fmt.Errorf("generation %d", got)
		}
		return nil
	})
	if desired := d.Targets[0].Desired; !desired.HoldPrune || desired.Digest != target.Desired.Digest || desired.Tombstone {
		t.Fatalf("got %+v", desired)
	}
}

func TestAgentAheadWaitsForGit(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	target := r.deployed(t, paris)
	r.git.SetDown(true)
	if err := r.AgentAhead(t.Context(), paris, target.ID, fleet.Version{Epoch: 1, Generation: 41}); err != nil {
		t.Fatal(err)
	}
	d := r.await(t, "app", func(d control.DeploymentView) error {
		if d.Sync != fleet.SyncFailed {
			return fmt.Errorf("sync %s", d.Sync)
		}
		return nil
	})
	if got := d.Targets[0]; got.View.Sync != fleet.SyncRewound || !cmp.Equal(got.Desired, target.Desired) {
		t.Fatalf("something was sent before Git was read: %+v", got.Desired)
	}
}

// The agent may skip the state that held its prune: the next one must hold it too.
func TestHeldPruneStaysHeldUntilTheAgentHasTakenItUp(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	target := r.deployed(t, paris)
	if err := r.AgentAhead(t.Context(), paris, target.ID, fleet.Version{Epoch: 1, Generation: 41}); err != nil {
		t.Fatal(err)
	}
	r.await(t, "app", func(d control.DeploymentView) error {
		if d.Targets[0].Desired.Generation != 42 {
			return errors.New("not continued yet")
		}
		return nil
	})
	next := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	if d := r.await(t, "app", atCommit(next)); !d.Targets[0].Desired.HoldPrune {
		t.Fatalf("the second commit releases the prune: %+v", d.Targets[0].Desired)
	}
	// An agent that has failed may not have stored its held objects.
	r.report(t, paris, r.target(t, paris), fleet.SyncFailed)
	after := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2b")})
	if d := r.await(t, "app", atCommit(after)); !d.Targets[0].Desired.HoldPrune {
		t.Fatalf("a failure releases the prune: %+v", d.Targets[0].Desired)
	}
	taken := r.target(t, paris)
	r.report(t, paris, taken, fleet.SyncOutOfSync)
	last := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "3")})
	if d := r.await(t, "app", atCommit(last)); d.Targets[0].Desired.HoldPrune {
		t.Fatalf("the prune is held for ever: %+v", d.Targets[0].Desired)
	}
}

func TestTombstoneOfARewoundTargetBecomesNewerThanWhatTheAgentHas(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	target := r.deployed(t, paris)
	if _, err := r.DeleteDeployment(t.Context(), admin, "default", "app", control.Match{}); err != nil {
		t.Fatal(err)
	}
	if err := r.AgentAhead(t.Context(), paris, target.ID, fleet.Version{Epoch: 1, Generation: 41}); err != nil {
		t.Fatal(err)
	}
	if got := r.target(t, paris).Desired; !got.Tombstone || got.Generation != 42 {
		t.Fatalf("the agent would never get the deletion: %+v", got)
	}
}

// Two histories with one version: nothing is sent before Git is read, and nothing is pruned.
func TestAgentWithAnotherBundleOfTheSameVersionIsRewound(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris")
	target := r.deployed(t, paris)
	if err := r.AgentAhead(t.Context(), paris, target.ID, target.Desired.Version); err != nil {
		t.Fatal(err)
	}
	r.await(t, "app", func(d control.DeploymentView) error {
		if got := d.Targets[0].Desired; got.Generation != target.Desired.Generation+1 || !got.HoldPrune {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
}

func TestReportsOfForeignTargetsAreIgnored(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris, rome := r.enroll(t, "paris"), r.enroll(t, "rome")
	target := r.deployed(t, paris)
	r.report(t, rome, target, fleet.SyncDeleted)
	if got := r.target(t, paris); got.Observed.Sync != "" {
		t.Fatalf("another agent's report was taken: %+v", got.Observed)
	}
}

func TestBadInputNamesItsFieldAndStoresNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	good := control.CreateDeployment{Name: "app", Source: fleet.Source{RepoURL: r.url, Path: "app"}}
	cases := map[string]struct {
		change func(*control.CreateDeployment)
		field  string
	}{
		"Name":        {func(d *control.CreateDeployment) { d.Name = "App" }, "name"},
		"Namespace":   {func(d *control.CreateDeployment) { d.Namespace = "a/b" }, "namespace"},
		"NoURL":       {func(d *control.CreateDeployment) { d.Source.RepoURL = " " }, "source.repoURL"},
		"Transport":   {func(d *control.CreateDeployment) { d.Source.RepoURL = "ext::sh -c id" }, "source.repoURL"},
		"Escape":      {func(d *control.CreateDeployment) { d.Source.Path = "a/../../b" }, "source.path"},
		"Revision":    {func(d *control.CreateDeployment) { d.Source.Revision = "--upload-pack=id" }, "source.revision"},
		"Ahead":       {func(d *control.CreateDeployment) { d.Source.Revision = "a..b" }, "source.revision"},
		"Environment": {func(d *control.CreateDeployment) { d.Environment = "nowhere" }, "environment"},
		"Glob":        {func(d *control.CreateDeployment) { d.Source.Globs = []string{""} }, "source.globs"},
		"Label":       {func(d *control.CreateDeployment) { d.Labels = map[string]string{"a b": ""} }, "labels"},
		"Variable":    {func(d *control.CreateDeployment) { d.Source.Variables = map[string]string{"a-b": ""} }, "source.variables"},
		"Value":       {func(d *control.CreateDeployment) { d.Source.Variables = map[string]string{"a": "{agent.id}"} }, "source.variables.a"},
		"Reference":   {func(d *control.CreateDeployment) { d.Source.Path = "a/{agent.uid}" }, "source.path"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := good
			tc.change(&req)
			_, err := r.CreateDeployment(t.Context(), admin, "default", req)
			var invalid *fleet.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != tc.field {
				t.Fatalf("got %v, want a problem with %s", err, tc.field)
			}
			if left := r.list(t); len(left) != 0 {
				t.Fatalf("stored %+v", left)
			}
		})
	}
}

func TestStrangersSeeNothing(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	nobody := auth.Principal{Name: "nobody"}
	if _, err := r.Agents(t.Context(), nobody, "default", store.AgentFilter{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("listing agents gives %v", err)
	}
	if _, err := r.EnrollAgent(t.Context(), nobody, "default", control.EnrollAgent{Name: "x"}); err == nil {
		t.Error("a caller without a role enrolled an agent")
	}
	if _, err := r.Authenticate(t.Context(), "kedge-api-wrong"); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("a wrong token gives %v", err)
	}
}
