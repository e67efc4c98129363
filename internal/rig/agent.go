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

// Cluster is where agents are installed.
type Cluster struct {
	Kubectl    string // path of the program
	Kubeconfig string // of whoever installs; "" when the program knows it by itself
}

// Run runs kubectl with input and returns what it prints.
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

// Install enrols an agent and applies its manifest: what a platform engineer does.
func (s *Server) Install(ctx context.Context, c Cluster, req apiv1.EnrollAgent) (apiv1.Enrollment, error) {
	var e apiv1.Enrollment
	if err := s.Call(ctx, http.MethodPost, TenantPath+"/agents", req, &e); err != nil {
		return e, err
	}
	_, err := c.Run(ctx, e.Manifest, "apply", "-f", "-")
	return e, err
}

// Uninstall removes an installed agent, and nothing that it has applied.
func (c Cluster) Uninstall(ctx context.Context, name string) error {
	_, err := c.Run(ctx, "", "delete", "namespaces,clusterroles,clusterrolebindings", "-l", "kedge.dev/install="+name, "--wait=false", "--ignore-not-found")
	return err
}

// Pod reads how the applied manifest of an agent wants it to be started. dir is for its files.
func (c Cluster) Pod(ctx context.Context, agent, binary, dir string, extra ...string) (*localpod.Pod, error) {
	out, err := c.Run(ctx, "", "get", "deployments", "-A", "-l", "kedge.dev/install="+agent,
		"-o", "jsonpath={.items[0].metadata.namespace} {.items[0].metadata.name}")
	if err != nil {
		return nil, err
	}
	namespace, name, ok := strings.Cut(out, " ")
	if !ok {
		return nil, fmt.Errorf("finding the installed agent %q: kubectl said %q", agent, out)
	}
	return localpod.Load(ctx, localpod.Config{
		Kubectl: c.Kubectl, Kubeconfig: c.Kubeconfig, Namespace: namespace, Deployment: name,
		Binary: binary, Dir: dir,
		// A pod has an address of its own; on this machine the manifest's port could be taken.
		ExtraArgs: append([]string{"--listen=127.0.0.1:0"}, extra...),
	})
}
