package control

import (
	"errors"
	"strings"
	"unicode"

	"golang.org/x/crypto/ssh"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// checkCredential refuses a credential that could never work: an early error with the field is better than a
// later error of another program. checkSecret checks the secret.
func checkCredential(c fleet.Credential) error {
	switch {
	case c.Kind != fleet.CredentialHTTPS && c.Kind != fleet.CredentialSSH:
		return fleet.Invalid("kind", "%q is neither %q nor %q", c.Kind, fleet.CredentialHTTPS, fleet.CredentialSSH)
	case len(c.Username) > maxUsername || strings.Contains(c.Username, ":") || strings.ContainsFunc(c.Username, unicode.IsControl):
		return fleet.Invalid("username", "must be one line of at most %d bytes without a colon and without control characters", maxUsername)
	case c.Kind == fleet.CredentialHTTPS && c.KnownHosts != "":
		return fleet.Invalid("knownHosts", "only a credential of kind %q has known hosts", fleet.CredentialSSH)
	case c.Kind == fleet.CredentialSSH:
		return checkKnownHosts(c.KnownHosts)
	}
	return nil
}

// checkSecret never reveals anything about the secret.
func checkSecret(kind fleet.CredentialKind, secret string) error {
	switch {
	case secret == "":
		return fleet.Invalid("secret", "is required: a password, a token, or a private key")
	case len(secret) > maxSecret:
		return fleet.Invalid("secret", "has at most %d bytes", maxSecret)
	case kind == fleet.CredentialSSH:
		return checkPrivateKey(secret)
	case strings.ContainsFunc(secret, unicode.IsControl):
		return fleet.Invalid("secret", "a password or token must be one line without control characters, such as a trailing line break")
	}
	return nil
}

func checkPrivateKey(secret string) error {
	_, err := ssh.ParsePrivateKey([]byte(secret))
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return fleet.Invalid("secret", "the private key has a passphrase, which is not supported: remove it with ssh-keygen -p, or create a separate key")
	case err != nil:
		return fleet.Invalid("secret", "not a valid ssh private key: use the whole file, from its BEGIN line to its END line")
	}
	return nil
}

// checkKnownHosts requires at least one valid key, and no line that would be ignored silently.
func checkKnownHosts(text string) error {
	if len(text) > maxKnownHosts {
		return fleet.Invalid("knownHosts", "has at most %d bytes", maxKnownHosts)
	}
	keys, number := 0, 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		marker, _, _, _, _, err := ssh.ParseKnownHosts([]byte(line))
		if err != nil {
			return fleet.Invalid("knownHosts", "line %d is not a host and its key, as ssh-keyscan prints them", number)
		}
		if marker != "revoked" {
			keys++
		}
	}
	if keys == 0 {
		return fleet.Invalid("knownHosts", "the trusted host keys are required, as ssh-keyscan prints them")
	}
	return nil
}
