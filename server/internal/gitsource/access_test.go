package gitsource_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
	"github.com/kedge-dev/kedge/server/internal/gitsource"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// privateRepo is a repository that needs a credential.
type privateRepo struct {
	server *gitserver.Server
	repo   *gitserver.Repo
	dir    string // the folder of the mirrors
	m      *gitsource.Manager
	log    *syncBuffer
	roots  *x509.CertPool
	url    func(repo string) string
	// credential returns a credential by name. allow makes the named credentials the only valid ones.
	credential func(name string) *gitsource.Credential
	allow      func(names ...string)
	// readOnly restricts credentials to read access.
	readOnly func()
}

// syncBuffer is a buffer for a log, safe for concurrent use.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// secretOf returns the secret of a credential for https.
func secretOf(name string) string { return "s3cret-" + name }

// overPrivate runs a test with a private repository over https and with one over ssh.
func overPrivate(t *testing.T, test func(t *testing.T, p *privateRepo)) {
	t.Helper()
	for _, transport := range []string{"https", "ssh"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			p := &privateRepo{dir: filepath.Join(t.TempDir(), "mirrors"), log: &syncBuffer{}}
			p.server, p.repo = startServer(t)
			cfg := gitsource.Config{
				Dir: p.dir, Addresses: &egress.Policy{AllowLoopback: true}, Log: slog.New(slog.NewTextHandler(p.log, nil)),
			}
			if transport == "https" {
				p.serveTLS(t, &cfg)
			} else {
				p.serveSSH(t)
			}
			p.roots = cfg.RootCAs
			p.m = p.again(t, cfg)
			test(t, p)
		})
	}
}

// again returns another manager of the same mirrors.
func (p *privateRepo) again(t *testing.T, cfg gitsource.Config) *gitsource.Manager {
	t.Helper()
	cfg.Dir, cfg.RootCAs = p.dir, p.roots
	m, err := gitsource.New(cfg)
	check(t, err)
	t.Cleanup(func() { check(t, m.Close()) })
	return m
}

func (p *privateRepo) serveTLS(t *testing.T, cfg *gitsource.Config) {
	t.Helper()
	https, err := p.server.ServeTLS()
	check(t, err)
	cfg.RootCAs = https.Pool()
	p.url = https.URL
	p.credential = func(name string) *gitsource.Credential {
		return &gitsource.Credential{Fingerprint: "print of " + name, Username: name, Password: secretOf(name)}
	}
	p.allow = func(names ...string) {
		users := map[string]string{}
		for _, name := range names {
			users[name] = secretOf(name)
		}
		p.server.Protect("app", users)
	}
	p.readOnly = func() { p.server.ProtectPush("app", map[string]string{}) }
}

func (p *privateRepo) serveSSH(t *testing.T) {
	t.Helper()
	server, err := p.server.ServeSSH()
	check(t, err)
	p.url = server.URL
	keys := newKeys()
	p.credential = func(name string) *gitsource.Credential {
		return &gitsource.Credential{Fingerprint: "print of " + name, SSHKey: keys.private(t, name), KnownHosts: server.KnownHosts()}
	}
	p.allow = func(names ...string) { server.Authorize(keys.public(t, names...)...) }
	p.readOnly = func() { server.SetReadOnly(true) }
}

func (p *privateRepo) access(owner, credential string) gitsource.Access {
	a := gitsource.Access{Owner: owner, URL: p.url("app")}
	if credential != "" {
		a.Credential = p.credential(credential)
	}
	return a
}

// fetch fetches main and checks its commit. A want of "" means that the repository is not readable.
func (p *privateRepo) fetch(t *testing.T, a gitsource.Access, want string) {
	t.Helper()
	refs, err := p.m.Fetch(t.Context(), a, []string{"main"})
	if want == "" {
		checkNotReadable(t, a.URL, err)
		return
	}
	check(t, err)
	if got := refs["main"].Commit; got != want {
		t.Errorf("main is %s, want %s", got, want)
	}
	tree, err := p.m.Tree(t.Context(), a, want)
	check(t, err)
	if _, err := tree.List(t.Context(), "."); err != nil {
		t.Error(err)
	}
}

// checkNotReadable checks the whole message, because a tenant must not learn more.
func checkNotReadable(t *testing.T, url string, err error) {
	t.Helper()
	if want := fmt.Sprintf("reading %s: repository not found or not readable", url); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func (p *privateRepo) mirrors(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "*.git"))
	check(t, err)
	return found
}

// covers: G1 (https with a token, ssh with a key and known hosts)
func TestPrivateRepositoriesAreReadWithACredential(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("alice")
		first := commit(t, p.repo, map[string]string{"a.yaml": "1"})
		p.fetch(t, p.access("", "alice"), first)
		check(t, p.repo.Tag(t.Context(), "v1", "a release"))
		check(t, p.repo.Push(t.Context(), "refs/tags/v1"))
		second := commit(t, p.repo, map[string]string{"a.yaml": "2"})
		refs, err := p.m.Fetch(t.Context(), p.access("", "alice"), []string{"main", "v1", "", first, "nowhere"})
		check(t, err)
		for revision, want := range map[string]string{"main": second, "v1": first, "": second, first: first, "nowhere": ""} {
			if refs[revision].Commit != want {
				t.Errorf("%q is %+v, want %s", revision, refs[revision], want)
			}
		}
	})
}

// covers: G3
func TestRotatedCredentialIsUsed(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("old")
		id := commit(t, p.repo, map[string]string{"a.yaml": "1"})
		p.fetch(t, p.access("t", "old"), id)
		marker := filepath.Join(p.mirrors(t)[0], "marker")
		check(t, os.WriteFile(marker, nil, 0o600))

		p.allow("new")
		p.fetch(t, p.access("t", "new"), id)
		p.fetch(t, p.access("t", "old"), "")
		p.fetch(t, p.access("t", "wrong"), "")
		p.fetch(t, p.access("t", "new"), id)
		id = commit(t, p.repo, map[string]string{"a.yaml": "2"})
		p.fetch(t, p.access("t", "wrong"), "")
		p.fetch(t, p.access("t", "new"), id)
		if _, err := os.Stat(marker); err != nil || len(p.mirrors(t)) != 1 {
			t.Errorf("the mirror was recreated: %v, there are %d", err, len(p.mirrors(t)))
		}
	})
}

// covers: G3
func TestNewCredentialIsVerifiedEvenIfNothingIsFetched(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("good", "also good")
		id := commit(t, p.repo, map[string]string{"a.yaml": "1"})
		p.fetch(t, p.access("t", "good"), id)
		for credential, want := range map[string]bool{"": false, "wrong": false, "also good": true} {
			a := p.access("t", credential)
			if _, err := p.m.Tree(t.Context(), a, id); !errors.Is(err, gitsource.ErrNotFetched) {
				t.Errorf("the tree before a fetch with %q returned %v", credential, err)
			}
			refs, err := p.m.Fetch(t.Context(), a, []string{id})
			if want && (err != nil || refs[id].Commit != id) {
				t.Errorf("fetching the commit with %q returned %v, %v", credential, refs, err)
			}
			if !want {
				if err == nil {
					t.Errorf("fetching the commit with %q returned %v", credential, refs)
				}
				if _, err := p.m.Tree(t.Context(), a, id); !errors.Is(err, gitsource.ErrNotFetched) {
					t.Errorf("the tree with %q returned %v", credential, err)
				}
			}
		}
	})
}

// covers: G2
// defect: B7
func TestOwnersShareNothing(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("one")
		id := commit(t, p.repo, map[string]string{"a.yaml": "1"})
		p.fetch(t, p.access("one", "one"), id)
		for _, credential := range []string{"", "two", "one"} {
			a := p.access("two", credential)
			if _, err := p.m.Tree(t.Context(), a, id); !errors.Is(err, gitsource.ErrNotFetched) {
				t.Errorf("another owner's tree with %q returned %v", credential, err)
			}
		}
		absent := p.access("two", "two")
		absent.URL = p.url("absent")
		_, err := p.m.Fetch(t.Context(), absent, []string{"main"})
		checkNotReadable(t, absent.URL, err)
		p.fetch(t, p.access("two", "two"), "")
		// Two owners with the same credential share nothing either.
		p.fetch(t, p.access("two", "one"), id)
		if n := len(p.mirrors(t)); n < 2 {
			t.Errorf("two owners have %d mirrors, want 2", n)
		}
	})
}

// covers: G2 (only the operator learns why a tenant cannot read a repository)
func TestCauseOfAnUnreadableRepositoryIsOnlyLogged(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("good")
		commit(t, p.repo, map[string]string{"a.yaml": "1"})
		for range 2 {
			p.fetch(t, p.access("t", "wrong"), "")
		}
		if n := strings.Count(p.log.String(), "cannot read a repository"); n != 1 {
			t.Errorf("the log contains the problem %d times, want once:\n%s", n, p.log)
		}
	})
}

func TestSecretsAreNotStoredOrLogged(t *testing.T) {
	t.Parallel()
	overPrivate(t, func(t *testing.T, p *privateRepo) {
		p.allow("good")
		commit(t, p.repo, map[string]string{"a.yaml": "1"})
		p.fetch(t, p.access("t", "wrong"), "")
		good := p.access("t", "good")
		secrets := []string{secretOf("good"), secretOf("wrong")}
		if key := good.Credential.SSHKey; key != nil {
			secrets = []string{strings.Split(string(key), "\n")[2]}
		}
		_, err := p.m.Fetch(t.Context(), good, []string{"main"})
		check(t, err)
		text := fmt.Sprintf("%s %v %+v %#v %s", p.log, good, good.Credential, good, *good.Credential)
		slog.New(slog.NewTextHandler(p.log, nil)).Info("x", "access", good, "credential", good.Credential)
		if _, err := json.Marshal(good); err == nil {
			t.Error("a credential was marshaled to JSON")
		}
		err = filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			text += string(data)
			return err
		})
		check(t, err)
		for _, secret := range secrets {
			if strings.Contains(text+p.log.String(), secret) {
				t.Errorf("%q was found", secret)
			}
		}
	})
}
