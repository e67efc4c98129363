package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/localpod"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// testAgent is a running kedge-agent, started from its applied enrollment manifest.
type testAgent struct {
	*rig.Process
	name      string
	namespace string // only of an agent with a registration Secret
	pod       *localpod.Pod
	cluster   *testkit.Cluster
}

// enroll enrolls an agent, applies its manifest, and starts it as the manifest says.
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
	var e apiv1.Enrollment
	s.call(tb, http.MethodPost, tenantPath+"/agents", req, &e)
	return apply(tb, cluster, req.Name, e.Manifest)
}

// apply installs an agent by its manifest and reads how it is to be started.
func apply(tb testing.TB, cluster *testkit.Cluster, name, manifest string) *testAgent {
	tb.Helper()
	c := newSite(tb, cluster)
	if _, err := c.Run(tb.Context(), manifest, "apply", "-f", "-"); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Uninstall(context.WithoutCancel(tb.Context()), name); err != nil {
			tb.Error(err)
		}
	})
	pod, err := c.Pod(tb.Context(), name, binary(tb, "kedge-agent"), tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return &testAgent{name: name, cluster: cluster, pod: pod}
}

// run starts the process of the agent, or restarts it after a stop or kill.
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

// awaitAgent waits until an agent of any tenant is connected.
func awaitAgent(tb testing.TB, d tenantClient, name string) {
	tb.Helper()
	testkit.Eventually(tb, patience, func(ctx context.Context) error {
		var v apiv1.Agent
		err := d.Call(ctx, http.MethodGet, d.path("agents/"+name), nil, &v)
		if err == nil && !v.Connected {
			err = fmt.Errorf("agent %q is not connected", name)
		}
		return err
	})
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
