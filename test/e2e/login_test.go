package e2e_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/testkit/oidcserver"
)

// A person logs in from the CLI through an identity provider, and may do exactly what the groups of the login
// allow.
func TestPersonLogsInByAnIdentityProvider(t *testing.T) {
	t.Parallel()
	provider := oidcserver.Start(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(provider.ClientSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--oidc-issuer", provider.Issuer(), "--oidc-client-id", provider.ClientID,
		"--oidc-client-secret-file", secret, "--oidc-scopes", "openid,profile,email,groups")
	s.call(t, http.MethodPost, "/tenants", apiv1.CreateTenant{Name: "shop"}, nil)
	s.call(t, http.MethodPut, "/tenants/shop/members/group/web-team", apiv1.PutMember{Role: "deployer"}, nil)
	ada := oidcserver.User{Subject: "1", PreferredUsername: "ada", Email: "ada@example.com", EmailVerified: true, Groups: []string{"web-team"}}
	provider.QueueUser(ada)
	provider.QueueUser(ada)

	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary(t, "kedge"), args...)
		cmd.Env = append(os.Environ(), "KEDGE_CONFIG="+filepath.Join(filepath.Dir(secret), "config.yaml"))
		return cmd
	}
	login := func(answer string) (string, error) {
		return loginWithBrowser(t, run("login", s.URL, "--sso", "--tenant", "shop"), answer)
	}
	if out, err := login("no"); err == nil || !strings.Contains(out, "not confirmed") {
		t.Errorf("a login that the person did not confirm: %v\n%s", err, out)
	}
	if out, err := login("yes"); err != nil || !strings.Contains(out, "as ada@example.com") {
		t.Fatalf("kedge login: %v\n%s", err, out)
	}

	if out, err := run("deploy", "create", "web", "--repo", "https://git.example.com/web", "--no-check").CombinedOutput(); err != nil {
		t.Errorf("a deployer may not deploy: %v\n%s", err, out)
	}
	out, err := run("agent", "enroll", "edge").CombinedOutput()
	if err == nil || strings.Contains(string(out), "kind: Secret") {
		t.Errorf("a deployer could enroll an agent:\n%s", out)
	}
	if out, err := run("get", "deployments", "--tenant", "default").CombinedOutput(); err == nil {
		t.Errorf("a member of one tenant reads another:\n%s", out)
	}
	s.call(t, http.MethodDelete, "/people/ada@example.com/sessions", nil, nil)
	if out, err := run("get", "deployments").CombinedOutput(); err == nil || !strings.Contains(string(out), "revoked") {
		t.Errorf("somebody who was logged out goes on: %v\n%s", err, out)
	}
}

// loginWithBrowser starts the CLI, opens the printed address like a person, and returns the rest of the output.
func loginWithBrowser(t *testing.T, cmd *exec.Cmd, answer string) (string, error) {
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
	var address, code string
	for lines := bufio.NewScanner(stderr); code == "" && lines.Scan(); {
		text := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(text, "http") {
			address = text
		}
		_, code, _ = strings.Cut(text, "shows this code: ")
	}
	confirm(t, address, code, answer)
	rest, _ := io.ReadAll(stderr)
	err = cmd.Wait()
	return out.String() + string(rest), err
}

var questionField = regexp.MustCompile(`name="question" value="([^"]+)"`)

// confirm follows the address to the confirmation page, checks the code of the CLI there, and confirms.
func confirm(t *testing.T, address, code, answer string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	read := func(resp *http.Response, err error) (*url.URL, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("the login ended at %s: %s %s", resp.Request.URL, resp.Status, text)
		}
		return resp.Request.URL, string(text)
	}
	at, asked := read(browser.Get(address))
	question := questionField.FindStringSubmatch(asked)
	if code == "" || !strings.Contains(asked, code) || question == nil {
		t.Fatalf("the page does not show the code %q of the CLI:\n%s", code, asked)
	}
	form := url.Values{"question": {question[1]}, "answer": {answer}}
	if to, done := read(browser.PostForm(at.ResolveReference(&url.URL{Path: "confirm"}).String(), form)); !strings.Contains(done, "logged in") {
		t.Fatalf("the way back to the CLI ended at %s: %s", to, done)
	}
}
