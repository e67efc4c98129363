package gitsource

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"
)

const (
	maxSigners = 256 << 10
	pgpBegin   = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	pgpEnd     = "-----END PGP PUBLIC KEY BLOCK-----"
)

// SignersError is returned for an invalid list of signers.
type SignersError struct{ Problem string }

func (e *SignersError) Error() string { return e.Problem }

func badSigners(format string, args ...any) error {
	return &SignersError{Problem: fmt.Sprintf(format, args...)}
}

// signers are the allowed signers.
type signers struct {
	ssh []sshSigner
	pgp openpgp.EntityList
}

// sshSigner is one line of an allowed_signers file.
type sshSigner struct {
	key           []byte    // in the SSH wire format
	after, before time.Time // the validity of signatures; zero for no limit
}

// CheckSigners validates a list of signers: lines of an allowed_signers file of OpenSSH, and armored OpenPGP
// public keys. "" is valid and requires no signature. Errors are of type [*SignersError].
func CheckSigners(text string) error {
	_, err := parseSigners(text)
	return err
}

// parseSigners returns nil for a text that requires no signature.
func parseSigners(text string) (*signers, error) {
	if len(text) > maxSigners {
		return nil, badSigners("the list of signers is longer than %d bytes", maxSigners)
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	out := &signers{}
	lines, err := out.extractPGPKeys(text)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(lines, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := out.addLine(line); err != nil {
			return nil, badSigners("line %d of the signers: %v", i+1, err)
		}
	}
	if len(out.ssh)+len(out.pgp) == 0 {
		return nil, badSigners("the list of signers contains no key: use lines of an allowed_signers file or armored OpenPGP keys")
	}
	return out, nil
}

// extractPGPKeys parses the OpenPGP keys of a text and returns the rest, with the same number of lines.
func (s *signers) extractPGPKeys(text string) (string, error) {
	rest := ""
	for {
		before, after, found := strings.Cut(text, pgpBegin)
		rest += before
		if !found {
			return rest, nil
		}
		block, tail, found := strings.Cut(after, pgpEnd)
		if !found {
			return "", badSigners("an OpenPGP key is incomplete: %s is missing", pgpEnd)
		}
		keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(pgpBegin + block + pgpEnd + "\n"))
		if err != nil {
			return "", badSigners("an OpenPGP key is invalid: %s", cleanText(err.Error()))
		}
		for _, key := range keys {
			if key.PrivateKey != nil {
				return "", badSigners("an OpenPGP key is private: export the public key")
			}
		}
		s.pgp = append(s.pgp, keys...)
		rest += strings.Repeat("\n", strings.Count(block, "\n"))
		text = tail
	}
}

// addLine parses "principals [options] type key [comment]".
func (s *signers) addLine(line string) error {
	if strings.Contains(line, "PRIVATE KEY") {
		return errors.New("it is a private key: use the public key")
	}
	principals, rest, ok := strings.Cut(line, " ")
	if strings.HasPrefix(line, `"`) {
		if end := strings.IndexByte(line[1:], '"'); end >= 0 {
			principals, rest, ok = line[1:end+1], line[end+2:], true
		}
	}
	if !ok || principals == "" {
		return errors.New("write it as: NAME KEYTYPE KEY")
	}
	if strings.HasPrefix(principals, "ssh-") || strings.HasPrefix(principals, "ecdsa-") || strings.HasPrefix(principals, "sk-") {
		return errors.New("the name before the key is missing: write it as: NAME KEYTYPE KEY")
	}
	key, _, options, extra, err := ssh.ParseAuthorizedKey([]byte(strings.TrimSpace(rest)))
	if err != nil || len(extra) > 0 {
		return errors.New("it contains no public key: write it as: NAME KEYTYPE KEY")
	}
	if _, ok := key.(*ssh.Certificate); ok {
		return errors.New("certificates are not supported: use the key itself")
	}
	signer := sshSigner{key: key.Marshal()}
	for _, option := range options {
		if err := signer.applyOption(option); err != nil {
			return err
		}
	}
	s.ssh = append(s.ssh, signer)
	return nil
}

func (s *sshSigner) applyOption(option string) (err error) {
	name, value, _ := strings.Cut(option, "=")
	value = strings.Trim(value, `"`)
	switch strings.ToLower(name) {
	case "namespaces":
		if !slices.Contains(strings.Split(value, ","), sshNamespace) {
			return fmt.Errorf("the key is not valid for %s: its namespaces are %q", sshNamespace, value)
		}
	case "valid-after":
		s.after, err = signerTime(value)
	case "valid-before":
		s.before, err = signerTime(value)
	case "cert-authority":
		return errors.New("certificates are not supported: use the key itself")
	default:
		return fmt.Errorf("%q is not an option of allowed_signers", name)
	}
	return err
}

// signerTime parses a time in the format of OpenSSH, YYYYMMDD[HHMM[SS]][Z]. A time without a zone is UTC, because
// servers have no local time zone.
func signerTime(text string) (time.Time, error) {
	digits := strings.TrimSuffix(text, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if at, err := time.Parse(layout, digits); err == nil && len(digits) == len(layout) {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 20271231", text)
}

// check returns why an object is not accepted, or "" if it is.
func (s *signers) check(o signedObject) string {
	switch {
	case o.signature == "":
		return "it is not signed"
	case strings.HasPrefix(o.signature, sshBegin):
		return s.checkSSH(o)
	case strings.HasPrefix(o.signature, "-----BEGIN PGP"):
		return s.checkPGP(o, time.Now())
	}
	return "the format of its signature is not supported: use SSH or OpenPGP"
}

// checkPGP translates the errors of the OpenPGP library.
func (s *signers) checkPGP(o signedObject, now time.Time) string {
	if len(s.pgp) == 0 {
		return "it is signed with OpenPGP, but the list of signers has no OpenPGP key"
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	_, err := openpgp.CheckArmoredDetachedSignature(s.pgp, bytes.NewReader(o.payload), strings.NewReader(o.signature), config)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return "it is signed by " + issuer(o.signature) + ", which is not in the list of signers"
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return "the key " + issuer(o.signature) + " that signed it expired"
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return "the key " + issuer(o.signature) + " that signed it was revoked"
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return "its signature expired"
	}
	return "its signature is invalid: " + cleanText(err.Error())
}

// issuer describes the key of an armored OpenPGP signature, if the signature identifies it.
func issuer(armored string) string {
	const unknown = "an unknown key"
	block, err := armor.Decode(strings.NewReader(armored))
	if err != nil {
		return unknown
	}
	read, err := packet.Read(block.Body)
	if err != nil {
		return unknown
	}
	signature, ok := read.(*packet.Signature)
	if !ok || signature.IssuerKeyId == nil {
		return unknown
	}
	return fmt.Sprintf("the OpenPGP key %016X", *signature.IssuerKeyId)
}
