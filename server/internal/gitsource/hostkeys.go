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

// hostKeys are the known keys of a host.
type hostKeys struct {
	host     string // with the port
	callback ssh.HostKeyCallback
	// algorithms are the algorithms of the known keys, so that the server presents one of these keys; nil if no
	// key is known.
	algorithms []string
}

// hostKeyError is returned for a host that is not trusted. It is for users.
type hostKeyError struct{ problem string }

func (e *hostKeyError) Error() string { return e.problem }

// readHostKeys parses known hosts in the format of OpenSSH. It returns *hostKeyError for invalid ones. The
// library reads only files, so it writes a temporary file to dir.
func readHostKeys(known []byte, host, dir string) (*hostKeys, error) {
	file, err := os.CreateTemp(dir, "known-hosts-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }() // host keys are not secret
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
	// A host with a certificate may have a key that is not listed.
	if !bytes.Contains(known, []byte("@cert-authority")) {
		h.algorithms, err = h.knownAlgorithms()
	}
	return h, err
}

// check is an ssh.HostKeyCallback. It returns *hostKeyError for a key that is not trusted.
func (h *hostKeys) check(host string, remote net.Addr, key ssh.PublicKey) error {
	err := h.callback(host, remote, key)
	var wrong *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case errors.As(err, &revoked):
		return &hostKeyError{"the host key is revoked"}
	case errors.As(err, &wrong) && len(wrong.Want) == 0:
		return &hostKeyError{fmt.Sprintf("the host key is unknown: if the fingerprint %s is correct, add this line to the known hosts: %s",
			ssh.FingerprintSHA256(key), knownhosts.Line([]string{host}, key))}
	case errors.As(err, &wrong):
		return &hostKeyError{fmt.Sprintf("the host key %s differs from the known one: the key was replaced, or this is another host",
			ssh.FingerprintSHA256(key))}
	}
	return err
}

// knownAlgorithms checks a key that cannot be known, and reads the known keys from the error.
func (h *hostKeys) knownAlgorithms() ([]string, error) {
	unusedKey, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return nil, err
	}
	var wrong *knownhosts.KeyError
	if !errors.As(h.callback(h.host, &net.TCPAddr{}, unusedKey), &wrong) {
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
