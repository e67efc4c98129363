package gitsource

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"sync/atomic"
)

// Access is how a repository is read.
type Access struct {
	// Owner is whom it is read for. Nothing that was fetched for one owner is served to another.
	Owner string
	URL   string
	// Credential is nil for what everybody may read.
	Credential *Credential
	// Submodules lets trees lead into submodules.
	Submodules bool
	// Signers are who must have signed what Fetch returns, in the form that CheckSigners takes; "" asks
	// for no signature.
	Signers string

	parent string // the repository that this one is a submodule of
	depth  int    // how many repositories it is away from the one that was asked for
	// opened counts the submodules of the commit that was asked for, of whatever depth.
	opened *atomic.Int32
}

// Credential is a secret in the clear, for as long as one call needs it. It stays in this process:
// git, its command line, its environment and the disk never see it. Printing and logging it shows
// the fingerprint alone.
type Credential struct {
	// Fingerprint names the credential without telling it. Equal fingerprints mean equal access, so
	// another secret needs another one.
	Fingerprint string
	// Username and Password are for https; a token is a password. With no user name that is used
	// which hosts expect beside a token. Username is also that of an ssh URL that names none.
	Username, Password string
	// SSHKey is a private key without a passphrase, in PEM, for ssh.
	SSHKey []byte
	// KnownHosts are the host keys that are trusted, in the format of OpenSSH. Others are refused.
	KnownHosts []byte
}

// Format keeps the secret out of every fmt verb.
func (c Credential) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "credential "+c.Fingerprint)
}

// LogValue keeps the secret out of logs.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.Fingerprint) }

// MarshalJSON refuses: a secret is not written down by accident.
func (c Credential) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a credential in the clear is not to be written")
}

// reader names who reads, for what a mirror remembers about who may.
func (a Access) reader() (string, error) {
	switch {
	case a.Credential == nil:
		return "", nil
	case a.Credential.Fingerprint == "":
		return "", errors.New("a credential has no fingerprint")
	}
	return a.Credential.Fingerprint, nil
}

// tokenUser is the user name that goes with a token where none is given. Most hosts ignore it.
func tokenUser(host string) string {
	if host == "bitbucket.org" {
		return "x-token-auth"
	}
	return "x-access-token"
}

// basicAuth returns what a credential says to a web server, nil for none.
func (a Access) basicAuth(u *url.URL) (*url.Userinfo, error) {
	c := a.Credential
	switch {
	case c == nil:
		return nil, nil
	case c.Password == "":
		return nil, &RemoteError{URL: a.URL, Problem: "the credential holds no password or token, which this URL needs"}
	case u.Scheme == "http" && !isThisMachine(u.Hostname()):
		return nil, &RemoteError{URL: a.URL, Problem: "a credential is not sent over plain http: use https"}
	case c.Username == "":
		return url.UserPassword(tokenUser(u.Hostname()), c.Password), nil
	}
	return url.UserPassword(c.Username, c.Password), nil
}
