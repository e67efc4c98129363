package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// covers: C13 (a build of any kind starts and enrolls; an unpublished image is never used).
// make check runs the demo with programs that Go has stamped itself.
func TestBuildOfAnyKindEnrollsAnAgent(t *testing.T) {
	t.Parallel()
	t.Run("as it was built", func(t *testing.T) {
		t.Parallel()
		enrollsOnlyWithAnImage(t, filepath.Dir(binary(t, "kedge-server")))
	})
	t.Run("stamped with a commit and edits", func(t *testing.T) {
		t.Parallel()
		root, err := testkit.ModuleRoot()
		if err != nil {
			t.Fatal(err)
		}
		bin := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "go", "build",
			"-ldflags", "-X github.com/kedge-dev/kedge/internal/version.release=dev+725f8c873264-dirty", "-o", bin, "./cmd/kedge", "./cmd/kedge-server")
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building: %v\n%s", err, out)
		}
		enrollsOnlyWithAnImage(t, bin)
	})
}

func enrollsOnlyWithAnImage(t *testing.T, bin string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The rig sets an image, like an operator; "" removes it.
	s, err := rig.StartServer(ctx, rig.ServerConfig{
		Binary: filepath.Join(bin, "kedge-server"), Listen: "127.0.0.1:0", DataDir: t.TempDir(), Args: []string{"--agent-image", ""},
	})
	if err != nil {
		t.Fatal(err)
	}
	endWithTest(t, s.Process)
	enroll := func(args ...string) (out, stderr string, err error) {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "kedge"), append([]string{"agent", "enroll", "--server", s.URL}, args...)...)
		cmd.Env = append(os.Environ(), "KEDGE_CONFIG="+filepath.Join(t.TempDir(), "config.yaml"), "KEDGE_TOKEN="+s.Token)
		var said strings.Builder
		cmd.Stderr = &said
		text, err := cmd.Output()
		return string(text), said.String(), err
	}
	out, stderr, err := enroll("prod")
	if err == nil || out != "" || !strings.Contains(stderr, "--image") || !strings.Contains(stderr, "--agent-image") {
		t.Errorf("without an image: %v\n%s\n%s", err, out, stderr)
	}
	out, stderr, err = enroll("prod", "--image", "registry.example.com/kedge-agent:v1")
	if err != nil || !strings.Contains(out, "image: registry.example.com/kedge-agent:v1") {
		t.Errorf("with an image: %v\n%s\n%s", err, out, stderr)
	}
	out, stderr, err = enroll("edge", "--without-deployment")
	if err != nil || !strings.Contains(out, "kind: ServiceAccount") || strings.Contains(out, "image:") {
		t.Errorf("without a Deployment: %v\n%s\n%s", err, out, stderr)
	}
}
