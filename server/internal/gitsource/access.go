package gitsource

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"sync/atomic"
)

// Access describes how to read a repository.
type Access struct {
	// Owner is the owner of the mirror. What was fetched for one owner is never served to another.
	Owner string
	URL   string
	// Credential is nil for a public repository.
	Credential *Credential
	// Submodules includes submodules in trees.
	Submodules bool
	// Signers are the allowed signers of what Fetch returns, in the form that CheckSigners accepts. "" requires
	// no signature.
	Signers string

	parent string // the repository that this one is a submodule of
	depth  int    // nesting depth; 0 for the requested repository
	// opened counts the submodules of the requested commit, at any depth.
	opened *atomic.Int32
}

// Credential is a secret in plain text, for the duration of one call. It stays in this process: git, its command
// line, its environment and the disk never contain it. Printing and logging show only the fingerprint.
type Credential struct {
	// Fingerprint identifies the credential without revealing it. Equal fingerprints mean equal access, so every
	// secret needs its own.
	Fingerprint string
	// Username and Password are for https. A token is a password. If Username is "", the one that hosts expect
	// with a token is used. Username is also the user of an ssh URL that has none.
	Username, Password string
	// SSHKey is a private key without a passphrase, in PEM, for ssh.
	SSHKey []byte
	// KnownHosts are the trusted host keys, in the format of OpenSSH. Other host keys are rejected.
	KnownHosts []byte
}

// Format prevents every fmt verb from printing the secret.
func (c Credential) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "credential "+c.Fingerprint)
}

// LogValue prevents the secret from being logged.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.Fingerprint) }

// MarshalJSON always fails, so that the secret is not written by accident.
func (c Credential) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a credential in plain text must not be written")
}

// reader identifies the credential in the access records of a mirror.
func (a Access) reader() (string, error) {
	switch {
	case a.Credential == nil:
		return "", nil
	case a.Credential.Fingerprint == "":
		return "", errors.New("a credential has no fingerprint")
	}
	return a.Credential.Fingerprint, nil
}

// tokenUser returns the default user name for a token. Most hosts ignore it.
func tokenUser(host string) string {
	if host == "bitbucket.org" {
		return "x-token-auth"
	}
	return "x-access-token"
}

// basicAuth returns the user and password for a web server, or nil without a credential.
func (a Access) basicAuth(u *url.URL) (*url.Userinfo, error) {
	c := a.Credential
	switch {
	case c == nil:
		return nil, nil
	case c.Password == "":
		return nil, &RemoteError{URL: a.URL, Problem: "this URL needs a password or token, but the credential has none"}
	case u.Scheme == "http" && !isThisMachine(u.Hostname()):
		return nil, &RemoteError{URL: a.URL, Problem: "credentials are not sent over plain http: use https"}
	case c.Username == "":
		return url.UserPassword(tokenUser(u.Hostname()), c.Password), nil
	}
	return url.UserPassword(c.Username, c.Password), nil
}
