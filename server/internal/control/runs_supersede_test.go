package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

// A rollback does not wait for a sync that waits for an agent, nor for one after it.
//
// covers: A16 (a rollback goes before syncs), A17
func TestARollbackSupersedesTheSyncsBeforeIt(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	paris := r.enroll(t, "paris") // it never connects
	first := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(first))
	second := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})
	r.await(t, "app", atCommit(second))
	running := r.awaitRun(t, r.sync(t, "").ID, inPhase(fleet.RunRunning))
	waiting := r.sync(t, "")
	waits, _, err := r.RunWaiting(t.Context(), admin, "default", waiting.ID)
	ok(t, err)
	if len(waits) != 1 || !strings.HasSuffix(waits[0].Message, "kedge run terminate "+string(running.ID)) {
		t.Errorf("the second sync waits for %+v", waits)
	}
	rollback, err := r.Rollback(t.Context(), admin, "default", "app", control.Rollback{Commit: first[:12]})
	ok(t, err)
	if got := r.target(t, paris).Desired.Commit; rollback.Phase != fleet.RunRunning || got != first {
		t.Errorf("the rollback is %s, and the target has %s", rollback.Phase, got)
	}
	for _, sync := range []fleet.SyncRun{running, waiting} {
		got, err := r.Run(t.Context(), admin, "default", sync.ID)
		ok(t, err)
		if got.Phase != fleet.RunTerminated || !strings.Contains(got.Message, fmt.Sprintf("rollback run %d", rollback.Seq)) {
			t.Errorf("sync run %d is %s: %q", got.Seq, got.Phase, got.Message)
		}
		operation, err := r.Operation(t.Context(), admin, "default", got.OperationID)
		ok(t, err)
		if operation.State != fleet.OperationFailed || operation.Message != got.Message {
			t.Errorf("its operation is %+v", operation)
		}
	}
}

// An agent that never connected may never do so.
func TestARunDoesNotWaitForAgentsThatHaveNeverConnected(t *testing.T) {
	t.Parallel()
	d, paris, rome, _ := staged(t)
	atlantis := d.enroll(t, "default", "atlantis", map[string]string{"in": "yes"})
	run := d.rollback(t, 1)
	d.say(t, paris, "app", fleet.SyncSynced, "")
	if got := d.run(t, run.ID); got.Phase != fleet.RunRunning {
		t.Fatalf("it does not wait for rome: %+v", got)
	}
	d.say(t, rome, "app", fleet.SyncSynced, "")
	if got := d.run(t, run.ID); got.Phase != fleet.RunSucceeded || got.Message != "not waiting for 1 agent that has never connected" {
		t.Errorf("after all that have connected have answered it is %s: %q", got.Phase, got.Message)
	}
	if got := d.targets(t, "default", "app")[atlantis.Name].Desired.Digest; got == "" {
		t.Error("the agent that has never connected was given nothing")
	}
}
