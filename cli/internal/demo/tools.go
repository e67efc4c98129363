package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/rig"
)

// kubectl writes a small program that speaks to one cluster, so that what a person is told to type
// is short and what kubectl caches is removed with everything else.
func (d *demo) kubectl(number int, kubeconfig string) (rig.Cluster, error) {
	program, err := d.cfg.findKubectl()
	if err != nil {
		return rig.Cluster{}, err
	}
	path := filepath.Join(d.dir, fmt.Sprintf("kubectl-%d", number))
	script := fmt.Sprintf("#!/bin/sh\nKUBECONFIG=%s exec %s --cache-dir=%s \"$@\"\n",
		quote(kubeconfig), quote(program), quote(filepath.Join(d.dir, "kubectl-cache")))
	return rig.Cluster{Kubectl: path}, writeProgram(path, script)
}

// writeKedge writes a kedge that is logged in to the demo's server and knows no other.
func (d *demo) writeKedge() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d.kedge = filepath.Join(d.dir, "kedge")
	script := fmt.Sprintf("#!/bin/sh\nKEDGE_CONFIG=%s KEDGE_SERVER=%s KEDGE_TOKEN=%s KEDGE_TENANT=%s exec %s \"$@\"\n",
		quote(filepath.Join(d.dir, "kedge.yaml")), quote(d.server.URL), quote(d.server.Token), quote(d.tenant()), quote(self))
	return writeProgram(d.kedge, script)
}

// tenant is the tenant of the demo.
func (d *demo) tenant() string {
	if d.cfg.CRs {
		return crNamespace
	}
	return fleet.DefaultTenant
}

func writeProgram(path, script string) error {
	return os.WriteFile(path, []byte(script), 0o700) //nolint:gosec // a program has to be executable
}

// pinned copies the current context of a kubeconfig: whoever changes it while the demo runs must not
// send the demo into another cluster.
func (d *demo) pinned(ctx context.Context) (string, error) {
	text, err := d.cfg.view(ctx, "--flatten", "--raw")
	if err != nil {
		return "", err
	}
	path := filepath.Join(d.dir, "kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// Target names the cluster of Kubeconfig: its context and its address.
func (c Config) Target(ctx context.Context) (string, error) {
	text, err := c.view(ctx, "-o", "jsonpath={.current-context}{\"\\n\"}{.clusters[0].cluster.server}")
	if err != nil {
		return "", err
	}
	name, server, _ := strings.Cut(text, "\n")
	if server == "" {
		return "", fmt.Errorf("KUBECONFIG=%s names no cluster: set a current context, or unset KUBECONFIG", c.Kubeconfig)
	}
	return fmt.Sprintf("context %q at %s", name, server), nil
}

func (c Config) view(ctx context.Context, args ...string) (string, error) {
	program, err := c.findKubectl()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"config", "view", "--minify"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("reading KUBECONFIG=%s: %w: %s", c.Kubeconfig, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func (c Config) findKubectl() (string, error) {
	if c.KubeBin != "" {
		return filepath.Join(c.KubeBin, "kubectl"), nil
	}
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return "", fmt.Errorf("kubectl is not on PATH: install it, or give --kube-bin")
	}
	return path, nil
}
