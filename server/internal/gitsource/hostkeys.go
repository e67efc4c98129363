package gitsource

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// hostKeys is what is known of a host's keys.
type hostKeys struct {
	host     string // with the port
	callback ssh.HostKeyCallback
	// algorithms are those of the keys that are known, so that the server shows one of these and not
	// another of its own; nil when none are known.
	algorithms []string
}

// hostKeyError says why a host is not trusted.
type hostKeyError struct{ problem string }

func (e *hostKeyError) Error() string { return e.problem }

// readHostKeys reads known hosts in the format of OpenSSH, and fails with *hostKeyError for others.
// The library reads files only: there is one in dir for a moment.
func readHostKeys(known []byte, host, dir string) (*hostKeys, error) {
	file, err := os.CreateTemp(dir, "known-hosts-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }() // host keys are no secret
	_, err = file.Write(known)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	callback, err := knownhosts.New(file.Name())
	if err != nil {
		problem := strings.NewReplacer("knownhosts: ", "", file.Name()+":", "line ").Replace(err.Error())
		return nil, &hostKeyError{"the known hosts cannot be read: " + problem}
	}
	h := &hostKeys{host: host, callback: callback}
	// A host with a certificate has a key that need not be known.
	if !bytes.Contains(known, []byte("@cert-authority")) {
		h.algorithms, err = h.knownAlgorithms()
	}
	return h, err
}

// check is an ssh.HostKeyCallback. Errors of what is not trusted are of type *hostKeyError.
func (h *hostKeys) check(host string, remote net.Addr, key ssh.PublicKey) error {
	err := h.callback(host, remote, key)
	var wrong *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case errors.As(err, &revoked):
		return &hostKeyError{"the host key is revoked"}
	case errors.As(err, &wrong) && len(wrong.Want) == 0:
		return &hostKeyError{fmt.Sprintf("the host key is not known: if %s is right, add this line to the known hosts: %s",
			ssh.FingerprintSHA256(key), knownhosts.Line([]string{host}, key))}
	case errors.As(err, &wrong):
		return &hostKeyError{fmt.Sprintf("the host key %s is not the one that is known: either it was replaced, or this is not the host",
			ssh.FingerprintSHA256(key))}
	}
	return err
}

// knownAlgorithms asks for a key that cannot be known and reads what would have been.
func (h *hostKeys) knownAlgorithms() ([]string, error) {
	stranger, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return nil, err
	}
	var wrong *knownhosts.KeyError
	if !errors.As(h.callback(h.host, &net.TCPAddr{}, stranger), &wrong) {
		return nil, nil
	}
	var out []string
	for _, known := range wrong.Want {
		kinds := []string{known.Key.Type()}
		if known.Key.Type() == ssh.KeyAlgoRSA {
			kinds = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, kind := range kinds {
			if !slices.Contains(out, kind) {
				out = append(out, kind)
			}
		}
	}
	return out, nil
}
