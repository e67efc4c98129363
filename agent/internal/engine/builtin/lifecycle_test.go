package builtin_test

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/agent/internal/engine/builtin"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// statuses passes statuses on.
type statuses chan engine.Status

func (s statuses) Status(status engine.Status)       { s <- status }
func (s statuses) Event(fleet.TargetID, fleet.Event) {}

func TestNewNeedsItsParts(t *testing.T) {
	t.Parallel()
	if _, err := builtin.New(builtin.Config{Namespace: "ns", REST: &rest.Config{}}); err == nil {
		t.Error("an engine without a reporter was made")
	}
}

func TestRunNeedsRecover(t *testing.T) {
	t.Parallel()
	e, err := builtin.New(builtin.Config{Namespace: "ns", REST: &rest.Config{}, Reporter: make(statuses)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err == nil {
		t.Error("an engine runs that does not know what it holds")
	}
}

func TestRecoverSaysWhenTheClusterCannotBeReached(t *testing.T) {
	t.Parallel()
	e, err := builtin.New(builtin.Config{Namespace: "ns", REST: &rest.Config{Host: "http://127.0.0.1:1"}, Reporter: make(statuses)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Recover(t.Context()); err == nil {
		t.Error("an unreachable cluster was taken for an empty one")
	}
}

// The agent builds its engine before the server has told it who it is.
func TestTargetsWaitForConfigure(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	ns := c.Namespace(t)
	out := make(statuses, 100)
	e, err := builtin.New(builtin.Config{Namespace: c.Namespace(t), REST: c.RESTConfig(), Reporter: out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Parse("a.yaml", []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := manifest.NewSet(objects, ns)
	if err != nil {
		t.Fatal(err)
	}
	e.Set(engine.Desired{Target: "tgt-a", Tenant: "t", Deployment: "d", Objects: set, State: fleet.Desired{
		Version: fleet.Version{Epoch: 1, Generation: 1}, Digest: set.Digest(), Namespace: ns,
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()

	agent := fleet.NewAgentID()
	e.Configure(agent, fleet.ScopeNamespaced, []string{"elsewhere"}, fleet.KindFilter{})
	await(t, out, fleet.SyncFailed)
	e.Configure(agent, fleet.ScopeNamespaced, []string{ns}, fleet.KindFilter{})
	await(t, out, fleet.SyncSynced)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, out statuses, want fleet.SyncState) {
	t.Helper()
	for {
		select {
		case s := <-out:
			if s.Observed.Sync == want {
				return
			}
		case <-t.Context().Done():
			t.Fatalf("the test ended before %s", want)
		}
	}
}
