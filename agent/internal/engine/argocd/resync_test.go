package argocd_test

import (
	"testing"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	argocdtest "github.com/kedge-dev/kedge/internal/testkit/argocd"
)

// A requested sync of the commit that a target already has is Synced only after Argo CD has done it, and not because of a
// status from before.
// covers: E7, E6
func TestSyncOfTheSameCommitIsDoneByTheRunningArgoCD(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	w := newWorld(t, argocdtest.Start(t, argocdtest.Config{Cluster: c, Namespace: c.Namespace(t)}))
	w.policy.Drift = fleet.DriftReport
	value := func() string {
		return c.Kubectl(t, "-n", w.ns, "get", "configmap", "a", "-o", "jsonpath={.data.text}")
	}
	operation := func() string {
		return c.Kubectl(t, "-n", w.argo.Namespace(), "get", "application", w.app(), "-o", "jsonpath={.status.operationState.operation.info[0].value}")
	}
	is := func(state fleet.SyncState) func(engine.Status) bool {
		return func(s engine.Status) bool { return s.Observed.Sync == state }
	}
	e := w.start()
	commit := w.push(map[string]string{"a.yaml": configMap("a", "1")})
	w.sync(e, commit)
	c.Kubectl(t, "-n", w.ns, "patch", "configmap", "a", "--type=merge", "-p", `{"data":{"text":"drifted"}}`)
	w.await("OutOfSync", is(fleet.SyncOutOfSync))

	w.argo.Stop(t, argocdtest.Controller)
	e.Set(w.desired(commit))
	w.await("Syncing", is(fleet.SyncSyncing))
	if got := value(); got != "drifted" {
		t.Fatalf("the object has %q while Argo CD does not run", got)
	}
	e.stop() // the request survives the agent
	e = w.start()
	d := w.desired(commit)
	w.versions--
	d.State.Generation = w.versions
	e.Set(d)
	w.argo.Start(t, argocdtest.Controller)
	w.await("Synced", is(fleet.SyncSynced))
	if got := value() + " by " + operation(); got != "1 by sync 1/2" {
		t.Errorf("the object has %s", got)
	}
	// A version that changes more than its number, such as a confirmation, runs no hooks again.
	d = w.desired(commit)
	d.State.Confirmed = []string{"ConfigMap other/gone"}
	e.Set(d)
	w.await("Synced", is(fleet.SyncSynced))
	if got := operation(); got != "sync 1/2" {
		t.Errorf("the confirmation started the operation %q", got)
	}
}
