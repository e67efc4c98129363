package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs are built by a script below hack, unless a variable names the folder of programs that are already built.
type programs struct {
	what, env, script string
}

var (
	controlPlane = programs{"the control plane", "KEDGE_KUBE_BIN", "kube"}
	renderTools  = programs{"kustomize and helm", "KEDGE_RENDER_TOOLS", "rendertools"}
	oldKubectl   = programs{"an older kubectl", "KEDGE_OLD_KUBECTL", "kubectl"}
	argoCD       = programs{"Argo CD", "KEDGE_ARGOCD_BIN", "argocd"}
)

// KubeBinDir returns the folder with the programs of the control plane, including kubectl, and builds them if
// necessary. It skips the test with -short.
func KubeBinDir(tb testing.TB) string {
	tb.Helper()
	return controlPlane.forTest(tb)
}

// RenderToolsDir returns the folder with the real kustomize and helm, and builds them if necessary. It skips the
// test with -short.
func RenderToolsDir(tb testing.TB) string {
	tb.Helper()
	return renderTools.forTest(tb)
}

// OldKubectlDir returns the folder with a kubectl that is older than that of the control plane, and builds it if
// necessary. It skips the test with -short.
func OldKubectlDir(tb testing.TB) string {
	tb.Helper()
	return oldKubectl.forTest(tb)
}

// ArgoCDBinDir returns the folder with the programs and manifests of Argo CD, and builds them if necessary. It
// skips the test with -short.
func ArgoCDBinDir(tb testing.TB) string {
	tb.Helper()
	return argoCD.forTest(tb)
}

func (p programs) forTest(tb testing.TB) string {
	tb.Helper()
	skipShort(tb)
	dir, err := p.dir(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// dir returns the folder with the programs and builds them if necessary.
func (p programs) dir(ctx context.Context) (string, error) {
	if dir := os.Getenv(p.env); dir != "" {
		return dir, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "hack", p.script, "build.sh"))
	cmd.Stderr = os.Stderr // progress: the first build takes minutes
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building %s: %w", p.what, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ModuleRoot returns the folder with go.mod of this module, at or above the working folder, which is the folder
// of the package in a test.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("searching for the module: %w", err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module github.com/kedge-dev/kedge\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("searching for the module: no go.mod at or above the working folder")
		}
		dir = parent
	}
}
