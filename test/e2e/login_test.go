package e2e_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oauth2-proxy/mockoidc"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// A person logs in from the CLI by an identity provider that others wrote, and may do what the groups
// of the login allow: no less, and no more.
func TestPersonLogsInByAnIdentityProvider(t *testing.T) {
	t.Parallel()
	provider, err := mockoidc.Run()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = provider.Shutdown() }()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(provider.ClientSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--oidc-issuer", provider.Issuer(), "--oidc-client-id", provider.ClientID,
		"--oidc-client-secret-file", secret, "--oidc-scopes", "openid,profile,email,groups")
	s.call(t, http.MethodPost, "/tenants", apiv1.CreateTenant{Name: "shop"}, nil)
	s.call(t, http.MethodPut, "/tenants/shop/members/group/web-team", apiv1.PutMember{Role: "deployer"}, nil)
	provider.QueueUser(&mockoidc.MockUser{Subject: "1", PreferredUsername: "ada", Email: "ada@example.com", EmailVerified: true, Groups: []string{"web-team"}})

	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary(t, "kedge"), args...)
		cmd.Env = append(os.Environ(), "KEDGE_CONFIG="+filepath.Join(filepath.Dir(secret), "config.yaml"))
		return cmd
	}
	loginWithBrowser(t, run("login", s.URL, "--sso", "--tenant", "shop"))

	if out, err := run("deploy", "create", "web", "--repo", "https://git.example.com/web").CombinedOutput(); err != nil {
		t.Errorf("a deployer may not deploy: %v\n%s", err, out)
	}
	out, err := run("agent", "enroll", "edge").CombinedOutput()
	if err == nil || strings.Contains(string(out), "kind: Secret") {
		t.Errorf("a deployer could enrol an agent:\n%s", out)
	}
	if out, err := run("get", "deployments", "--tenant", "default").CombinedOutput(); err == nil {
		t.Errorf("a member of one tenant reads another:\n%s", out)
	}
}

// loginWithBrowser starts the CLI and does what a person does with the address that it prints.
func loginWithBrowser(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		address := strings.TrimSpace(lines.Text())
		if !strings.HasPrefix(address, "http") {
			continue
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Jar: jar}).Get(address)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("the way back to the CLI ended at %s: %s %s", resp.Request.URL, resp.Status, text)
		}
		break
	}
	rest, _ := io.ReadAll(stderr)
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "as ada") {
		t.Fatalf("kedge login: %v\n%s%s", err, out.String(), rest)
	}
}
