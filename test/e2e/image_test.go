package e2e_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// commented is a workload with comments and formatting.
const commented = `# the shop window
apiVersion: apps/v1
kind: Deployment
metadata:
    name: web   # four spaces
spec:
    replicas: 1
    selector: {matchLabels: {app: web}}
    template:
        metadata: {labels: {app: web}}
        spec:
            containers:
            -   name: web
                image: "%s"  # set by the pipeline
`

// inRemote runs git in the repository on its host.
func (r *testRepo) inRemote(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "git", append([]string{"--git-dir=" + r.server.Dir(r.name)}, args...)...).CombinedOutput()
	if err != nil {
		tb.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// covers: I1
func TestImageSetReachesTheCluster(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "images"})
	secret := func(value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {password: %s}\n", base64.StdEncoding.EncodeToString([]byte(value)))
	}
	first := repo.push(t, map[string]string{"app/web.yaml": fmt.Sprintf(commented, "nginx:1.29"), "app/s.yaml": secret("planted-one")})
	s.deploy(t, apiv1.CreateDeployment{Name: "app", Namespace: ns, Source: apiv1.Source{RepoURL: repo.url, Path: "app"}})
	s.awaitDeployment(t, "app", healthyAt(first, 1))

	run := func(args ...string) string {
		t.Helper()
		out, err := s.kedge(t, args...)
		if err != nil {
			t.Fatalf("kedge %v: %v\n%s", args, err, out)
		}
		return out
	}
	if out := run("image", "list", "app"); !strings.Contains(out, "nginx:1.29") || !strings.Contains(out, "app/web.yaml:14") {
		t.Errorf("the images are\n%s", out)
	}
	if out := run("image", "set", "app", "nginx=:1.30", "--dry-run"); !strings.Contains(out, "-nginx:1.29\n+nginx:1.30\n") || !strings.Contains(out, "nothing was changed") {
		t.Errorf("a dry run says\n%s", out)
	}
	out := run("image", "set", "app", "nginx=:1.30", "-m", "shop: a newer nginx")
	second := strings.TrimSpace(repo.inRemote(t, "rev-parse", "main"))
	if second == first || !strings.Contains(out, second[:12]) {
		t.Fatalf("after\n%s\nmain is at %s, and was at %s", out, second, first)
	}
	if got := repo.inRemote(t, "show", "main:app/web.yaml"); got != fmt.Sprintf(commented, "nginx:1.30") {
		t.Errorf("the file is\n%s", got)
	}
	s.awaitDeployment(t, "app", healthyAt(second, 1))
	shows(t, cluster, "nginx:1.30", "-n", ns, "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	if out := run("image", "set", "app", "nginx=:1.30"); !strings.Contains(out, "Nothing to change") {
		t.Errorf("the same again says\n%s", out)
	}

	t.Run("a protected branch leads to a separate branch", func(t *testing.T) {
		hook := filepath.Join(repo.server.Dir(repo.name), "hooks", "update")
		if err := errors.Join(os.MkdirAll(filepath.Dir(hook), 0o755), os.WriteFile(hook, []byte("#!/bin/sh\n[ $1 != refs/heads/main ] || { echo no pushes to main; exit 1; }\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
		out := run("image", "set", "app", "nginx=:1.31")
		_, rest, _ := strings.Cut(out, `new branch "`)
		branch, _, _ := strings.Cut(rest, `"`)
		if !strings.HasPrefix(branch, "kedge/image/app-") || !strings.Contains(out, "no pushes to main") {
			t.Fatalf("it says\n%s", out)
		}
		if got := repo.inRemote(t, "show", branch+":app/web.yaml"); got != fmt.Sprintf(commented, "nginx:1.31") {
			t.Errorf("the branch has\n%s", got)
		}
		if err := os.Remove(hook); err != nil {
			t.Fatal(err)
		}
		if out, err := s.kedge(t, "diff", "app", "--to", branch, "--exit-code"); err == nil || !strings.Contains(out, `containers[web].image: "nginx:1.31"`) || !strings.Contains(out, "0 objects added, 1 changed, 0 removed, 1 unchanged") {
			t.Errorf("what it would change: %v\n%s", err, out)
		}
	})
	t.Run("a diff shows no secret", func(t *testing.T) {
		repo.inRemote(t, "branch", "before", first)
		if out := run("diff", "app", "--to", "before"); !strings.Contains(out, `"nginx:1.29"`) || strings.Contains(out, "password") {
			t.Errorf("the way back:\n%s", out)
		}
		if err := repo.Switch(t.Context(), "secret"); err != nil {
			t.Fatal(err)
		}
		repo.push(t, map[string]string{"app/s.yaml": secret("planted-two")})
		for _, format := range []string{"table", "json", "yaml"} {
			out := run("diff", "app", "--from", "before", "--to", "secret", "-o", format)
			if !strings.Contains(out, "data.password") || strings.Contains(out, "planted") || strings.Contains(out, base64.StdEncoding.EncodeToString([]byte("planted"))[:8]) {
				t.Errorf("-o %s:\n%s", format, out)
			}
		}
	})
}

// covers: I1 (Kustomize and Helm values, down to the cluster)
func TestImageSetOfKustomizeAndHelm(t *testing.T) {
	t.Parallel()
	cluster, s, repo := testkit.SharedCluster(t), startServer(t), newRepo(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "kinds"})
	const values, overlay = "# how many\nreplicas: 1\nimage:\n  repository: nginx # upstream\n  tag: \"1.29\"\n", "# prod\nresources:\n- ../base\n"
	repo.push(t, map[string]string{
		"base/kustomization.yaml": "resources: [web.yaml]\n", "base/web.yaml": fmt.Sprintf(commented, "nginx:1.29"), "prod/kustomization.yaml": overlay,
		"chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "chart/values.yaml": "image: {repository: none, tag: none}\n", "prod.yaml": values,
		"chart/templates/web.yaml": fmt.Sprintf(commented, "{{ .Values.image.repository }}:{{ .Values.image.tag }}"),
	})
	for name, tc := range map[string]struct {
		source     apiv1.Source
		file, want string
	}{
		"kusto": {apiv1.Source{Path: "prod"}, "prod/kustomization.yaml", overlay + "images:\n- name: nginx\n  newTag: \"1.30\"\n"},
		"helm":  {apiv1.Source{Path: "chart", Helm: &apiv1.Helm{ValuesFiles: []string{"/prod.yaml"}}}, "prod.yaml", strings.Replace(values, "1.29", "1.30", 1)},
	} {
		ns := cluster.Namespace(t)
		tc.source.RepoURL = repo.url
		s.deploy(t, apiv1.CreateDeployment{Name: name, Namespace: ns, Source: tc.source})
		s.awaitDeployment(t, name, healthyAt(strings.TrimSpace(repo.inRemote(t, "rev-parse", "main")), 1))
		if out, err := s.kedge(t, "image", "set", name, "nginx=:1.30"); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if got := repo.inRemote(t, "show", "main:"+tc.file); got != tc.want {
			t.Errorf("%s is\n%s", tc.file, got)
		}
		shows(t, cluster, "nginx:1.30", "-n", ns, "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	}
}
