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

// kubeBinEnv names the folder of a control plane that is built already.
const kubeBinEnv = "KEDGE_KUBE_BIN"

// KubeBinDir returns the folder with the control plane's programs, kubectl among them, and builds
// them if need be. It skips the test with -short.
func KubeBinDir(tb testing.TB) string {
	tb.Helper()
	skipShort(tb)
	dir, err := kubeBinDir(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// kubeBinDir returns the folder with the control plane's programs and builds them if need be.
func kubeBinDir(ctx context.Context) (string, error) {
	if dir := os.Getenv(kubeBinEnv); dir != "" {
		return dir, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "hack", "kube", "build.sh"))
	cmd.Stderr = os.Stderr // progress: the first build takes minutes
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building the control plane: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// ModuleRoot returns the folder that holds this module's go.mod, at or above the working folder,
// which is the package's own in a test.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module github.com/kedge-dev/kedge\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("looking for the module: no go.mod of it at or above the working folder")
		}
		dir = parent
	}
}
