package rig

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/localpod"
)

// Cluster is a cluster for agents.
type Cluster struct {
	Kubectl    string // path of the program
	Kubeconfig string // kubeconfig of the user who installs; "" means the default of kubectl
}

// Run runs kubectl with input and returns its output.
func (c Cluster) Run(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Kubectl, args...)
	if c.Kubeconfig != "" {
		cmd.Args = slices.Insert(cmd.Args, 1, "--kubeconfig", c.Kubeconfig)
	}
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// Install enrolls an agent and applies its manifest.
func (s *Server) Install(ctx context.Context, c Cluster, req apiv1.EnrollAgent) (apiv1.Enrollment, error) {
	var e apiv1.Enrollment
	if err := s.Call(ctx, http.MethodPost, TenantPath+"/agents", req, &e); err != nil {
		return e, err
	}
	_, err := c.Run(ctx, e.Manifest, "apply", "-f", "-")
	return e, err
}

// Uninstall removes an installed agent, and none of the objects that it applied.
func (c Cluster) Uninstall(ctx context.Context, name string) error {
	_, err := c.Run(ctx, "", "delete", "namespaces,clusterroles,clusterrolebindings", "-l", "kedge.dev/install="+name, "--wait=false", "--ignore-not-found")
	return err
}

// Pod loads the applied Deployment of an agent. dir is for its files.
func (c Cluster) Pod(ctx context.Context, agent, binary, dir string, extra ...string) (*localpod.Pod, error) {
	out, err := c.Run(ctx, "", "get", "deployments", "-A", "-l", "kedge.dev/install="+agent,
		"-o", "jsonpath={.items[0].metadata.namespace} {.items[0].metadata.name}")
	if err != nil {
		return nil, err
	}
	namespace, _, ok := strings.Cut(out, " ")
	if !ok {
		return nil, fmt.Errorf("finding the installed agent %q: kubectl printed %q", agent, out)
	}
	return c.PodIn(ctx, namespace, binary, dir, extra...)
}

// PodIn is Pod for the agent in a namespace.
func (c Cluster) PodIn(ctx context.Context, namespace, binary, dir string, extra ...string) (*localpod.Pod, error) {
	return localpod.Load(ctx, localpod.Config{
		Kubectl: c.Kubectl, Kubeconfig: c.Kubeconfig, Namespace: namespace, Deployment: "kedge-agent",
		Binary: binary, Dir: dir,
		// A pod has its own address; on this machine, the port of the manifest could be in use.
		ExtraArgs: append([]string{"--listen=127.0.0.1:0"}, extra...),
	})
}
