package gitsource_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server/internal/gitsource"
)

// signing is a work tree whose commits are signed by real programs.
type signing struct {
	dir string
	env []string
	url string
}

func newSigning(t *testing.T, url string) *signing {
	t.Helper()
	s := &signing{dir: t.TempDir(), url: url}
	s.env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com")
	s.git(t, "init", "--quiet", "--initial-branch=main")
	return s
}

func (s *signing) git(t *testing.T, args ...string) string {
	t.Helper()
	return s.program(t, "git", args...)
}

func (s *signing) program(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// commit creates a commit, with these options of git before the command, and pushes it.
func (s *signing) commit(t *testing.T, options ...string) string {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(s.dir, "file"), []byte(strings.Join(options, " ")), 0o600))
	s.git(t, "add", "file")
	args := append(options, "commit", "--quiet", "--allow-empty", "-m", "a commit")
	if len(options) > 0 {
		args = append(args, "-S")
	}
	s.git(t, args...)
	s.git(t, "push", "--quiet", s.url, "+HEAD:refs/heads/main")
	return s.git(t, "rev-parse", "HEAD")
}

// sshKey creates a key of a kind and returns the options to sign with it, and its line in the list of signers.
func (s *signing) sshKey(t *testing.T, kind string) (options []string, line string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	s.program(t, "ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "comment", "-f", file)
	public, err := os.ReadFile(file + ".pub")
	check(t, err)
	return []string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + file}, "ann@example.com " + strings.TrimSpace(string(public))
}

// pgpKey creates a key and returns the options to sign with it, and the public key.
func (s *signing) pgpKey(t *testing.T, name string) (options []string, public string) {
	t.Helper()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("gpg is not installed; TestOpenPGPSignatures creates signatures without it")
	}
	home := t.TempDir()
	s.env = append(s.env, "GNUPGHOME="+home)
	t.Cleanup(func() {
		cmd := exec.Command("gpgconf", "--kill", "gpg-agent")
		cmd.Env = append(os.Environ(), "GNUPGHOME="+home)
		_ = cmd.Run() // only for this home
	})
	s.program(t, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never")
	return []string{"-c", "user.signingkey=" + name}, s.program(t, "gpg", "--armor", "--export", name)
}

func refOf(t *testing.T, m *gitsource.Manager, url, signers, revision string) gitsource.Ref {
	t.Helper()
	refs, err := m.Fetch(t.Context(), gitsource.Access{URL: url, Signers: signers}, []string{revision})
	check(t, err)
	return refs[revision]
}

func wantRejected(t *testing.T, ref gitsource.Ref, id, reason string) {
	t.Helper()
	var rejected *gitsource.SignatureError
	if !errors.As(ref.Err, &rejected) || rejected.ID != id || !strings.Contains(rejected.Reason, reason) || ref.Commit != "" {
		t.Errorf("got %+v, want %s rejected because %q", ref, id, reason)
	}
}

func TestOnlyCommitsOfAllowedSignersAreAccepted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ed25519", "ecdsa", "rsa", "pgp"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server, _ := startServer(t)
			url := server.URL("app")
			s := newSigning(t, url)
			m := newManager(t)
			var options, otherOptions []string
			var signer, otherKey string
			if kind == "pgp" {
				options, signer = s.pgpKey(t, "ann@example.com")
				otherOptions, otherKey = s.sshKey(t, "ed25519")
			} else {
				options, signer = s.sshKey(t, kind)
				otherOptions, otherKey = s.sshKey(t, kind)
			}
			unsigned := s.commit(t)
			wantRejected(t, refOf(t, m, url, signer, "main"), unsigned, "it is not signed")
			if got := refOf(t, m, url, "", "main"); got.Commit != unsigned {
				t.Errorf("without signers: %+v", got)
			}
			good := s.commit(t, options...)
			if got := refOf(t, m, url, signer, "main"); got.Err != nil || got.Commit != good {
				t.Errorf("a good signature returned %+v", got)
			}
			if got := refOf(t, m, url, otherKey+"\n\n"+signer+"\n", "main"); got.Err != nil || got.Commit != good {
				t.Errorf("one of two signers returned %+v", got)
			}
			if got := refOf(t, m, url, signer, good); got.Err != nil || got.Commit != good {
				t.Errorf("the commit by its id returned %+v", got)
			}
			if kind != "pgp" {
				late := strings.Replace(signer, " ", ` valid-before="20200101" `, 1)
				wantRejected(t, refOf(t, m, url, late, "main"), good, "was not valid on")
			}
			bad := s.commit(t, otherOptions...)
			wantRejected(t, refOf(t, m, url, signer, "main"), bad, "not in the list of signers")
			forged := forge(t, s, good)
			wantRejected(t, refOf(t, m, url, signer, "main"), forged, "invalid")
		})
	}
}

// forge creates a commit with the signature of another one, and pushes it.
func forge(t *testing.T, s *signing, signed string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "cat-file", "commit", signed)
	cmd.Dir = s.dir
	data, err := cmd.Output()
	check(t, err)
	cmd = exec.CommandContext(t.Context(), "git", "hash-object", "-t", "commit", "-w", "--stdin")
	cmd.Dir, cmd.Stdin = s.dir, bytes.NewReader(bytes.Replace(data, []byte("\n\na commit"), []byte("\n\nanother commit"), 1))
	out, err := cmd.Output()
	check(t, err)
	id := strings.TrimSpace(string(out))
	s.git(t, "push", "--quiet", s.url, "+"+id+":refs/heads/main")
	return id
}

// A user with push access and without a signing key cannot move a tag, even to a signed commit.
func TestSignatureOfACommitDoesNotCoverItsTag(t *testing.T) {
	t.Parallel()
	server, _ := startServer(t)
	url := server.URL("app")
	s := newSigning(t, url)
	m := newManager(t)
	options, signer := s.sshKey(t, "ed25519")
	otherOptions, _ := s.sshKey(t, "ed25519")
	id := s.commit(t)
	tag := func(name string, options []string, flags ...string) string {
		t.Helper()
		s.git(t, append(append(options, "tag", "--force"), append(flags, name)...)...)
		s.git(t, "push", "--quiet", url, "+refs/tags/"+name)
		return s.git(t, "rev-parse", "refs/tags/"+name)
	}
	tag("v1.0.0", options, "-s", "-m", "signed")
	otherKey := tag("v1.1.0", otherOptions, "-s", "-m", "signed")
	unsigned := tag("v1.2.0", nil, "-a", "-m", "not signed")
	tag("v1.3.0", nil)
	for _, revision := range []string{"v1.0.0", "semver:1.0.x", "refs/tags/v1.0.0"} {
		if got := refOf(t, m, url, signer, revision); got.Err != nil || got.Commit != id {
			t.Errorf("%s: %+v", revision, got)
		}
	}
	wantRejected(t, refOf(t, m, url, signer, "v1.1.0"), otherKey, "not in the list of signers")
	wantRejected(t, refOf(t, m, url, signer, "v1.2.0"), unsigned, "the tag is not signed")
	wantRejected(t, refOf(t, m, url, signer, "v1.3.0"), id, "the tag is not signed")
	// The signature of a tag is not valid for another name.
	other := s.git(t, "rev-parse", "refs/tags/v1.0.0")
	s.git(t, "push", "--quiet", url, other+":refs/tags/v2.0.0")
	wantRejected(t, refOf(t, m, url, signer, "v2.0.0"), other, `the signature is for the tag "v1.0.0"`)
	// The signature of the commit does not replace that of the tag.
	signed := s.commit(t, options...)
	tag("v3.0.0", nil)
	note := tag("v3.1.0", nil, "-a", "-m", "not signed")
	for revision, rejected := range map[string]string{"v3.0.0": signed, "refs/tags/v3.0.0": signed, "semver:3.0.x": signed, "semver:^3": note} {
		wantRejected(t, refOf(t, m, url, signer, revision), rejected, "sign the tag with git tag -s")
	}
	last := tag("v3.2.0", options, "-s", "-m", "signed")
	if got := refOf(t, m, url, signer, "semver:^3"); got.Err != nil || got.Commit != signed {
		t.Errorf("the signed tag %s returned %+v", last, got)
	}
}
