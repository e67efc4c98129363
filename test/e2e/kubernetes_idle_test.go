package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

const (
	idleResources = 1000
	idleTime      = 60 * time.Second
	// idleMemory is the resident memory of the server for one idle resource, with its deployment.
	idleMemory = 60 << 10
)

// residentMemory reads the resident memory of a process in bytes.
func residentMemory(tb testing.TB, pid int) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				tb.Fatal(err)
			}
			return n << 10
		}
	}
	tb.Fatal("the process has no resident memory")
	return 0
}

// metric reads a metric of the server.
func (c *crs) metric(tb testing.TB, name string) string {
	tb.Helper()
	response, err := http.Get(c.Health + "/metrics")
	if err != nil {
		tb.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	tb.Fatalf("the server has no metric %s", name)
	return ""
}

// countRequests logs the requests of the server at the API server.
func (c *crs) countRequests(tb testing.TB) {
	tb.Helper()
	counts := map[string]int{}
	for _, r := range c.cluster.Requests(tb) {
		if r.User == "system:serviceaccount:kedge-system:kedge-server" && r.Stage == "ResponseComplete" {
			counts[fmt.Sprint(r.Verb, " ", r.Resource, "/", r.Sub, " ", r.Code)]++
		}
	}
	tb.Logf("requests of the server: %v", counts)
}

// covers: K5 (idle resources cause no write at the API server)
// defect: B10
func TestIdleResourcesCauseNoWrites(t *testing.T) {
	t.Parallel()
	c := startCRs(t)
	tenant := &crTenant{crs: c, ns: c.cluster.Namespace(t), target: c.cluster.Namespace(t)}
	tenant.cluster.Apply(t, registration(tenant.ns, randomToken())) // no agent connects
	tenant.awaitEnvironment(t, v1alpha1.ConditionReady, metav1.ConditionTrue)
	tenant.repo.push(t, map[string]string{"app/cm.yaml": configMap(tenant.target, "cm-app", "1")})
	before := residentMemory(t, c.PID())
	t.Logf("live heap: %s", c.metric(t, "go_memstats_next_gc_bytes"))
	at := time.Now()
	var work sync.WaitGroup
	for worker := range 4 {
		work.Go(func() {
			for i := worker; i < idleResources; i += 4 {
				tenant.create(t, tenant.deployment(fmt.Sprint("app-", i), "app"))
			}
		})
	}
	work.Wait()
	created := time.Since(at)
	testkit.Eventually(t, 5*time.Minute, func(ctx context.Context) error {
		var list v1alpha1.GitOpsDeploymentList
		if err := tenant.List(ctx, &list, client.InNamespace(tenant.ns)); err != nil {
			return err
		}
		settled := 0
		for _, d := range list.Items {
			if d.Status.ReconciledState != nil && len(d.Status.History) == 1 {
				settled++
			}
		}
		if settled < idleResources {
			return fmt.Errorf("%d of %d are settled", settled, idleResources)
		}
		return nil
	})
	t.Logf("%d resources created in %v, settled in %v", idleResources, created.Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
	c.countRequests(t)
	first := c.awaitQuiet(t)
	<-time.After(idleTime)
	for _, r := range c.serverRequests(t)[first:] {
		t.Errorf("while idle, the server sends %s %s", r.Verb, r.URI)
	}
	t.Logf("live heap: %s", c.metric(t, "go_memstats_next_gc_bytes"))
	each := (residentMemory(t, c.PID()) - before) / idleResources
	t.Logf("%d bytes of resident memory for each idle resource", each)
	if each > idleMemory {
		t.Errorf("an idle resource takes %d bytes", each)
	}
}

// serverRequests are the requests of the server, other than watches.
func (c *crs) serverRequests(tb testing.TB) []testkit.Request {
	tb.Helper()
	return slices.DeleteFunc(c.cluster.Requests(tb), func(r testkit.Request) bool {
		return r.User != "system:serviceaccount:kedge-system:kedge-server" || !(r.Write() || r.Verb == "get" || r.Verb == "list")
	})
}

// awaitQuiet waits until the last statuses are written, and returns the number of requests up to then.
func (c *crs) awaitQuiet(tb testing.TB) int {
	tb.Helper()
	last := -1
	for range 24 {
		n := len(c.serverRequests(tb))
		if n == last {
			return n
		}
		last = n
		<-time.After(5 * time.Second)
	}
	tb.Fatal("the server does not become idle")
	return 0
}
