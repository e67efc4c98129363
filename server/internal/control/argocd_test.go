package control_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// covers: E1
func TestAgentWithArgoCDGetsTheSourceOfItsCommit(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	made, err := r.EnrollAgent(t.Context(), admin, "default", control.EnrollAgent{Name: "paris", EngineNamespace: "argocd"})
	if err != nil {
		t.Fatal(err)
	}
	builtin := r.enroll(t, "rome")
	commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1"), "other/cm.yaml": configMap("b", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(commit))
	source := func(agent fleet.Agent) (*fleet.EngineSource, fleet.Desired) {
		t.Helper()
		targets, err := r.TargetsOf(t.Context(), agent, nil)
		if err != nil || len(targets) != 1 || targets[0].SourceWaits {
			t.Fatalf("%+v, %v", targets, err)
		}
		return targets[0].Source, targets[0].Desired
	}
	if got, _ := source(builtin); got != nil {
		t.Errorf("an agent that applies by itself gets the source %+v", got)
	}
	got, desired := source(made.Agent)
	if got == nil || got.Path != "app" || got.Kind != fleet.SourcePlain || desired.Commit != commit || len(got.Unsupported) > 0 {
		t.Fatalf("source %+v at %s", got, desired.Commit)
	}
	other := ""
	if _, err := r.UpdateAgent(t.Context(), admin, "default", "paris", control.UpdateAgent{EngineNamespace: &other}, control.Match{}); !errors.As(err, new(*control.ConflictError)) {
		t.Errorf("the engine of an agent with deployments changed: %v", err)
	}
}

// covers: E1
func TestSourceOfAnotherRevisionIsNotSent(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	made, err := d.EnrollAgent(d.ctx, root, "default", control.EnrollAgent{Name: "paris", EngineNamespace: "argocd"})
	ok(t, err)
	kind := fleet.Source{RepoURL: "https://git.example.com/apps.git", Path: "app", Kind: fleet.SourcePlain, Variables: map[string]string{"a": "b"}}
	_, err = d.CreateDeployment(d.ctx, root, "default", control.CreateDeployment{Name: "app", Environment: "default", Source: kind})
	ok(t, err)
	d.render(t, "default", "app", "1")
	targets, err := d.TargetsOf(d.ctx, made.Agent, nil)
	ok(t, err)
	if len(targets) != 1 || targets[0].Source == nil || !slices.Equal(targets[0].Source.Unsupported, []string{"source.variables"}) {
		t.Fatalf("targets %+v", targets)
	}
	// The target stays at the old source revision, as after a run that was terminated.
	ok(t, d.store.Update(d.ctx, setSourceRevision(d.ctx, targets[0].Target)))
	targets, err = d.TargetsOf(d.ctx, made.Agent, nil)
	ok(t, err)
	if targets[0].Source != nil || !targets[0].SourceWaits {
		t.Errorf("a commit of an earlier source is sent with the newer source: %+v", targets[0])
	}
}

func setSourceRevision(ctx context.Context, t fleet.Target) func(store.Tx) error {
	return func(tx store.Tx) error {
		return tx.Targets().SetSourceRevision(ctx, t.TenantID, t.ID, t.Desired.SourceRevision-1)
	}
}
