package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// kubeUser is a caller with a kubeconfig of kedge kubeconfig.
type kubeUser struct {
	kubectl, kubeconfig, path string
	tokenID                   string
	env                       []string // of kubectl
}

// newKubeUser creates an API token and its kubeconfig for an agent.
func newKubeUser(tb testing.TB, s *testServer, name, role, agent string) *kubeUser {
	tb.Helper()
	var token struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}
	s.call(tb, http.MethodPost, tenantPath+"/tokens", apiv1.CreateAPIToken{Name: name, Role: role}, &token)
	dir := tb.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token.Token), 0o600); err != nil {
		tb.Fatal(err)
	}
	u := &kubeUser{kubectl: newSite(tb, testkit.SharedCluster(tb)).Kubectl, kubeconfig: filepath.Join(dir, "kubeconfig"), path: filepath.Dir(binary(tb, "kedge")), tokenID: token.ID}
	cmd := exec.CommandContext(tb.Context(), binary(tb, "kedge"), "kubeconfig", agent, "-f", u.kubeconfig, "--server", s.URL, "--ca-file", s.CAFile, "--token-file", file)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("kedge kubeconfig: %v\n%s", err, out)
	}
	return u
}

func (u *kubeUser) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, u.kubectl, append([]string{"--kubeconfig", u.kubeconfig}, args...)...)
	home := filepath.Dir(u.kubeconfig)
	cmd.Env = append(append(os.Environ(), "HOME="+home, "PATH="+u.path+string(os.PathListSeparator)+os.Getenv("PATH")), u.env...)
	return cmd
}

func (u *kubeUser) try(tb testing.TB, args ...string) (string, error) {
	tb.Helper()
	out, err := u.command(tb.Context(), args...).CombinedOutput()
	return string(out), err
}

func (u *kubeUser) run(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := u.try(tb, args...)
	if err != nil {
		tb.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (u *kubeUser) refused(tb testing.TB, want string, args ...string) {
	tb.Helper()
	out, err := u.try(tb, args...)
	if err == nil || !strings.Contains(out, want) {
		tb.Errorf("kubectl %s: %v\n%s\nwant %q", strings.Join(args, " "), err, out, want)
	}
}

// allow creates an access rule for a token.
func allow(tb testing.TB, s *testServer, rule, token string, readOnly bool) {
	tb.Helper()
	s.call(tb, http.MethodPost, tenantPath+"/access-rules", apiv1.CreateAccessRule{
		Name: rule, Subjects: []apiv1.AccessSubject{{Kind: "token", Name: token}}, AllAgents: true, ReadOnly: readOnly,
	}, nil)
}

// bind lets the callers of a tenant with a role do what a ClusterRole says, as the owner of a cluster would.
func bind(tb testing.TB, cluster *testkit.Cluster, name, role, clusterRole string) {
	tb.Helper()
	cluster.Apply(tb, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: "kedge:tenant:default:%s"}]
`, name, clusterRole, role))
}

// olderKubectl does the usual with a kubectl that is several versions older than the cluster.
func olderKubectl(t *testing.T, u kubeUser, ns string) {
	t.Helper()
	u.kubectl = filepath.Join(testkit.OldKubectlDir(t), "kubectl")
	manifest := filepath.Join(t.TempDir(), "cm.yaml")
	if err := os.WriteFile(manifest, []byte(configMap(ns, "older", "old")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := u.try(t, "diff", "-f", manifest); err == nil || !strings.Contains(out, "+  value: old") {
		t.Errorf("kubectl diff: %v\n%s", err, out)
	}
	u.run(t, "apply", "-f", manifest)
	if got := u.run(t, "-n", ns, "get", "configmap", "older", "-o", "jsonpath={.data.value}"); got != "old" {
		t.Errorf("got %q", got)
	}
	if got := u.run(t, "explain", "pod.spec.containers"); !strings.Contains(got, "image") {
		t.Errorf("kubectl explain: %s", got)
	}
	if got := u.run(t, "get", "namespaces"); !strings.Contains(got, ns) {
		t.Errorf("kubectl get namespaces: %s", got)
	}
}

// covers: P1, P2
func TestKubectlThroughTheTunnel(t *testing.T) {
	t.Parallel()
	cluster := testkit.StartCluster(t)
	s := startServer(t, "--tls-host", "localhost")
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "paris", Tunnel: true})
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "closed"})
	bind(t, cluster, "kedge-admins", "admin", "cluster-admin")
	bind(t, cluster, "kedge-viewers", "viewer", "view")
	ada := newKubeUser(t, s, "ada", "admin", "paris")

	// Off by default: neither a role nor the tunnel alone gives access.
	ada.refused(t, "kedge access create", "get", "pods")
	allow(t, s, "ada", "ada", false)

	manifest := filepath.Join(t.TempDir(), "cm.yaml")
	if err := os.WriteFile(manifest, []byte(configMap(ns, "page", "one")), 0o600); err != nil {
		t.Fatal(err)
	}
	ada.run(t, "apply", "-f", manifest)
	ada.run(t, "apply", "--server-side", "--force-conflicts", "-f", manifest)
	if got := ada.run(t, "-n", ns, "get", "configmap", "page", "-o", "jsonpath={.data.value}"); got != "one" {
		t.Errorf("got %q", got)
	}
	if got := ada.run(t, "explain", "pod.spec.containers"); !strings.Contains(got, "image") {
		t.Errorf("kubectl explain: %s", got)
	}
	if got := ada.run(t, "auth", "whoami"); !strings.Contains(got, "kedge:token:default:ada") || !strings.Contains(got, "kedge:tenant:default:admin") {
		t.Errorf("kubectl auth whoami: %s", got)
	}
	watchThroughTunnel(t, ada, cluster, ns)
	olderKubectl(t, *ada, ns)

	// The API server saw the caller, impersonated by an account that can do nothing else.
	account := "system:serviceaccount:kedge-agent-paris:kedge-tunnel"
	testkit.Eventually(t, patience, func(context.Context) error {
		if !slices.ContainsFunc(cluster.Requests(t), func(r testkit.Request) bool {
			return r.Resource == "configmaps" && r.Namespace == ns && r.Verb == "patch" && r.User == account && r.ImpersonatedUser == "kedge:token:default:ada"
		}) {
			return errors.New("no request of the caller is in the audit log of the API server")
		}
		return nil
	})
	if out, err := cluster.TryKubectl(t, "auth", "can-i", "get", "pods", "--as", account); err == nil {
		t.Errorf("the account of the tunnel can read pods: %s", out)
	}

	// Nobody else gets in.
	ada.refused(t, "cannot impersonate", "get", "pods", "--as", "system:admin")
	ada.refused(t, "cannot impersonate", "get", "pods", "--as", "bob", "--as-group", "system:masters")
	bob := newKubeUser(t, s, "bob", "viewer", "paris")
	bob.refused(t, "kedge access create", "get", "pods")
	allow(t, s, "bob", "bob", true)
	bob.run(t, "-n", ns, "get", "configmaps")
	bob.refused(t, "read-only", "-n", ns, "delete", "configmap", "page")
	bob.refused(t, "cannot list resource \"secrets\"", "-n", ns, "get", "secrets") // RBAC of the cluster: the role view
	newKubeUser(t, s, "closed", "admin", "closed").refused(t, "--tunnel", "get", "pods")
	if got := cluster.Kubectl(t, "-n", ns, "get", "configmap", "page", "-o", "jsonpath={.data.value}"); got != "one" {
		t.Errorf("the object is %q", got)
	}
	auditedInKedge(t, s, "kube.patch", "configmaps "+ns+"/page: begins", "configmaps "+ns+"/page: 200")
}

// watchThroughTunnel watches until a change arrives.
func watchThroughTunnel(t *testing.T, u *kubeUser, cluster *testkit.Cluster, ns string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := u.command(ctx, "-n", ns, "get", "configmap", "page", "--watch", "-o", "jsonpath={.data.value}{\"\\n\"}")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(pipe)
	for _, want := range []string{"one", "two"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the watch says %q, want %q", lines.Text(), want)
		}
		if want == "one" {
			cluster.Apply(t, configMap(ns, "page", "two"))
		}
	}
	cluster.Apply(t, configMap(ns, "page", "one"))
}

// auditedInKedge waits until the audit log has an action with these details.
func auditedInKedge(t *testing.T, s *testServer, action string, details ...string) {
	t.Helper()
	testkit.Eventually(t, patience, func(ctx context.Context) error {
		var list struct {
			Items []struct{ Action, Detail, Actor string } `json:"items"`
		}
		if err := s.Call(ctx, http.MethodGet, tenantPath+"/audit?limit=500", nil, &list); err != nil {
			return err
		}
		for _, want := range details {
			if !slices.ContainsFunc(list.Items, func(e struct{ Action, Detail, Actor string }) bool {
				return e.Action == action && e.Actor == "ada" && strings.HasPrefix(e.Detail, want)
			}) {
				return fmt.Errorf("the audit log has no %s with %q: %+v", action, want, list.Items)
			}
		}
		return nil
	})
}

// covers: P2 (revocation)
func TestRevokedTokenEndsOpenRequests(t *testing.T) {
	t.Parallel()
	cluster := testkit.SharedCluster(t)
	s := startServer(t, "--tls-host", "localhost")
	ns := cluster.Namespace(t)
	enroll(t, s, cluster, apiv1.EnrollAgent{Name: "revoking", Tunnel: true})
	bind(t, cluster, "kedge-revoking", "admin", "view")
	t.Cleanup(func() { _, _ = cluster.TryKubectl(t, "delete", "clusterrolebinding", "kedge-revoking") })
	for name, revoke := range map[string]func(u *kubeUser){
		"eve":   func(u *kubeUser) { s.call(t, http.MethodDelete, tenantPath+"/tokens/"+u.tokenID, nil, nil) },
		"mallo": func(*kubeUser) { s.call(t, http.MethodDelete, tenantPath+"/access-rules/mallo", nil, nil) },
	} {
		u := newKubeUser(t, s, name, "admin", "revoking")
		allow(t, s, name, name, true)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1"+tenantPath+"/agents/revoking/kube/api/v1/namespaces/"+ns+"/configmaps?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		token, err := os.ReadFile(filepath.Join(filepath.Dir(u.kubeconfig), "token"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+string(token))
		resp, err := s.HTTP.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %+v", name, err, resp)
		}
		began := time.Now()
		revoke(u)
		buf := make([]byte, 4096)
		for err = nil; err == nil; {
			_, err = resp.Body.Read(buf)
		}
		_ = resp.Body.Close()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: the watch ended %s after the revocation", name, took)
		}
	}
}
