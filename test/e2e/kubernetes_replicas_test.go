package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// reconciled is ten times the time in which another replica takes over the resources of a killed one.
const reconciled = 60 * time.Second

// One replica reconciles, and another one takes over.
//
// covers: O7
// defect: B13
func TestAnotherReplicaTakesOverTheResources(t *testing.T) {
	t.Parallel()
	c := newCRs(t)
	r := startServerGroup(t, 3, "--kubeconfig", serverKubeconfig(t, c.cluster))
	tenant := &crTenant{crs: c, ns: c.cluster.Namespace(t), target: c.cluster.Namespace(t)}
	tenant.cluster.Apply(t, registration(tenant.ns, randomToken()))
	tenant.awaitEnvironment(t, v1alpha1.ConditionReady, metav1.ConditionTrue)
	for round := range 2 {
		d := tenant.deployment(fmt.Sprint("app-", round), "app")
		leader := r.reconciling(t)
		r.Servers[leader].Kill()
		at := time.Now()
		tenant.create(t, d)
		testkit.Eventually(t, reconciled, func(ctx context.Context) error {
			if err := tenant.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			return hasCondition(d.Status.Conditions, v1alpha1.ConditionAccepted, metav1.ConditionTrue, "")
		})
		t.Logf("replica %d was killed: another one reconciles after %v", leader, time.Since(at).Round(time.Millisecond))
		r.restart(t, leader)
	}
}

// reconciling returns the replica that took the lead last.
func (r *serverGroup) reconciling(tb testing.TB) int {
	tb.Helper()
	leader, newest := -1, ""
	for i, s := range r.Servers {
		for _, line := range logLines(tb, s.Process) {
			if at, _ := line["time"].(string); line["msg"] == "processing custom resources" && at > newest {
				leader, newest = i, at
			}
		}
	}
	if leader < 0 {
		tb.Fatal("no replica reconciles")
	}
	return leader
}
