package e2e_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// An agent that runs with another engine than it is enrolled with applies and deletes nothing, and acknowledges no deletion.
// covers: E1, A6
func TestAgentWithAnotherEngineChangesNothing(t *testing.T) {
	t.Parallel()
	c := startCRs(t)
	tenant := c.tenant(t)
	changed, deleted := tenant.deploy(t, "changed"), tenant.deploy(t, "deleted")
	if err := tenant.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	cmd := tenant.agent.pod.Command(context.WithoutCancel(t.Context()))
	cmd.Args = append(cmd.Args, "--argocd-namespace=argocd")
	other, err := rig.Start("kedge-agent with Argo CD", cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	endWithTest(t, other)
	tenant.awaitWarning(t, true)
	mark := len(tenant.deleted(t))
	commit := c.repo.push(t, map[string]string{"changed/cm.yaml": configMap(tenant.target, "cm-new", "2")})
	edit(t, tenant, changed, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.TargetRevision = commit })
	if err := tenant.Delete(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	tenant.awaitGone(t, deleted.Name, deleted) // it has no finalizer: the deletion is recorded
	tenant.has(t, "map[cm-changed:1 cm-deleted:1]")

	if err := other.Stop(); err != nil {
		t.Fatal(err)
	}
	if n := len(tenant.deleted(t)); n != mark {
		t.Errorf("the agent deleted %d objects", n-mark)
	}
	tenant.agent.run(t)
	tenant.awaitWarning(t, false)
	tenant.awaitSynced(t, changed, commit)
	tenant.has(t, "map[cm-new:2]")
}

// awaitWarning waits until the agent has the warning EngineMismatch, or has it not and is connected.
func (t *crTenant) awaitWarning(tb testing.TB, want bool) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		var v apiv1.Agent
		if err := t.rest().Call(ctx, "GET", t.rest().path("agents/my-internal-cluster"), nil, &v); err != nil {
			return err
		}
		got := false
		for _, w := range v.Warnings {
			got = got || w.Reason == "EngineMismatch"
		}
		if got != want || !v.Connected {
			return fmt.Errorf("connected %v, warnings %+v", v.Connected, v.Warnings)
		}
		return nil
	})
}
