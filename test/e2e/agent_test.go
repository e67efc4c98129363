package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/localpod"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// testAgent is a running kedge-agent, started from its applied enrol manifest.
type testAgent struct {
	*rig.Process
	name    string
	pod     *localpod.Pod
	cluster *testkit.Cluster
}

// enroll enrols an agent, applies its manifest, and starts it as the manifest says.
func enroll(tb testing.TB, s *testServer, cluster *testkit.Cluster, req apiv1.EnrollAgent) *testAgent {
	tb.Helper()
	a := install(tb, s, cluster, req)
	a.run(tb)
	a.awaitConnected(tb, s)
	return a
}

// install is enroll without the start.
func install(tb testing.TB, s *testServer, cluster *testkit.Cluster, req apiv1.EnrollAgent) *testAgent {
	tb.Helper()
	c := rig.Cluster{Kubectl: filepath.Join(testkit.KubeBinDir(tb), "kubectl"), Kubeconfig: cluster.Kubeconfig()}
	if _, err := s.Install(tb.Context(), c, req); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Uninstall(context.WithoutCancel(tb.Context()), req.Name); err != nil {
			tb.Error(err)
		}
	})
	pod, err := c.Pod(tb.Context(), req.Name, binary(tb, "kedge-agent"), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return &testAgent{name: req.Name, cluster: cluster, pod: pod}
}

// run starts the agent's process, again after a stop or kill.
func (a *testAgent) run(tb testing.TB) {
	tb.Helper()
	p, err := rig.Start("kedge-agent "+a.name, a.pod.Command(context.WithoutCancel(tb.Context())), nil)
	if err != nil {
		tb.Fatal(err)
	}
	a.Process = p
	endWithTest(tb, p)
}

func (s *testServer) agent(ctx context.Context, name string) (apiv1.Agent, error) {
	var v apiv1.Agent
	err := s.Call(ctx, http.MethodGet, tenantPath+"/agents/"+name, nil, &v)
	return v, err
}

func (a *testAgent) awaitConnected(tb testing.TB, s *testServer) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		v, err := s.agent(ctx, a.name)
		if err == nil && !v.Connected {
			err = fmt.Errorf("agent %q is not connected\n%s", a.name, a.Log())
		}
		return err
	})
}
