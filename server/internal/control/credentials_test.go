package control_test

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// guarded is a deployment from a protected repository, read with a credential.
func guarded(t *testing.T) (*replica, control.RepositoryView) {
	t.Helper()
	r := newReplica(t)
	r.git.Protect("apps", map[string]string{"bot": "first"})
	r.enroll(t, "paris")
	_, err := r.CreateCredential(t.Context(), admin, "default", control.CreateCredential{Name: "git", Kind: fleet.CredentialHTTPS, Username: "bot", Secret: "first"})
	ok(t, err)
	repo, err := r.CreateRepository(t.Context(), admin, "default", control.CreateRepository{URL: r.url, Credential: "git"})
	ok(t, err)
	commit := r.push(t, map[string]string{"app/cm.yaml": configMap("a", "1")})
	r.deploy(t, "app", "app")
	r.await(t, "app", atCommit(commit))
	return r, repo
}

// awaitRepository waits until a repository can be read, or cannot.
func (r *replica) awaitRepository(t *testing.T, p auth.Principal, tenant string, id fleet.RepositoryID, readable bool) control.RepositoryView {
	t.Helper()
	var repo control.RepositoryView
	testkit.Eventually(t, patience, func(ctx context.Context) (err error) {
		repo, err = r.Repository(ctx, p, tenant, id)
		if err == nil && (repo.CheckedAt.IsZero() || (repo.Error == "") != readable) {
			err = fmt.Errorf("its error is %q", repo.Error)
		}
		return err
	})
	return repo
}

// covers: G3
// defect: B3
func TestARotatedCredentialIsFollowedInStatusAndInUse(t *testing.T) {
	t.Parallel()
	r, repo := guarded(t)
	set := func(secret string) {
		t.Helper()
		_, err := r.UpdateCredential(t.Context(), admin, "default", "git", control.UpdateCredential{Secret: &secret}, control.Match{})
		ok(t, err)
	}
	before := r.awaitRepository(t, admin, "default", repo.ID, true)
	if before.Credential != "git" || before.Deployments != 1 {
		t.Errorf("got %+v", before)
	}
	was, err := r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	set("wrong") // without a push, and the next poll is an hour away
	bad := r.awaitRepository(t, admin, "default", repo.ID, false)
	if strings.Contains(bad.Error, "wrong") || strings.Contains(bad.Error, "first") {
		t.Errorf("a secret is in the error: %q", bad.Error)
	}
	d, err := r.Deployment(t.Context(), admin, "default", "app")
	ok(t, err)
	if d.Sync != fleet.SyncFailed || d.Targets[0].Desired.Version != was.Targets[0].Desired.Version {
		t.Errorf("reads %s, and has %+v", d.Sync, d.Targets[0].Desired)
	}
	r.git.Protect("apps", map[string]string{"bot": "second"})
	set("second")
	r.awaitRepository(t, admin, "default", repo.ID, true)
	r.await(t, "app", atCommit(r.push(t, map[string]string{"app/cm.yaml": configMap("a", "2")})))
	last := fetchLast(t, r.store)
	set("second")
	// The worker may still be recording which commit it has evaluated.
	ok(t, r.store.View(t.Context(), func(tx store.Tx) error {
		changes, err := tx.Changes().AfterAllTenants(t.Context(), last, 0)
		for _, c := range changes {
			if c.Kind == store.ChangeCredential {
				t.Errorf("the same secret again changes something: %+v", c)
			}
		}
		return err
	}))
	// Without a credential it cannot be read.
	_, err = r.UpdateRepository(t.Context(), admin, "default", repo.ID, control.UpdateRepository{Credential: ptr("")}, control.Match{})
	ok(t, err)
	r.awaitRepository(t, admin, "default", repo.ID, false)
}

func fetchLast(t *testing.T, st store.Store) int64 {
	t.Helper()
	var last int64
	ok(t, st.View(t.Context(), func(tx store.Tx) (err error) {
		last, err = tx.Changes().Last(t.Context())
		return err
	}))
	return last
}

// covers: G2
func TestARepositoryThatMayNotBeReadLooksLikeNone(t *testing.T) {
	t.Parallel()
	r, repo := guarded(t)
	other, err := r.CreateTenant(t.Context(), admin, control.CreateTenant{Name: "other"})
	ok(t, err)
	stranger := auth.Principal{Name: "stranger", Roles: map[fleet.TenantID]fleet.Role{other.ID: fleet.RoleAdmin}}
	problems := map[string]string{}
	for name, url := range map[string]string{"forbidden": r.url, "missing": strings.Replace(r.url, "apps", "nope", 1)} {
		_, err := r.CreateDeployment(t.Context(), stranger, "other", control.CreateDeployment{Name: name, Source: fleet.Source{RepoURL: url, Path: "app"}})
		ok(t, err)
		testkit.Eventually(t, patience, func(ctx context.Context) error {
			d, err := r.Deployment(ctx, stranger, "other", name)
			if err == nil && d.Sync != fleet.SyncFailed {
				err = fmt.Errorf("it reads %s: %q", d.Sync, d.Message)
			}
			problems[name] = strings.ReplaceAll(d.Message, url, "URL")
			if d.Rendered.Commit != "" {
				t.Fatal("another tenant's cache served it")
			}
			return err
		})
	}
	if problems["forbidden"] != problems["missing"] {
		t.Errorf("they can be distinguished: %q and %q", problems["forbidden"], problems["missing"])
	}
	if _, err := r.Repository(t.Context(), stranger, "other", repo.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another tenant's repository gives %v", err)
	}
	if _, err := r.CreateRepository(t.Context(), stranger, "other", control.CreateRepository{URL: "https://example.com/x.git", Credential: "git"}); err == nil {
		t.Error("another tenant's credential was taken")
	}
}

// covers: G2 (write-only)
func TestSecretsAreNeverReturned(t *testing.T) {
	t.Parallel()
	r, _ := guarded(t)
	list, err := r.Credentials(t.Context(), admin, "default", store.Page{})
	ok(t, err)
	if len(list) != 1 || list[0].Sealed.Data != nil || list[0].Sealed.Key != nil || list[0].Username != "bot" {
		t.Errorf("got %+v", list)
	}
	entries, err := r.Audit(t.Context(), admin, "default", store.AuditFilter{Kind: "credential"})
	ok(t, err)
	if len(entries) != 1 || strings.Contains(fmt.Sprint(entries), "first") {
		t.Errorf("got %+v", entries)
	}
	wantConflict(t, r.DeleteCredential(t.Context(), admin, "default", "git", control.Match{}), "change them first")
}

// keyPair is a private key as ssh-keygen writes it, with a passphrase unless that is "", and the line
// of a host that has it.
func keyPair(t *testing.T, passphrase string) (private, knownHosts string) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	ok(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	ok(t, err)
	host, err := ssh.NewPublicKey(public)
	ok(t, err)
	return string(pem.EncodeToMemory(block)), "git.example.com " + string(ssh.MarshalAuthorizedKey(host))
}

func TestBadCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	r := newReplica(t)
	key, hosts := keyPair(t, "")
	locked, _ := keyPair(t, "secret")
	ssh := control.CreateCredential{Name: "git", Kind: fleet.CredentialSSH, Secret: key, KnownHosts: "# ours\n\n" + hosts}
	https := control.CreateCredential{Name: "git", Kind: fleet.CredentialHTTPS, Username: "bot", Secret: "word"}
	cases := []struct {
		reason, field string
		good          control.CreateCredential
		change        func(*control.CreateCredential)
	}{
		{"a bad name", "name", ssh, func(c *control.CreateCredential) { c.Name = "Git" }},
		{"no kind that is known", "kind", ssh, func(c *control.CreateCredential) { c.Kind = "ftp" }},
		{"no secret", "secret", ssh, func(c *control.CreateCredential) { c.Secret = "" }},
		{"no private key", "secret", ssh, func(c *control.CreateCredential) { c.Secret = "hunter2" }},
		{"a part of a private key", "secret", ssh, func(c *control.CreateCredential) { c.Secret = key[:len(key)/2] }},
		{"a public key", "secret", ssh, func(c *control.CreateCredential) { c.Secret = hosts }},
		{"a private key with a passphrase", "secret", ssh, func(c *control.CreateCredential) { c.Secret = locked }},
		{"a user name of two lines", "username", ssh, func(c *control.CreateCredential) { c.Username = "a\nb" }},
		{"no known hosts", "knownHosts", ssh, func(c *control.CreateCredential) { c.KnownHosts = "" }},
		{"comments alone", "knownHosts", ssh, func(c *control.CreateCredential) { c.KnownHosts = "# nobody\n" }},
		{"keys that are revoked alone", "knownHosts", ssh, func(c *control.CreateCredential) { c.KnownHosts = "@revoked " + hosts }},
		{"a host without a key", "knownHosts", ssh, func(c *control.CreateCredential) { c.KnownHosts = "host ssh-ed25519 AAAA" }},
		{"one bad line among good ones", "knownHosts", ssh, func(c *control.CreateCredential) { c.KnownHosts = hosts + "git.example.com\n" + hosts }},
		{"known hosts for https", "knownHosts", https, func(c *control.CreateCredential) { c.KnownHosts = hosts }},
		{"a password with a line break", "secret", https, func(c *control.CreateCredential) { c.Secret = "word\n" }},
		{"a password with an escape", "secret", https, func(c *control.CreateCredential) { c.Secret = "wo\x1brd" }},
		{"a user name with an escape", "username", https, func(c *control.CreateCredential) { c.Username = "bo\x1bt" }},
	}
	for _, c := range cases {
		req := c.good
		c.change(&req)
		_, err := r.CreateCredential(t.Context(), admin, "default", req)
		if wantInvalid(t, err, c.field); t.Failed() {
			t.Fatalf("%s: got %v", c.reason, err)
		}
		if strings.Contains(c.reason, "passphrase") && !strings.Contains(err.Error(), "passphrase") {
			t.Errorf("%s: got %v", c.reason, err)
		}
		if strings.Contains(err.Error(), req.Secret) && req.Secret != "" {
			t.Errorf("%s: the error contains the secret: %v", c.reason, err)
		}
	}
	kept, err := r.Credentials(t.Context(), admin, "default", store.Page{})
	ok(t, err)
	if len(kept) != 0 {
		t.Errorf("kept %+v", kept)
	}
	_, err = r.CreateCredential(t.Context(), admin, "default", ssh)
	ok(t, err)
	_, err = r.UpdateCredential(t.Context(), admin, "default", "git", control.UpdateCredential{Secret: &locked}, control.Match{})
	wantInvalid(t, err, "secret")
	_, err = r.UpdateCredential(t.Context(), admin, "default", "git", control.UpdateCredential{KnownHosts: ptr("x y")}, control.Match{})
	wantInvalid(t, err, "knownHosts")
	_, err = r.UpdateCredential(t.Context(), admin, "default", "git", control.UpdateCredential{KnownHosts: &hosts}, control.Match{})
	ok(t, err) // without the secret, which nobody knows any more
	_, err = r.CreateRepository(t.Context(), admin, "default", control.CreateRepository{URL: r.url, Credential: "git"})
	wantInvalid(t, err, "credential") // a key for ssh is of no use to http
}

// A key is rotated by adding a new first one; a secret that no key decrypts is reported, and does not affect
// the others.
//
// defect: B19
func TestCredentialsAreSealedUnderTheNewestKey(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	lines := map[string]string{}
	for _, id := range []string{"old", "lost", "new"} {
		line, err := seal.NewKey(id)
		ok(t, err)
		lines[id] = line
	}
	with := func(ids ...string) *control.Service {
		t.Helper()
		var file string
		for _, id := range ids {
			file += lines[id]
		}
		ring, err := seal.Parse([]byte(file))
		ok(t, err)
		svc, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32)), Sealer: ring}, d.store, noGit{})
		ok(t, err)
		return svc
	}
	for name, key := range map[string]string{"a": "old", "b": "old", "c": "lost"} {
		_, err := with(key).CreateCredential(t.Context(), root, "default", control.CreateCredential{Name: name, Kind: fleet.CredentialHTTPS, Secret: "s-" + name})
		ok(t, err)
	}
	n, err := with("new", "old").ResealCredentials(t.Context())
	if n != 2 || !errors.Is(err, seal.ErrWrongKey) || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("sealed %d: %v", n, err)
	}
	if n, err := with("new", "lost").ResealCredentials(t.Context()); n != 1 || err != nil {
		t.Errorf("sealed %d: %v", n, err)
	}
	ok(t, d.store.View(t.Context(), func(tx store.Tx) error {
		left, err := tx.Credentials().NotSealedByAllTenants(t.Context(), "new", 10)
		if len(left) != 0 {
			t.Errorf("left: %d", len(left))
		}
		return err
	}))
	keyless, err := control.New(control.Config{Key: []byte(strings.Repeat("k", 32))}, d.store, noGit{})
	ok(t, err)
	_, err = keyless.CreateCredential(t.Context(), root, "default", control.CreateCredential{Name: "x", Kind: fleet.CredentialHTTPS, Secret: "s"})
	wantConflict(t, err, "key file")
}
