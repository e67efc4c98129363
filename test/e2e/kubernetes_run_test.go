package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// syncRun creates a SyncRun.
func (t *crTenant) syncRun(tb testing.TB, name, deployment, revision string) *v1alpha1.SyncRun {
	tb.Helper()
	r := &v1alpha1.SyncRun{ObjectMeta: metav1.ObjectMeta{Namespace: t.ns, Name: name}, Spec: v1alpha1.SyncRunSpec{GitOpsDeploymentName: deployment, RevisionID: revision}}
	t.create(tb, r)
	return r
}

func (t *crTenant) awaitRun(tb testing.TB, r *v1alpha1.SyncRun, phase string) {
	tb.Helper()
	t.await(tb, r.Name, r, func() error {
		if r.Status.Phase != phase {
			return fmt.Errorf("phase %q, want %q: %+v", r.Status.Phase, phase, r.Status)
		}
		return nil
	})
}

// defect: B12
func syncRuns(t *testing.T, tenant *crTenant) {
	one := tenant.repo.push(t, map[string]string{"run/cm.yaml": configMap(tenant.target, "cm-run", "1")})
	two := tenant.repo.push(t, map[string]string{"run/cm.yaml": configMap(tenant.target, "cm-run", "2")})

	// Created before its deployment, it waits; the second one waits for it although its name sorts first.
	first := tenant.syncRun(t, "b-first", "run", one)
	tenant.await(t, first.Name, first, func() error {
		return hasCondition(first.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "DeploymentNotFound")
	})
	second := tenant.syncRun(t, "a-second", "run", two)
	tenant.await(t, second.Name, second, func() error {
		return hasCondition(second.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "WaitsForTurn")
	})
	d := tenant.deployment("run", "run")
	d.Spec.Type = "manual"
	tenant.create(t, d)
	tenant.awaitRun(t, first, "Succeeded")
	tenant.awaitRun(t, second, "Succeeded")
	if first.Status.Commit != one || second.Status.Commit != two || second.Status.FinishedAt.Before(first.Status.FinishedAt) {
		t.Errorf("the runs ended as %+v and %+v", first.Status, second.Status)
	}
	if err := hasCondition(second.Status.Conditions, v1alpha1.ConditionComplete, metav1.ConditionTrue, ""); err != nil {
		t.Error(err)
	}
	tenant.has(t, "map[cm-run:2]")
	tenant.await(t, "run", d, func() error {
		if d.Status.OperationState == nil || d.Status.OperationState.Phase != "Succeeded" || d.Status.OperationState.Revision != two || len(d.Status.History) < 2 {
			return fmt.Errorf("operationState %+v, history %+v", d.Status.OperationState, d.Status.History)
		}
		return nil
	})

	second.Spec.RevisionID = one
	if err := tenant.Update(t.Context(), second); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("an edit gets %v", err)
	}
	// Deleted after its end: nothing happens.
	if err := tenant.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	tenant.awaitGone(t, second.Name, second)

	// An invalid one does not block others.
	bad := tenant.syncRun(t, "bad", "run", "-x")
	tenant.await(t, bad.Name, bad, func() error {
		return hasCondition(bad.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "InvalidSpec")
	})

	// Terminated by a deletion.
	if err := tenant.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	third := tenant.syncRun(t, "third", "run", one)
	tenant.awaitRun(t, third, "Running")
	if err := tenant.Delete(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	tenant.awaitGone(t, third.Name, third)
	testkit.Eventually(t, patience, func(context.Context) error {
		if err := tenant.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if d.Status.OperationState.Phase != "Terminated" {
			return fmt.Errorf("operationState %+v", d.Status.OperationState)
		}
		return nil
	})
	tenant.agent.run(tenant.owner)
	fourth := tenant.syncRun(t, "fourth", "run", two)
	tenant.awaitRun(t, fourth, "Succeeded")
	tenant.has(t, "map[cm-run:2]")

	// A restored database does not run it a second time.
	backup := tenant.backup(t)
	fifth := tenant.syncRun(t, "fifth", "run", one)
	tenant.awaitRun(t, fifth, "Succeeded")
	tenant.has(t, "map[cm-run:1]")
	tenant.stopServer(t)
	tenant.restore(t, backup)
	tenant.startAgain(t)
	sixth := tenant.syncRun(t, "sixth", "run", two)
	tenant.awaitRun(t, sixth, "Succeeded")
	tenant.has(t, "map[cm-run:2]")
	if err := tenant.Get(t.Context(), client.ObjectKeyFromObject(fifth), fifth); err != nil || fifth.Status.Phase != "Succeeded" {
		t.Errorf("the run that the database does not have is %+v, %v", fifth.Status, err)
	}
	tenant.remove(t, d)
}
