package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// takeover is the time limit for another replica to take over.
const takeover = 15 * time.Second

// pair is two replicas of one agent.
type pair struct {
	server   *testServer
	cluster  *testkit.Cluster
	replicas map[string]*testAgent // by the names of their pods
	name     string
}

// enrollPair enrolls an agent with two replicas and starts them, one after the other.
func enrollPair(tb testing.TB, s *testServer, cluster *testkit.Cluster, name string) *pair {
	tb.Helper()
	p := &pair{server: s, cluster: cluster, replicas: map[string]*testAgent{}, name: name}
	first := enroll(tb, s, cluster, apiv1.EnrollAgent{Name: name, Replicas: 2})
	p.replicas[podName(tb, first)] = first
	pod, err := newSite(tb, cluster).Pod(tb.Context(), name, binary(tb, "kedge-agent"), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	second := &testAgent{name: name, cluster: cluster, pod: pod}
	second.run(tb)
	p.replicas[podName(tb, second)] = second
	p.await(tb, podName(tb, first), podName(tb, second))
	return p
}

// roles returns the leading replica and the standbys, from the server.
func (p *pair) roles(ctx context.Context) (leader string, standby []string, err error) {
	v, err := p.server.agent(ctx, p.name)
	if err != nil {
		return "", nil, err
	}
	for _, c := range v.Connections {
		switch {
		case !c.Connected:
		case c.Role == "standby":
			standby = append(standby, c.Replica)
		case leader != "":
			return "", nil, fmt.Errorf("%s and %s lead", leader, c.Replica)
		default:
			leader = c.Replica
		}
	}
	if v.Connected != (leader != "") {
		return "", nil, fmt.Errorf("connected is %v with leader %q", v.Connected, leader)
	}
	return leader, standby, nil
}

// await waits for these roles; "" means any, or none.
func (p *pair) await(tb testing.TB, leader string, standby ...string) time.Time {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		l, others, err := p.roles(ctx)
		if err == nil && (l != leader || !slices.Equal(others, standby)) {
			err = fmt.Errorf("%q leads and %q wait, want %q and %q", l, others, leader, standby)
		}
		return err
	})
	return time.Now()
}

// covers: C6, D6
func TestTwoReplicasOfAnAgentTakeOverFromEachOther(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	p := enrollPair(t, s, cluster, "pair")
	first, others, err := p.roles(t.Context())
	if err != nil || len(others) != 1 {
		t.Fatalf("%q leads and %q wait, %v", first, others, err)
	}
	second := others[0]
	out, err := s.kedge(t, "get", "agents")
	if err != nil || !strings.Contains(out, "Standby") || !strings.Contains(out, first) || !strings.Contains(out, second) {
		t.Errorf("kedge get agents does not distinguish the replicas (%v):\n%s", err, out)
	}
	commit := repo.push(t, map[string]string{"cm.yaml": many(ns, 20, "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url}, Policy: unlimited()})
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	p.replicas[first].awaitKept(t, 1)
	applied := len(writesTo(t, cluster, ns))

	began := time.Now()
	if err := p.replicas[first].Stop(); err != nil { // in good order
		t.Error(err)
	}
	if took := p.await(t, second).Sub(began); took > takeover/2 {
		t.Errorf("a leader that stops is followed after %v", took)
	}
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	if strings.Contains(p.replicas[second].Log(), "desired state received") {
		t.Error("the new leader got a state that it had found in the cluster")
	}
	p.replicas[first].run(t)
	p.await(t, second, first)

	began = time.Now()
	p.replicas[second].Kill()
	if took := p.await(t, first).Sub(began); took > takeover {
		t.Errorf("a leader that was killed is followed after %v", took)
	}
	s.awaitDeployment(t, "app", healthyAt(commit, 1))
	if writes := writesTo(t, cluster, ns)[applied:]; len(writes) != 0 {
		t.Errorf("two changes of leaders cost %d writes: %+v", len(writes), writes)
	}
	cluster.Kubectl(t, "-n", ns, "delete", "configmap", "cm-000")
	holds(t, cluster, ns, 20, "1")
}

// covers: D6, O7
func TestLeaderThatIsPausedAppliesNothingAfterwards(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t, "--lease="+shortLease.String()), newRepo(t)
	ns := cluster.Namespace(t)
	p := enrollPair(t, s, cluster, "paused")
	first, others, err := p.roles(t.Context())
	if err != nil || len(others) != 1 {
		t.Fatalf("%q leads and %q wait, %v", first, others, err)
	}
	second := others[0]
	repo.push(t, map[string]string{"cm.yaml": many(ns, 150, "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url}, Policy: unlimited()})
	repo.webhooks(t, s)
	testkit.Eventually(t, patience, func(context.Context) error {
		if len(writesTo(t, cluster, ns)) == 0 {
			return errors.New("not begun")
		}
		return nil
	})
	began := time.Now()
	p.replicas[first].Signal(syscall.SIGSTOP) // in the middle of an apply
	t.Cleanup(func() { p.replicas[first].Signal(syscall.SIGCONT) })
	newest := repo.push(t, map[string]string{"cm.yaml": many(ns, 40, "2")})
	s.awaitDeployment(t, "app", healthyAt(newest, 1))
	if took := time.Since(began); took > takeover+5*time.Second {
		t.Errorf("the other replica had it done after %v", took)
	}
	holds(t, cluster, ns, 40, "2")
	settled := len(writesTo(t, cluster, ns))
	p.replicas[first].Signal(syscall.SIGCONT)
	p.await(t, second, first)
	if writes := writesTo(t, cluster, ns)[settled:]; len(writes) != 0 {
		t.Errorf("the replica that was paused, or the other one, sent %+v", writes)
	}
	holds(t, cluster, ns, 40, "2")
}

// A bundle that arrives while the leader is killed during an apply leaves no orphan, and the other replica
// executes a deletion that was requested in the meantime.
//
// covers: D6
func TestLeaderKilledInTheMiddleOfAnApplyLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	p := enrollPair(t, s, cluster, "relay")
	first, _, err := p.roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cluster.Apply(t, configMap(ns, "mine", "untouched"))
	repo.push(t, map[string]string{"cm.yaml": many(ns, 200, "1")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Source: apiv1.Source{RepoURL: repo.url}, Policy: unlimited()})
	repo.webhooks(t, s)
	testkit.Eventually(t, patience, func(context.Context) error {
		if len(writesTo(t, cluster, ns)) == 0 {
			return errors.New("not begun")
		}
		return nil
	})
	p.replicas[first].Kill()
	newest := repo.push(t, map[string]string{"cm.yaml": many(ns, 100, "2")})
	s.awaitDeployment(t, "app", healthyAt(newest, 1))
	holds(t, cluster, ns, 100, "2")
	s.call(t, http.MethodDelete, tenantPath+"/deployments/app", nil, nil)
	testkit.Eventually(t, patience, func(context.Context) error {
		if left := values(t, cluster, ns); len(left) != 0 {
			return fmt.Errorf("%d objects are left", len(left))
		}
		return nil
	})
	shows(t, cluster, "untouched", "-n", ns, "get", "configmap", "mine", "-o", "jsonpath={.data.value}")
}
