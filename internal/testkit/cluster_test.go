package testkit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/testkit"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const limit = time.Minute

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: %s
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {%s}
    spec:
      containers: [{name: web, image: "example.invalid/web:1"}]
`

func TestDeploymentBecomesAvailable(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	ns := c.Namespace(t)
	c.Apply(t, fmt.Sprintf(deployment, ns, ""))
	c.Kubectl(t, "-n", ns, "wait", "deploy/web", "--for=condition=Available", "--timeout=60s")
}

func TestNeverReadyPodsStayPending(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	ns := c.Namespace(t)
	c.Apply(t, fmt.Sprintf(deployment, ns, `simulate.kedge.dev/never-ready: ""`))
	// Scheduled, so that kwok has seen them.
	c.Kubectl(t, "-n", ns, "wait", "pod", "-l", "app=web", "--for=condition=PodScheduled", "--timeout=60s")
	if phases := c.Kubectl(t, "-n", ns, "get", "pods", "-o", "jsonpath={.items[*].status.phase}"); strings.Contains(phases, "Running") {
		t.Errorf("phases are %q, want none that is Running", phases)
	}
}

func TestDeletionIsCarriedOut(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	ns := c.Namespace(t)
	c.Apply(t, fmt.Sprintf(deployment, ns, ""))
	c.Kubectl(t, "-n", ns, "wait", "deploy/web", "--for=condition=Available", "--timeout=60s")

	t.Log("the garbage collector removes dependents of a deleted object")
	c.Kubectl(t, "-n", ns, "delete", "deploy", "web")
	testkit.Eventually(t, limit, func(context.Context) error {
		if left := c.Kubectl(t, "-n", ns, "get", "replicasets,pods", "-o", "name"); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})

	t.Log("the namespace controller empties and removes a namespace")
	c.Kubectl(t, "create", "namespace", ns+"-gone")
	c.Kubectl(t, "-n", ns+"-gone", "create", "configmap", "x")
	c.Kubectl(t, "delete", "namespace", ns+"-gone", "--timeout=60s")
}

func TestServiceAccountIsBoundByRBAC(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	ns := c.Namespace(t)
	c.Kubectl(t, "-n", ns, "create", "serviceaccount", "reader")
	client, err := dynamic.NewForConfig(c.ServiceAccountConfig(t, ns, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	list := func(ctx context.Context) error {
		_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
			Namespace(ns).List(ctx, metav1.ListOptions{})
		return err
	}
	if err := list(t.Context()); !apierrors.IsForbidden(err) {
		t.Fatalf("without a Role: got %v, want Forbidden", err)
	}
	c.Kubectl(t, "-n", ns, "create", "role", "reader", "--verb=list", "--resource=configmaps")
	c.Kubectl(t, "-n", ns, "create", "rolebinding", "reader", "--role=reader", "--serviceaccount="+ns+":reader")
	testkit.Eventually(t, limit, list)
}

func TestRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	c := testkit.SharedCluster(t)
	ns := c.Namespace(t)
	c.Kubectl(t, "-n", ns, "create", "configmap", "seen")
	var writes []string
	for _, r := range c.Requests(t) {
		if r.Namespace == ns && r.Write() && r.User == "admin" {
			writes = append(writes, r.Verb+" "+r.Resource+"/"+r.Name)
		}
	}
	if got, want := strings.Join(writes, ", "), "create configmaps/seen"; !strings.Contains(got, want) {
		t.Errorf("writes are %q, want %q among them", got, want)
	}
}
