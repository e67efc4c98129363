package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// covers: A16
func TestTerminatingARunStopsAnApplyThatIsUnderWay(t *testing.T) {
	t.Parallel()
	const objects, applied = 60, 10
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	a := install(t, s, cluster, apiv1.EnrollAgent{Name: "terminated"})
	proxy := a.through(t)
	a.run(t)
	a.awaitConnected(t, s)
	d := s.tenantClient(t, "default")
	policy := unlimited()
	policy.Manual = true
	first := repo.push(t, map[string]string{"app/cm.yaml": many(ns, objects, "1"), "app/old.yaml": configMap(ns, "cm-old", "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url, Path: "app"}, Policy: policy})
	d.await(t, "app", says("OutOfSync", "sync"))
	if got := values(t, cluster, ns); len(got) != 0 {
		t.Fatalf("a manual deployment was applied without a run: %v", got)
	}
	d.awaitRun(t, d.run(t, "app", "").ID, "Succeeded")
	holds(t, cluster, ns, objects+1, "1")

	second := repo.push(t, map[string]string{"app/cm.yaml": many(ns, objects, "2"), "app/old.yaml": gitserver.Deleted})
	d.look(t, repo.url)
	d.await(t, "app", func(v apiv1.Deployment) error {
		if v.Commit != second || v.Targets[0].Commit != first {
			return fmt.Errorf("the newer commit does not wait for a run")
		}
		return nil
	})
	gate := newGate(t, proxy, ns, applied)
	run := d.run(t, "app", "")
	<-gate.reached
	if got := d.awaitRun(t, run.ID, "Running"); got.Commit != second {
		t.Errorf("the run is %+v", got)
	}
	if out, err := s.kedge(t, "run", "terminate", run.ID); err != nil {
		t.Fatalf("kedge run terminate: %v\n%s", err, out)
	}
	d.awaitRun(t, run.ID, "Terminated")
	d.await(t, "app", says("OutOfSync", fmt.Sprintf("run %d was terminated", run.Seq)))
	stopped := func() {
		t.Helper()
		d.await(t, "app", func(v apiv1.Deployment) error {
			if v.Targets[0].Sync != "OutOfSync" || !strings.Contains(v.Targets[0].Message, fmt.Sprintf("%d of %d objects would change", objects+1-applied, objects+1)) {
				return fmt.Errorf("the agent does not say what is missing: %q", v.Targets[0].Message)
			}
			return nil
		})
		count := map[string]int{}
		for _, value := range values(t, cluster, ns) {
			count[value]++
		}
		if count["1"] != objects+1-applied || count["2"] != applied {
			t.Errorf("after the termination there are %v objects of each value, want %d of 2 and nothing pruned", count, applied)
		}
	}
	stopped()
	gate.open() // the API server is quick again
	stopped()
	// Neither side continues by itself after a restart.
	a.Kill()
	s.again(t)
	d.Server = s.Server
	a.run(t)
	a.awaitConnected(t, s)
	stopped()
	before := len(writesTo(t, cluster, ns))
	repo.push(t, map[string]string{"README.md": "nothing of it"})
	d.look(t, repo.url)
	stopped()
	if more := writesTo(t, cluster, ns)[before:]; len(carriedOut(more)) != 0 {
		t.Errorf("after the termination the agent has written %v", carriedOut(more))
	}

	// The next run finishes the work.
	d.awaitRun(t, d.run(t, "app", "").ID, "Succeeded")
	holds(t, cluster, ns, objects, "2")
	if v := d.await(t, "app", healthyAt(second, 1)); v.Pin.TerminatedRun != 0 {
		t.Errorf("the next run has left %+v", v.Pin)
	}
}

// carriedOut returns the requests that change something, without dry runs.
func carriedOut(requests []testkit.Request) (out []string) {
	for _, r := range requests {
		if !strings.Contains(r.URI, "dryRun=") {
			out = append(out, r.Verb+" "+r.URI)
		}
	}
	return out
}
