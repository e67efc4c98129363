package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit"
)

var walkBlock = regexp.MustCompile("(?ms)^   ```sh\n(.*?)^   ```$")

// walkThrough returns the commands of the walk-through in docs/kubernetes.md, one text for each step.
func walkThrough(tb testing.TB) []string {
	tb.Helper()
	root, err := testkit.ModuleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "kubernetes.md"))
	if err != nil {
		tb.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Walk-through\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var out []string
	for _, m := range walkBlock.FindAllStringSubmatch(section, -1) {
		out = append(out, regexp.MustCompile(`(?m)^   `).ReplaceAllString(m[1], ""))
	}
	return out
}

// covers: K1, C5
func TestWalkThroughOfCustomResources(t *testing.T) {
	t.Parallel()
	c := startCRs(t)
	cluster, s, repo := c.cluster, c.testServer, c.repo
	repo.push(t, map[string]string{"page.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page}\ndata: {a: b}\n"})
	steps := walkThrough(t)
	if len(steps) != 6 {
		t.Fatalf("the walk-through has %d steps, want 6", len(steps))
	}
	edge := newSite(t, cluster)
	shell := newWalkShell(t, s, cluster, repo.url)
	for i, step := range steps {
		out, err := shell.run(t, step)
		if err != nil {
			t.Fatalf("step %d: %v\n%s\n%s", i+1, err, step, out)
		}
		t.Logf("step %d:\n%s", i+1, out)
		if strings.Contains(step, "kedge agent manifest") {
			pod, err := edge.PodIn(t.Context(), "gitops-service-agent", binary(t, "kedge-agent"), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			(&testAgent{name: "my-internal-cluster", cluster: cluster, pod: pod}).run(t)
		}
		if strings.Contains(step, "kind: GitOpsDeployment") {
			cluster.Kubectl(t, "-n", "my-app", "get", "configmap", "page")
			if !strings.Contains(out, "Synced") || !strings.Contains(out, "Healthy") {
				t.Errorf("kubectl get shows %s", out)
			}
		}
	}
	testkit.Eventually(t, patience, func(context.Context) error {
		out, err := cluster.TryKubectl(t, "-n", "my-app", "get", "configmap", "page", "--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("%s is not deleted", out)
		}
		return err
	})
}

// walkShell runs commands as a reader of the walk-through does: variables last, and both contexts exist.
type walkShell struct {
	dir string
	env []string
}

func newWalkShell(tb testing.TB, s *testServer, cluster *testkit.Cluster, repository string) *walkShell {
	tb.Helper()
	dir := tb.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	for _, context := range []string{"hub", "edge"} {
		text := cluster.Kubectl(tb, "config", "view", "--raw", "--flatten")
		if err := os.WriteFile(kubeconfig+"-"+context, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		current := strings.TrimSpace(cluster.Kubectl(tb, "config", "current-context"))
		if out, err := exec.Command(newSite(tb, cluster).Kubectl, "--kubeconfig", kubeconfig+"-"+context, "config", "rename-context", current, context).CombinedOutput(); err != nil {
			tb.Fatal(err, string(out))
		}
	}
	path := filepath.Join(dir, "bin")
	if err := os.Mkdir(path, 0o700); err != nil {
		tb.Fatal(err)
	}
	for name, target := range map[string]string{"kubectl": newSite(tb, cluster).Kubectl, "kedge": binary(tb, "kedge")} {
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			tb.Fatal(err)
		}
	}
	return &walkShell{dir: dir, env: append(os.Environ(),
		"PATH="+path+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfig+"-hub:"+kubeconfig+"-edge", "HOME="+dir, "XDG_CONFIG_HOME="+dir,
		"KEDGE_SERVER="+s.URL, "KEDGE_TOKEN="+s.Token, "REPOSITORY="+repository)}
}

// run runs one step. Variables are kept in a file.
func (w *walkShell) run(tb testing.TB, step string) (string, error) {
	tb.Helper()
	variables := filepath.Join(w.dir, "variables")
	cmd := exec.CommandContext(tb.Context(), "bash", "-euo", "pipefail", "-c",
		fmt.Sprintf("if [ -e %[1]s ]; then . %[1]s; fi\n%[2]s\ndeclare -p TOKEN >%[1]s", variables, step))
	cmd.Dir, cmd.Env = w.dir, w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}
