package e2e_test

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/api/v1alpha1"
)

// covers: K9
// defect: B15
func TestTenTenantsInParallel(t *testing.T) {
	t.Parallel()
	const n = 10
	c := startCRs(t)
	base := c.tenant(t)
	tenants := make([]*crTenant, n)
	for i := range tenants {
		tenants[i] = c.tenant(t)
		c.repo.push(t, map[string]string{
			fmt.Sprint("one-", i, "/cm.yaml"): configMap(tenants[i].target, fmt.Sprint("cm-", i), "one"),
			fmt.Sprint("two-", i, "/cm.yaml"): configMap(tenants[i].target, fmt.Sprint("cm-two-", i), "two"),
		})
	}
	var work sync.WaitGroup
	for i, tenant := range tenants {
		work.Go(func() {
			d := tenant.deployment("app", fmt.Sprint("one-", i))
			tenant.create(t, d)
			tenant.awaitSynced(t, d, "")
			tenant.has(t, fmt.Sprintf("map[cm-%d:one]", i))
			edit(t, tenant, d, func(d *v1alpha1.GitOpsDeployment) { d.Spec.Source.Path = fmt.Sprint("two-", i) })
			tenant.awaitSynced(t, d, "")
			tenant.has(t, fmt.Sprintf("map[cm-two-%d:two]", i))
			var list v1alpha1.GitOpsDeploymentList
			if err := tenant.List(t.Context(), &list); err != nil {
				t.Error(err)
			}
			for _, other := range list.Items {
				for _, r := range other.Status.Resources {
					if other.Namespace != tenant.ns && r.Namespace == tenant.target {
						t.Errorf("%s shows an object of %s", other.Namespace, tenant.ns)
					}
				}
			}
			tenant.remove(t, d)
		})
	}
	work.Wait()
	base.awaitEnvironment(t, v1alpha1.ConditionReady, metav1.ConditionTrue)
}
