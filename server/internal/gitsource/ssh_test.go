package gitsource

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

func TestSSHParts(t *testing.T) {
	t.Parallel()
	tests := []struct{ reason, url, user, host, path string }{
		{"a URL", "ssh://git@host/org/repo.git", "git", "host:22", "/org/repo.git"},
		{"a port", "ssh://host:2222/repo", "", "host:2222", "/repo"},
		{"a home folder", "ssh://host/~me/repo", "", "host:22", "~me/repo"},
		{"an escaped path", "ssh://host/a%20b", "", "host:22", "/a b"},
		{"IPv6", "ssh://[::1]:2222/repo", "", "[::1]:2222", "/repo"},
		{"the short form", "git@host:org/repo.git", "git", "host:22", "org/repo.git"},
		{"the short form without a user", "host:/repo", "", "host:22", "/repo"},
		{"the short form with IPv6", "git@[::1]:repo", "git", "[::1]:22", "repo"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			user, host, path := sshParts(tt.url)
			if user != tt.user || host != tt.host || path != tt.path {
				t.Errorf("got %q, %q, %q", user, host, path)
			}
		})
	}
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	if got, want := shellQuote("it's/a!b"), `'it'\''s/a'\!'b'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func newKey(t *testing.T) ([]byte, ssh.PublicKey) {
	t.Helper()
	private, public, err := gitserver.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return private, public
}

// covers: G1 (known hosts)
func TestOnlyKnownHostsAreTrusted(t *testing.T) {
	t.Parallel()
	server, err := gitserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	if err := server.Create("app"); err != nil {
		t.Fatal(err)
	}
	host, err := server.ServeSSH()
	if err != nil {
		t.Fatal(err)
	}
	private, public := newKey(t)
	_, unusedKey := newKey(t)
	host.Authorize(public)
	known := string(host.KnownHosts())
	name, _, _ := strings.Cut(known, " ")
	otherKey := knownhosts.Line([]string{name}, unusedKey) + "\n"
	m, err := New(Config{Dir: t.TempDir(), Addresses: &egress.Policy{AllowLoopback: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	tests := []struct{ reason, known, want string }{
		{"known", known, ErrEmpty.Error()},
		{"known with a comment, among others", "# hosts\n\ngithub.com" + strings.TrimPrefix(otherKey, name) + known, ErrEmpty.Error()},
		{"hashed", knownhosts.HashHostname(name) + strings.TrimPrefix(known, name), ErrEmpty.Error()},
		{"none", "", "add this line to the known hosts: " + strings.TrimSpace(known)},
		{"another host", "github.com" + strings.TrimPrefix(known, name), "add this line to the known hosts: " + strings.TrimSpace(known)},
		{"another key", otherKey, "differs from the known one"},
		{"revoked", known + "@revoked " + known, "the host key is revoked"},
		{"not known hosts", known + "nonsense\n", "the known hosts cannot be read: line 2"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			access := Access{Owner: tt.reason, URL: host.URL("app"), Credential: &Credential{Fingerprint: "f", SSHKey: private, KnownHosts: []byte(tt.known)}}
			_, err := m.Fetch(t.Context(), access, []string{"main"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestUnusableKeysAreReported(t *testing.T) {
	t.Parallel()
	_, locked, err := newLockedKey()
	if err != nil {
		t.Fatal(err)
	}
	for want, key := range map[string][]byte{
		"ssh needs a credential with a key": nil,
		"is not a private key in PEM":       []byte("s3cret"),
		"has a passphrase":                  locked,
	} {
		_, err := newSSHTarget(Access{URL: "git@host:repo", Credential: &Credential{Fingerprint: "f", SSHKey: key}}, t.TempDir())
		var remote *RemoteError
		if !errors.As(err, &remote) || !strings.Contains(remote.Problem, want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
